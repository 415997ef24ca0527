// Looks for words in the text of a status.
#pragma once

#include <string_view>

#include "hccl/base/status.h"

namespace hccl::control {

inline bool has(const Status& status, std::string_view words) {
  return status.message().find(words) != std::string::npos;
}

}  // namespace hccl::control
