// Strict JSON for untrusted files. Size, depth and number of values are limited, a key that appears
// twice is refused, and comments are an error. Scalars keep their kind, so that a reader can tell
// "0" from 0.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/status.h"

namespace hccl::join {

struct JsonNode {
  enum class Type { kObject, kArray, kString, kNumber, kBoolean, kNull };

  Type type = Type::kNull;
  std::string key;                 ///< of a member of an object
  std::string text;                ///< of a string; empty for all others
  std::vector<JsonNode> children;  ///< members of an object, elements of an array

  /// The member with this name, or null. Owned by this node.
  const JsonNode* find(std::string_view name) const;
};

struct JsonLimits {
  std::size_t bytes = std::size_t{40} << 20;
  std::size_t depth = 16;
  std::size_t values = std::size_t{1} << 20;
};

/// Parses a whole text. kPara with the position of the error ("line 3: …"). Throws nothing.
Result<JsonNode> parse_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace hccl::join
