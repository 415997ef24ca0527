// A caching allocator over the device heap. It keeps freed blocks by size class for the next
// allocation of the class. Beyond a limit, the blocks freed longest ago go back to the heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <unordered_map>

#include "hccl/base/mutex.h"
#include "hccl/base/status.h"
#include "hccl/memory/heap.h"

namespace hccl::memory {

/// All members are safe to use from any thread.
class Cache {
 public:
  /// `limit`: the most bytes that the free blocks and the heap's freed memory may keep together.
  Cache(std::shared_ptr<Heap> heap, std::size_t limit);

  /// kPara: `bytes` is 0. kOom: no memory, even after the kept blocks were given back.
  Result<void*> allocate(std::size_t bytes);
  /// kPara: `memory` is no live allocation of allocate().
  Status free(void* memory);
  /// Gives all free blocks back to the heap, and the free memory of the heap back to the system.
  void trim() HCCL_EXCLUDES(mutex_);

  struct Info {
    std::size_t in_use = 0;  ///< bytes of live blocks, rounded up to their classes
    std::size_t cached = 0;  ///< bytes of free blocks
    std::uint64_t reused = 0;
    std::uint64_t fresh = 0;
  };
  Info info() const;
  std::size_t limit() const { return limit_; }
  const Heap& heap() const { return *heap_; }

  /// The block size for `bytes` bytes. From 512 bytes on there are eight sizes between two powers
  /// of two, so that at most an eighth of a block is unused. Smaller sizes are multiples of 64
  /// bytes.
  static std::size_t class_of(std::size_t bytes);

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
  };
  using Free = std::list<Block>;  // in the order of freeing

  void* take(std::size_t bytes) HCCL_REQUIRES(mutex_);
  bool keep(const Block& block) HCCL_REQUIRES(mutex_);
  void shrink(std::size_t limit) HCCL_REQUIRES(mutex_);

  const std::shared_ptr<Heap> heap_;
  const std::size_t limit_;
  mutable Mutex mutex_{LockLevel::kDevice};
  std::unordered_map<void*, std::size_t> live_ HCCL_GUARDED_BY(mutex_);
  Free free_ HCCL_GUARDED_BY(mutex_);
  std::unordered_map<std::size_t, std::deque<Free::iterator>> classes_
      HCCL_GUARDED_BY(mutex_);  // oldest first
  Info info_ HCCL_GUARDED_BY(mutex_);
};

}  // namespace hccl::memory
