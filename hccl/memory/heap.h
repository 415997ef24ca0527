// Device memory: one heap for each process, in a memfd. The other ranks of the host map the heap,
// too, and load and store its memory directly. Every byte has an offset in the memfd; ranks
// exchange offsets, not addresses.
//
// The reserve is virtual and sparse. A page gets memory at its first allocation, if the limits of
// the cgroup and of the machine leave room, and is faulted in then. A freed page keeps its memory
// for the next allocation, up to a bound on such memory. The file has its full size from the start
// and is sealed against shrinking, so a mapping never has to grow and never extends beyond the end
// of the file.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "hccl/base/fd.h"
#include "hccl/base/mutex.h"
#include "hccl/base/status.h"
#include "hccl/memory/committed.h"

namespace hccl::memory {

class Arena;
class View;

/// All members are safe to use from any thread.
class Heap {
 public:
  /// `reserve`: the most bytes that the heap can have, rounded up to kGranule. 0 means the size of
  /// the machine's memory, or an eighth of the limit of addresses (ulimit -v) if that is less. The
  /// reserve never exceeds the limit of file sizes (ulimit -f). Fails with kSyscall or kOom.
  static Result<std::shared_ptr<Heap>> create(std::size_t reserve = 0);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// Returns memory with undefined contents, aligned to `alignment` (a power of two) and at least
  /// to kAlignment. kOom: the reserve is used up, or the system has no memory.
  Result<void*> allocate(std::size_t bytes, std::size_t alignment = kAlignment);
  /// kPara: `memory` is no live allocation of allocate().
  Status free(void* memory);
  /// The live allocation that contains this address; empty if none does. Searches all allocations.
  std::span<std::byte> block_of(const void* memory) const {
    const auto* const at = static_cast<const std::byte*>(memory);
    const MutexLock lock(mutex_);
    for (const auto& [start, bytes] : live_) {
      std::byte* const first = base_ + (static_cast<const std::byte*>(start) - base_);
      if (at >= first && at < first + bytes) return {first, bytes};
    }
    return {};
  }

  // ---- Allocations that the caller also maps at addresses of its choice ----
  /// Maps [offset, offset + bytes) at the caller's reserved addresses `at`. `at`, `bytes` and
  /// `offset` are multiples of the page size. After this call locate() knows the addresses. kPara:
  /// another mapping is there.
  Status map(void* at, std::size_t bytes, std::uint64_t offset);
  /// Removes a mapping and leaves inaccessible addresses in its place. kPara: no mapping begins at
  /// `at`.
  Status unmap(void* at);

  /// The offset of these bytes in the memfd, if all of them lie there contiguously: in an
  /// allocation or in mapped addresses, also across adjacent blocks. Costs only a few loads for
  /// bytes outside device memory.
  std::optional<std::uint64_t> locate(const void* memory, std::size_t bytes) const {
    const auto at = reinterpret_cast<std::uintptr_t>(memory);
    const auto offset = at - reinterpret_cast<std::uintptr_t>(base_);
    if (offset < reserve_ && bytes <= reserve_ - offset) return offset;
    if (!mapped_.load(std::memory_order_acquire)) return std::nullopt;
    return locate_mapped(at, bytes);
  }

  /// Whether a part of the memfd is, or was, mapped at two of the caller's addresses.
  bool mapped_twice() const { return mapped_twice_.load(std::memory_order_relaxed); }

  /// Limits the freed memory that the heap keeps; further freed memory goes back to the system.
  /// Without this call the heap keeps all freed memory.
  void limit_kept(std::size_t bytes);
  /// Bytes of freed memory that the heap keeps, including the unused rest of units that are partly
  /// in use.
  std::size_t kept() const { return kept_.load(std::memory_order_relaxed); }

  /// A forked child calls this before anything else. Replaces all mappings by private ones: the
  /// child still reads the parent's memory, but its writes do not reach the parent. A page that the
  /// child has not written shows later writes of the parent. Takes no lock and no memory.
  /// Afterwards the child may only call contains().
  void make_private() const HCCL_UNCHECKED;
  bool contains(const void* memory) const {
    return reinterpret_cast<std::uintptr_t>(memory) - reinterpret_cast<std::uintptr_t>(base_) <
           reserve_;
  }

  /// Maps another process's heap into this process. All communicators share one mapping of a heap.
  Result<std::shared_ptr<View>> view_of(const Fd& memfd);

  const Fd& memfd() const { return memfd_; }
  std::byte* base() const { return base_; }
  std::size_t reserve() const { return reserve_; }
  /// Bytes in live allocations.
  std::size_t used() const;

  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kGranule = std::size_t{2} << 20;
  /// Memory is committed in multiples of this size.
  static constexpr std::size_t kUnit = std::size_t{64} << 10;

 private:
  struct Mapped {
    std::size_t bytes = 0;
    std::uint64_t offset = 0;
  };
  using Mappings = std::map<std::uintptr_t, Mapped>;
  Heap(Fd memfd, std::byte* base, std::size_t reserve);
  std::optional<std::uint64_t> locate_mapped(std::uintptr_t at, std::size_t bytes) const;
  template <class Change>
  void change_mappings(Change change) HCCL_REQUIRES(mutex_);
  Result<std::uint64_t> take(std::size_t bytes, std::size_t alignment) HCCL_REQUIRES(mutex_);
  /// Commits memory for a part that take() returned.
  Status commit(std::uint64_t offset, std::size_t bytes) HCCL_EXCLUDES(mutex_);
  Result<std::uint64_t> step(std::uint64_t at, std::uint64_t end) HCCL_EXCLUDES(mutex_);
  Status give_up(const Status& why) HCCL_EXCLUDES(mutex_);
  void shrink(std::size_t kept) HCCL_REQUIRES(mutex_);
  void give_back(std::uint64_t offset, std::size_t bytes) noexcept HCCL_REQUIRES(mutex_);

  Fd memfd_;
  std::byte* base_;
  std::size_t reserve_;
  mutable Mutex mutex_;
  const std::unique_ptr<Arena> arena_ HCCL_LOCKS(pt_guarded_by(mutex_));       // the free parts
  std::unordered_map<const void*, std::size_t> live_ HCCL_GUARDED_BY(mutex_);  // allocations
  Mappings mappings_ HCCL_GUARDED_BY(mutex_);                                  // by address
  Mappings spare_;                     // a copy, for a child forked while mappings_ changes
  std::atomic<bool> changing_{false};  // mappings_ is changing; spare_ is complete
  std::atomic<bool> mapped_{false};    // there are mappings
  std::atomic<bool> mapped_twice_{false};
  std::size_t used_ HCCL_GUARDED_BY(mutex_) = 0;
  Committed committed_ HCCL_GUARDED_BY(mutex_);  // the parts that have memory
  // Bytes that may be committed before the limits are read again.
  std::uint64_t credit_ HCCL_GUARDED_BY(mutex_) = 0;
  std::atomic<std::size_t> kept_limit_{SIZE_MAX};
  std::atomic<std::size_t> kept_{0};
  // The views of other processes' heaps, by the inode of the memfd.
  std::map<std::uint64_t, std::weak_ptr<View>> views_ HCCL_GUARDED_BY(mutex_);
};

/// A mapping of another process's heap. The View owns the mapping.
class View {
 public:
  /// Checks the size and the seals of a heap's memfd, and maps the heap. kTcpConnect: the memfd is
  /// no heap. kSyscall or kOom: it cannot be mapped.
  static Result<std::shared_ptr<View>> of(const Fd& memfd);
  ~View();
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  std::byte* base() const { return base_; }
  std::size_t size() const { return size_; }

 private:
  View() = default;
  std::byte* base_ = nullptr;  // null: not mapped
  std::size_t size_ = 0;
};

}  // namespace hccl::memory
