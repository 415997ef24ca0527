// A reserve of memory for OpenSSL, used when malloc fails. If an allocation fails during the first
// use of OpenSSL, OpenSSL crashes, or fails for the rest of the program.
#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "hccl/base/auth.h"
#include "hccl/base/mutex.h"

namespace hccl::api {
namespace {

constexpr std::size_t kUnit = alignof(std::max_align_t);

/// Allocates blocks from a fixed array, one after another. The memory is reused only after all
/// blocks are free.
class Reserve {
 public:
  void* take(std::size_t bytes) {
    const MutexLock lock(mutex_);
    if (bytes > sizeof bytes_ - used_) return nullptr;
    void* const block = bytes_ + used_;
    used_ += (bytes + kUnit - 1) / kUnit *
             kUnit;  // stays within the reserve, whose size is a multiple of kUnit
    ++blocks_;
    return block;
  }
  bool has(const void* block) const {
    return std::greater_equal<>()(block, bytes_) && std::less<>()(block, bytes_ + sizeof bytes_);
  }
  /// Returns the number of bytes from the block to the end of the reserve: an upper bound of the
  /// block's size.
  std::size_t behind(const void* block) const {
    return static_cast<std::size_t>(bytes_ + sizeof bytes_ - static_cast<const std::byte*>(block));
  }
  void give_back() {
    const MutexLock lock(mutex_);
    if (--blocks_ == 0) used_ = 0;
  }

 private:
  Mutex mutex_;
  std::size_t used_ HCCL_GUARDED_BY(mutex_) = 0, blocks_ HCCL_GUARDED_BY(mutex_) = 0;
  alignas(kUnit) std::byte bytes_[std::size_t{64} << 10];
};
Reserve reserve;

void* take(std::size_t bytes, const char*, int) {
  void* const block = std::malloc(bytes);
  return block != nullptr ? block : reserve.take(bytes);
}

void give_back(void* block, const char*, int) {
  reserve.has(block) ? reserve.give_back() : std::free(block);
}

void* resize(void* block, std::size_t bytes, const char*, int) {
  const bool reserved = block != nullptr && reserve.has(block);
  if (!reserved) {
    if (void* const moved = std::realloc(block, bytes)) return moved;
  }
  void* const moved = take(bytes, nullptr, 0);
  if (moved == nullptr || block == nullptr) return moved;
  const std::size_t had = reserved ? reserve.behind(block) : ::malloc_usable_size(block);
  std::memcpy(moved, block, std::min(bytes, had));
  give_back(block, nullptr, 0);
  return moved;
}

// Runs when the library is loaded, before OpenSSL's first use. OpenSSL must not clean up at exit,
// because State is never destroyed and threads may still use encrypted connections (state.h).
[[maybe_unused]] const bool told =
    (crypto_memory(take, resize, give_back), crypto_outlives_exit(), true);

}  // namespace
}  // namespace hccl::api
