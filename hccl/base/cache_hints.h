// Hints for caches of memory that several cores share. They never change results, and do nothing on
// processors without such instructions.
#pragma once

#include <cstddef>

namespace hccl {

inline constexpr std::size_t kCacheLine = 64;

/// Moves bytes that this core has written, and that another core reads next, to the cache that both
/// cores share. So the reader does not fetch them from this core. Use it for short data only:
/// moving a line takes longer than the reader's fetch, but no core waits for the move.
inline void hand_over([[maybe_unused]] const std::byte* at, [[maybe_unused]] std::size_t bytes) {
#if defined(__x86_64__)
  for (std::size_t i = 0; i < bytes; i += kCacheLine) asm volatile("cldemote %0" : : "m"(at[i]));
#endif
}

/// Prefetches bytes that this core reads soon.
inline void will_read(const std::byte* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(at + i);
}

/// Prefetches, for writing, the cache lines of bytes that this core writes soon.
inline void will_write(std::byte* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kCacheLine) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(at[i]));
#else
    __builtin_prefetch(at + i, 1);
#endif
  }
}

}  // namespace hccl
