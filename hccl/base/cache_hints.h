// Hints for caches of memory that several cores share. They never change results, and do nothing on
// processors without such instructions.
#pragma once

#include <cstddef>

namespace hccl {

inline constexpr std::size_t kCacheLine = 64;

/// This core has written these bytes, and another core reads them next. Moves the bytes to the
/// cache that both cores share, so that the reader need not fetch them from this core. For short
/// data only: moving a line takes longer than the reader's fetch, but no core waits for the move.
inline void hand_over([[maybe_unused]] const std::byte* at, [[maybe_unused]] std::size_t bytes) {
#if defined(__x86_64__)
  for (std::size_t i = 0; i < bytes; i += kCacheLine) asm volatile("cldemote %0" : : "m"(at[i]));
#endif
}

/// For bytes that this core reads soon.
inline void will_read(const std::byte* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(at + i);
}

/// For bytes that this core writes soon: fetches the lines for writing early.
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
