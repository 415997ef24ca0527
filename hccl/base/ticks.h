// The processor's own clock, which is much cheaper to read than the system's. The length of a tick
// is unknown; to convert ticks, read both clocks at two points in time.
#pragma once

#include <chrono>
#include <cstdint>

namespace hccl {

inline std::uint64_t ticks() {
#if defined(__x86_64__) || defined(__i386__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t count = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

}  // namespace hccl
