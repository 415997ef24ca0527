// The shared memory of one mesh on one host: an anonymous, sealed memfd, mapped once a process.
//
//   [ Header | one RankState a rank | one RingControl an ordered pair | page | ring bytes of each
//   pair ]
//
// Sparse: a page takes memory when it is first touched.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "hccl/base/fd.h"
#include "hccl/base/status.h"
#include "transport/shm/ring.h"

namespace hccl::transport::shm {

/// Shared words of one rank; written by that rank, `asleep` also cleared by whoever wakes it.
struct RankState {
  alignas(kLine) std::atomic<std::uint32_t> asleep{0};
};

/// Where things lie in the segment of `ranks` ranks; a pure function of that number.
struct Layout {
  static Layout of(int ranks);
  std::uint64_t ring_bytes = 0;  ///< power of two
  std::uint64_t states_at = 0;
  std::uint64_t controls_at = 0;
  std::uint64_t rings_at = 0;
  std::uint64_t total = 0;
};

/// One mapping. Ranks of one process share it (shared_ptr). Immutable after set-up, so any thread
/// may use it; what it maps has the rules of ring.h.
class Segment {
 public:
  /// A fresh memfd for this many ranks, sealed and mapped. kSyscall or kMemory.
  static Result<std::shared_ptr<Segment>> create(int ranks);
  /// Maps another process's memfd after checking its size and seals.
  static Result<std::shared_ptr<Segment>> attach(Fd memfd, int ranks);
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
  /// The memfd is needed for the hand-over only.
  void drop_memfd() { memfd_.reset(); }

  /// wake_fds[r]: writing to it wakes rank r. Filled in during the hand-over.
  std::vector<Fd> wake_fds;

 private:
  Segment(Fd memfd, int ranks, std::byte* base);
  std::uint64_t pair(int from, int to) const;
  Fd memfd_;
  int ranks_;
  Layout layout_;
  std::byte* base_;
};

}  // namespace hccl::transport::shm
