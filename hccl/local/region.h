// The memory that the ranks of one host share. Each rank has a slot, in which it announces
// operations, counters of its progress, and a staging buffer for data in memory that other ranks
// cannot reach. The region knows no operations; only the algorithms (algorithm.h) do.
//
//   [ doorbell | control blocks | block tables | padding to a page | staging buffers ]
//
// Outside the doorbell, only one rank writes each variable (except that lost() writes for a dead
// rank), and different ranks write to different cache lines. The memory begins as zeroes. Data from
// a peer is checked before it is used as an address or a length. A model checker runs the same code
// with its own atomics.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "hccl/base/atomics.h"
#include "hccl/base/call.h"
#include "hccl/base/doorbell.h"
#include "hccl/base/host_memory.h"
#include "hccl/local/call_key.h"
#include "hccl/local/host_waits.h"
#include "hccl/local/staging.h"

namespace hccl::local {

/// The cache line in which a rank announces an operation. `word` is stored last. The payload comes
/// first, so that a vector load of the payload stays within the line.
template <class Atomics>
struct alignas(64) BasicSlot {
  static constexpr std::size_t kPayload = 56;
  std::array<std::byte, kPayload> payload{};
  /// call_key() of the announced call and the operation's number on this host.
  typename Atomics::template atomic<std::uint64_t> word{0};
  /// Value of `word` after the rank has withdrawn its announcement.
  static constexpr std::uint64_t kWithdrawn = 1;
};
using Slot = BasicSlot<StdAtomics>;
static_assert(sizeof(Slot) == 64);

/// A counter of one rank's progress. The counter runs through all operations and is never reset.
enum class Progress : std::uint8_t {
  kStaged,  ///< chunks that the rank has put into its staging buffer
  kFolded,  ///< chunks for which this rank's slice is folded in its staging buffer
  kTaken,   ///< chunks that the rank has taken from all staging buffers
};

/// The distance between data of different writers: two cache lines, because processors fetch lines
/// in pairs.
inline constexpr std::size_t kApart = 128;

template <class Atomics>
struct alignas(kApart) BasicControlBlock {
  using Counter = typename Atomics::template atomic<std::uint64_t>;
  /// Two slots, because a rank may be one operation ahead of another.
  std::array<BasicSlot<Atomics>, 2> slots;
  /// The announced calls in full. Peers read a call only if its key differs from their own.
  alignas(kApart) std::array<Envelope, 2> calls;
  alignas(kApart) std::array<Counter, 3> progress{};
  alignas(kApart) Counter barriers{0};  ///< barriers reached so far
  /// Number of the last operation in which this rank has stopped using its peers' buffers; see
  /// BasicRegion::leave().
  Counter left{0};
  /// The last copy that the kernel has refused to this rank; see Refusal.
  Counter refused{0};
};

/// One rank's access to the region. Only one thread at a time may use this object, except that any
/// thread may call lost(). Operations allocate no memory.
template <class Atomics = StdAtomics>
class BasicRegion {
 public:
  /// The most ranks for which every rank maps all staging buffers at the start. With more ranks, a
  /// buffer is mapped at its first use: N ranks that each map N buffers need N^2 page tables and
  /// much time, perhaps for buffers that they never use.
  static constexpr int kMapped = 8;

  static std::size_t bytes(int ranks) { return staging_at(ranks) + of(ranks) * Staging::kBytes; }

  /// `memory` must outlive the region. The timeout of `waiter` bounds every wait: within that time
  /// each rank must take its next step. `background`: the policy of operations that run while their
  /// callers compute.
  BasicRegion(const HostMemory& memory, BasicWaiter<Atomics> waiter, WaitPolicy background);
  /// Maps the control blocks and, for at most kMapped ranks, the staging buffers of all ranks, so
  /// that no operation takes page faults for them. Call it between two operations of all ranks,
  /// after every rank has created its Region.
  void map_all();

  int local_rank() const { return local_rank_; }
  int size() const { return size_; }
  BasicHostWaits<Atomics>& waits() { return waits_; }
  const BasicHostWaits<Atomics>& waits() const { return waits_; }
  int rank_of(int local_rank) const { return memory_.ranks[static_cast<std::size_t>(local_rank)]; }
  const HostMemory& memory() const { return memory_; }

  // ---- announcing an operation ----

  /// Begins the next operation of these ranks. `call` must be valid until the operation ends.
  void begin(const Envelope& call, bool background) {
    ++number_;
    waits_.begin(call, background);
    before_ = std::exchange(keys_[number_ & 1], call_key(call, number_));
  }
  /// Room for data that travels with the announcement. Write the data before announce().
  std::byte* payload() { return slot(local_rank_).payload.data(); }
  const std::byte* payload(int local_rank) const { return slot(local_rank).payload.data(); }
  void announce() {
    control(local_rank_).calls[number_ & 1] = waits_.call();
    slot(local_rank_).word.store(key(), std::memory_order_release);
    doorbell().ring();
  }
  /// Waits until all ranks have announced this call. After that, every rank has left the previous
  /// operation. look(local_rank) runs at every check of a peer's slot, as a hint to prefetch (see
  /// slots.cc). kPara: a rank has announced a different call.
  template <class Look>
  Status await_announced(Look&& look);
  Status await_announced() {
    return await_announced([](int) {});
  }
  /// Withdraws the announcement. A rank that announces later waits for the report of the failure.
  void withdraw() { slot(local_rank_).word.store(Slot::kWithdrawn, std::memory_order_release); }
  /// Announces to the peers that this rank no longer uses their buffers. Call this at the end of an
  /// operation that uses peers' buffers.
  void leave() {
    control(local_rank_).left.store(number_, std::memory_order_release);
    doorbell().ring();
  }
  /// After a failure, waits until every rank that has announced this operation has left it. Until
  /// then peers may read or write this rank's buffers. Waits no longer than a long copy takes,
  /// because a peer may be stopped.
  void await_left();
  /// Records that a rank is dead, so that the rank counts as having left every operation. Ignores
  /// ranks of other hosts. Any thread may call.
  void lost(int rank);

  // ---- refused copies ----

  /// The kernel refused a copy between a rank and `local_rank`, with `error` (an errno). If
  /// `local_rank` is the rank itself, the kernel refuses all copies of the rank.
  struct Refusal {
    int local_rank;
    int error;
  };
  /// Records a refused copy. Call this before the operation's barrier.
  void refuse(Refusal copy) {
    control(local_rank_)
        .refused.store(number_ << 32 | of(copy.local_rank) << 16 | of(copy.error),
                       std::memory_order_relaxed);
  }
  /// The refused copy of `local_rank`. Call this after the barrier; the result is the same on all
  /// ranks.
  std::optional<Refusal> refusal_of(int local_rank) const {
    const std::uint64_t word = control(local_rank).refused.load(std::memory_order_relaxed);
    // No refusal has error 0. Before the first refusal the word is 0, which looks like a refusal in
    // operation 2^32.
    if ((word & 0xFFFF) == 0 || word >> 32 != (number_ & 0xFFFFFFFF)) return std::nullopt;
    return Refusal{static_cast<int>(word >> 16 & 0xFFFF), static_cast<int>(word & 0xFFFF)};
  }

  // ---- progress ----

  /// A barrier of all ranks.
  Status barrier();
  /// Reports that this rank has made this progress with `chunk` of the operation.
  void done(Progress what, std::uint64_t chunk) {
    progress(local_rank_, what)
        .store(staging_.chunks_before() + chunk + 1, std::memory_order_release);
    doorbell().ring();
  }
  bool has_done(Progress what, int local_rank, std::uint64_t chunk) const {
    return progress(local_rank, what).load(std::memory_order_acquire) >
           staging_.chunks_before() + chunk;
  }
  /// Waits until every rank has made this progress with `chunk`.
  Status await_all(Progress what, std::uint64_t chunk) {
    return waits_.each([&](int peer) { return has_done(what, peer, chunk); });
  }
  // ---- data ----

  Staging& staging() { return staging_; }
  const Staging& staging() const { return staging_; }
  /// For alltoallv: the blocks in the input of `local_rank`, by receiving rank.
  Block* sends(int local_rank) const {
    return reinterpret_cast<Block*>(base_ + tables_at(size_)) + 2 * of(local_rank) * of(size_);
  }
  /// For alltoallv: the blocks in the output of `local_rank`, by sending rank.
  Block* receives(int local_rank) const { return sends(local_rank) + size_; }

 private:
  using Slot = BasicSlot<Atomics>;
  using ControlBlock = BasicControlBlock<Atomics>;
  using Doorbell = BasicDoorbell<Atomics>;

  static std::size_t of(int number) { return static_cast<std::size_t>(number); }
  static std::size_t tables_at(int ranks) { return kApart + of(ranks) * sizeof(ControlBlock); }
  static std::size_t staging_at(int ranks) {
    constexpr std::size_t kPage = 4096;
    return (tables_at(ranks) + 2 * of(ranks) * of(ranks) * sizeof(Block) + kPage - 1) / kPage *
           kPage;
  }
  Doorbell& doorbell() const { return *reinterpret_cast<Doorbell*>(base_); }
  ControlBlock& control(int local_rank) const {
    return *reinterpret_cast<ControlBlock*>(base_ + kApart + of(local_rank) * sizeof(ControlBlock));
  }
  Slot& slot(int local_rank) const { return control(local_rank).slots[number_ & 1]; }
  typename ControlBlock::Counter& progress(int local_rank, Progress what) const {
    return control(local_rank).progress[static_cast<std::size_t>(what)];
  }
  std::uint64_t key() const { return keys_[number_ & 1]; }
  std::uint64_t word(int local_rank) const {
    return slot(local_rank).word.load(std::memory_order_acquire);
  }
  /// Whether the rank has announced this operation, perhaps with another call than this rank's. If
  /// so, its slot no longer holds the key of two operations ago, which was the same on all ranks.
  bool announced(int local_rank) const {
    const std::uint64_t there = word(local_rank);
    return there != before_ && there != Slot::kWithdrawn;
  }
  Status mismatch();

  const HostMemory& memory_;
  std::byte* base_;
  int local_rank_;
  int size_;
  BasicHostWaits<Atomics> waits_;
  Staging staging_;
  std::uint64_t number_ = 0;
  std::array<std::uint64_t, 2> keys_{};  // keys of this operation and the last one, by slot
  std::uint64_t before_ = 0;             // value of this slot two operations ago
  std::uint64_t barriers_ = 0;
};
using Region = BasicRegion<>;
static_assert(sizeof(Doorbell) <= kApart);

template <class Atomics>
template <class Look>
Status BasicRegion<Atomics>::await_announced(Look&& look) {
  bool all = true;  // the usual case; this loop loads all slots at once
  for (int peer = 0; peer < size_; ++peer) all &= word(peer) == key();
  if (all) return {};
  // A rank that has withdrawn is not late; the wait ends with the reason of its failure.
  const auto late = [&](int peer) { return !announced(peer) && word(peer) != Slot::kWithdrawn; };
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == local_rank_) continue;
    const auto here = [&](int which) {
      look(which);
      return announced(which);
    };
    HCCL_RETURN_IF_ERROR(waits_.until(peer, here, late));
    if (word(peer) != key()) return mismatch();
  }
  return {};
}

}  // namespace hccl::local
