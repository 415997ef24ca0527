// Memory of the device heap that is used again: freed blocks are kept by size class for the next
// allocation of the class. Those freed longest ago go back to the heap when there are too many.
#pragma once

#include <sys/types.h>

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

/// Every member is safe to use from any thread. In a forked child nothing can be had, and what is
/// freed stays as it is: its memory is the parent's.
class Cache {
 public:
  /// `limit`: bytes that are kept, of free blocks and of what is free in the heap.
  Cache(std::shared_ptr<Heap> heap, std::size_t limit);

  /// kPara: no bytes. kOom: not even without the blocks that are kept. kUnavail: a forked child.
  Result<void*> allocate(std::size_t bytes);
  /// kPara: not a live allocation of allocate().
  Status free(void* memory);
  /// Gives all free blocks back to the heap, and what is free there back to the system.
  void trim() HCCL_EXCLUDES(mutex_);

  struct Info {
    std::size_t in_use = 0;  ///< bytes of live blocks, of the sizes of their classes
    std::size_t cached = 0;  ///< bytes of free blocks
    std::uint64_t reused = 0;
    std::uint64_t fresh = 0;
  };
  Info info() const;
  std::size_t limit() const { return limit_; }
  const Heap& heap() const { return *heap_; }

  /// The size of the class of a block: eight classes between powers of two, so that at most an
  /// eighth is unused.
  static std::size_t class_of(std::size_t bytes);

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
  };
  using Free = std::list<Block>;  // in the order of freeing

  bool forked() const;
  void* take(std::size_t bytes) HCCL_REQUIRES(mutex_);
  void shrink(std::size_t limit) HCCL_REQUIRES(mutex_);

  const std::shared_ptr<Heap> heap_;
  const std::size_t limit_;
  const pid_t process_;
  mutable Mutex mutex_{LockLevel::kDevice};
  std::unordered_map<void*, std::size_t> live_ HCCL_GUARDED_BY(mutex_);
  Free free_ HCCL_GUARDED_BY(mutex_);
  std::unordered_map<std::size_t, std::deque<Free::iterator>> classes_
      HCCL_GUARDED_BY(mutex_);  // oldest first
  Info info_ HCCL_GUARDED_BY(mutex_);
};

}  // namespace hccl::memory
