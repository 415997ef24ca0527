// Strict JSON for untrusted files. Size, depth and number of values are limited, a key that appears
// twice is refused, and comments are an error. Scalars keep their kind, so that a reader can tell
// "0" from 0. Only a file that reads values includes <nlohmann/json.hpp>, which is slow to compile.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "hccl/base/status.h"

namespace hccl::join {

using Json = nlohmann::json;

inline constexpr std::size_t kJsonBytes = std::size_t{40} << 20;  ///< the most bytes of a text

/// Parses a whole text, which must be an object. kPara with the reason or, if the text is not JSON,
/// with the position of the error. Throws nothing.
Result<std::shared_ptr<const Json>> parse_json(std::string_view text);

}  // namespace hccl::join
