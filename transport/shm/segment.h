// The shared memory of one mesh on one host: an anonymous, sealed memfd, mapped once in each
// process.
//
//   [ Header | a RankState per rank | a RingControl per ordered pair | (next page)
//     | ring bytes of each pair | the area of HostMemory ]
//
// The memfd is sparse: a page takes memory when it is first touched.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hccl/base/fd.h"
#include "hccl/base/status.h"
#include "transport/shm/ring.h"

namespace hccl::transport::shm {

/// Shared values of one rank. That rank writes them; the rank that wakes it also clears `asleep`.
template <class Atomics = StdAtomics>
struct BasicRankState {
  alignas(kLine) typename Atomics::template atomic<std::uint32_t> asleep{0};
};
using RankState = BasicRankState<>;

/// The layout of the segment of `ranks` ranks; a pure function of its arguments.
struct Layout {
  static Layout of(int ranks, std::size_t area_bytes = 0);
  std::uint64_t ring_bytes = 0;  ///< power of two
  std::uint64_t states_at = 0;
  std::uint64_t controls_at = 0;
  std::uint64_t rings_at = 0;
  std::uint64_t area_at = 0;
  std::uint64_t total = 0;
};

/// A process's mapping of the shared memory; the ranks of the process share it (shared_ptr). The
/// object does not change after set-up, so any thread may use it. The rules of ring.h apply to the
/// mapped data.
class Segment {
 public:
  /// Creates, seals and maps a memfd for this many ranks. Fails with kSyscall or kOom. If
  /// `touch_rings`, few ranks touch the pages of all rings now.
  static Result<std::shared_ptr<Segment>> create(int ranks, std::size_t area_bytes = 0,
                                                 bool touch_rings = true);
  /// Maps another process's memfd after checking its size and seals.
  static Result<std::shared_ptr<Segment>> attach(Fd memfd, int ranks, std::size_t area_bytes = 0,
                                                 bool touch_rings = true);
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  int ranks() const { return ranks_; }
  int memfd() const { return memfd_.get(); }
  const Layout& layout() const { return layout_; }
  RankState& state(int rank) const;
  /// The ring that carries bytes from one rank to another.
  RingControl* control(int from, int to) const;
  RingBytes ring(int from, int to) const;
  std::span<std::byte> area() const {
    return {base_ + layout_.area_at, layout_.total - layout_.area_at};
  }
  /// Closes the memfd, which only the hand-over needs.
  void drop_memfd() { memfd_.reset(); }
  /// Closes the heaps' descriptors. Each rank calls this when all ranks have mapped the heaps; the
  /// first call in a process closes them.
  void drop_heap_fds() {
    if (heaps_dropped_.test_and_set()) return;
    for (Fd& each : heap_fds) each.reset();
  }

  /// A write to wake_fds[r] wakes rank r. Set during the hand-over.
  std::vector<Fd> wake_fds;
  /// The device heap of each rank until drop_heap_fds(); invalid for a rank without a heap.
  std::vector<Fd> heap_fds;
  /// The process id of each rank as the lowest rank sees it; 0 if unknown.
  std::vector<std::int32_t> pids;

 private:
  Segment(Fd memfd, int ranks, const Layout& layout, std::byte* base);
  std::uint64_t pair(int from, int to) const;
  Fd memfd_;
  int ranks_;
  Layout layout_;
  std::byte* base_;
  std::atomic_flag heaps_dropped_;  // set by the first rank of this process
};

}  // namespace hccl::transport::shm
