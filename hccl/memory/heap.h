// Device memory: one heap a process, in a memfd that the other ranks of the host map too, so that
// they load and store it directly. Every byte has an offset in the memfd; ranks exchange offsets,
// not addresses.
//
// The reserve is virtual and sparse: a page takes memory when it is first allocated (and is faulted
// in then, if the limits of the cgroup and of the machine leave room), and stays for the next
// allocation after it is freed, up to a bound. The file has its full size from the start and is
// sealed against shrinking, so a mapping of it never has to grow and never faults.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

#include "hccl/base/fd.h"
#include "hccl/base/mutex.h"
#include "hccl/base/status.h"
#include "hccl/memory/committed.h"

namespace hccl::memory {

class Arena;
class View;

/// Every member is safe to use from any thread.
class Heap {
 public:
  /// reserve: bytes at most, rounded up to kGranule; 0: as much as the machine has memory.
  /// kSyscall or kOom.
  static Result<std::shared_ptr<Heap>> create(std::size_t reserve = 0);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// Memory aligned to `alignment` (a power of two, at least kAlignment is given); contents
  /// undefined. kOom when the reserve is used up, or memory for it is not to be had.
  Result<void*> allocate(std::size_t bytes, std::size_t alignment = kAlignment);
  /// kPara: not a live allocation of allocate().
  Status free(void* memory);

  // ---- Physical blocks, mapped where the caller wants them ----
  /// Pages of the memfd, a multiple of kGranule; gives their offset. kOom.
  Result<std::uint64_t> allocate_pages(std::size_t bytes);
  /// kPara: no such block.
  Status free_pages(std::uint64_t offset);
  /// Maps [offset, offset + bytes) over the caller's reserved addresses at `at`, both multiples of
  /// the page size. From then on locate() knows these addresses. kPara where something is mapped.
  Status map(void* at, std::size_t bytes, std::uint64_t offset);
  /// Removes a mapping and leaves inaccessible addresses in its place. kPara: no mapping at `at`.
  Status unmap(void* at);

  /// Where these bytes lie in the memfd, if all of them do, one behind the other: allocations, and
  /// addresses that were mapped (also over adjacent blocks). Costs two loads if the bytes are not
  /// device memory.
  std::optional<std::uint64_t> locate(const void* memory, std::size_t bytes) const {
    const auto at = reinterpret_cast<std::uintptr_t>(memory);
    const auto offset = at - reinterpret_cast<std::uintptr_t>(base_);
    if (offset < reserve_ && bytes <= reserve_ - offset) return offset;
    if (!mapped_.load(std::memory_order_acquire)) return std::nullopt;
    return locate_mapped(at, bytes);
  }

  /// The bound of freed memory that stays; none at first. More than that goes back to the system.
  void keep(std::size_t bytes);
  /// Bytes of freed memory that stays, with what is unused in units that are partly in use.
  std::size_t kept() const { return kept_.load(std::memory_order_relaxed); }

  /// Another process's heap, mapped here; mapped once, however many communicators ask.
  Result<std::shared_ptr<View>> view_of(const Fd& memfd);

  int memfd() const { return memfd_.get(); }
  std::byte* base() const { return base_; }
  std::size_t reserve() const { return reserve_; }
  /// Bytes in live allocations and physical blocks.
  std::size_t used() const;

  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kGranule = std::size_t{2} << 20;
  /// Memory comes in units of this. Peers map a heap in the same ones.
  static constexpr std::size_t kUnit = std::size_t{64} << 10;

 private:
  struct Mapped {
    std::size_t bytes = 0;
    std::uint64_t offset = 0;
  };
  Heap(Fd memfd, std::byte* base, std::size_t reserve);
  std::optional<std::uint64_t> locate_mapped(std::uintptr_t at, std::size_t bytes) const;
  Result<std::uint64_t> take(std::size_t bytes, std::size_t alignment) HCCL_REQUIRES(mutex_);
  /// Gets memory for a part that was taken.
  Status commit(std::uint64_t offset, std::size_t bytes) HCCL_EXCLUDES(mutex_);
  Result<std::uint64_t> step(std::uint64_t at, std::uint64_t end) HCCL_EXCLUDES(mutex_);
  Status give_up(const Status& why) HCCL_EXCLUDES(mutex_);
  void shrink(std::size_t kept) HCCL_REQUIRES(mutex_);
  void give_back(std::uint64_t offset, std::size_t bytes) noexcept HCCL_REQUIRES(mutex_);

  Fd memfd_;
  std::byte* base_;
  std::size_t reserve_;
  mutable Mutex mutex_;
  const std::unique_ptr<Arena> arena_ HCCL_LOCKS(pt_guarded_by(mutex_));          // the free parts
  std::unordered_map<const void*, std::size_t> live_ HCCL_GUARDED_BY(mutex_);     // allocations
  std::unordered_map<std::uint64_t, std::size_t> pages_ HCCL_GUARDED_BY(mutex_);  // physical blocks
  std::map<std::uintptr_t, Mapped> mappings_ HCCL_GUARDED_BY(mutex_);             // by address
  std::atomic<bool> mapped_{false};  // there are mappings
  std::size_t used_ HCCL_GUARDED_BY(mutex_) = 0;
  const pid_t process_;  // a forked child gives no memory back: it is the parent's
  Committed committed_ HCCL_GUARDED_BY(mutex_);  // has memory
  std::uint64_t credit_ HCCL_GUARDED_BY(mutex_) =
      0;  // bytes that may be committed before the limits are read again
  std::atomic<std::size_t> keep_{SIZE_MAX};
  std::atomic<std::size_t> kept_{0};
  std::map<std::uint64_t, std::weak_ptr<View>> views_
      HCCL_GUARDED_BY(mutex_);  // by the memfd's inode
};

/// Another process's heap as it lies in this one. Owns the mapping.
class View {
 public:
  /// Maps a heap's memfd after checking its size and seals. kTcpConnect: not a heap; kSyscall.
  static Result<View> of(const Fd& memfd);
  View() = default;
  View(View&& other) noexcept;
  View& operator=(View&& other) noexcept;
  ~View();

  std::byte* base() const { return base_; }
  std::size_t size() const { return size_; }

 private:
  View(std::byte* base, std::size_t size) : base_(base), size_(size) {}
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hccl::memory
