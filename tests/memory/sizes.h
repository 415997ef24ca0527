// The unit of sizes.
#pragma once

#include <cstddef>

namespace hccl::memory {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

}  // namespace hccl::memory
