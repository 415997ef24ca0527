// Hints for caches of memory that several cores share. They never change what a program computes,
// and do nothing on processors that do not know them.
#pragma once

#include <cstddef>

namespace hccl {

inline constexpr std::size_t kCacheLine = 64;

/// This core has written these bytes, and another one reads them next: they move to the cache that
/// both share, rather than that the reader has to ask this core for them. For what is short: a line
/// takes longer this way than the reader would, though nobody waits for it.
inline void hand_over([[maybe_unused]] const std::byte* at, [[maybe_unused]] std::size_t bytes) {
#if defined(__x86_64__)
  for (std::size_t i = 0; i < bytes; i += kCacheLine) asm volatile("cldemote %0" : : "m"(at[i]));
#endif
}

/// This core reads these bytes soon.
inline void will_read(const std::byte* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(at + i);
}

/// This core writes these bytes soon: it takes the lines from whoever holds them, ahead of time.
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
