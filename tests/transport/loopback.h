// A connection of a test program to itself.
#pragma once

#include <chrono>

#include "hccl/base/deadline.h"

namespace hccl::transport {

inline constexpr char kAddress[] = "127.0.0.1";

inline Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

}  // namespace hccl::transport
