// The memory that the ranks of one host share. Each rank has a slot, in which it announces
// operations, counters of its progress, and a staging buffer for data in memory that other ranks
// cannot reach. The region knows no operation: the algorithms (algorithm.h) do.
//
//   [ doorbell | a control block for each rank | block tables | page | a staging buffer each ]
//
// Each variable is written by one rank only, and different ranks write to different cache lines.
// The memory begins as zeroes. Data from a peer is checked before it is used as an address or a
// length. A model checker runs the same code with its own atomics.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hccl/base/atomics.h"
#include "hccl/base/cache_hints.h"
#include "hccl/base/call.h"
#include "hccl/base/doorbell.h"
#include "hccl/base/host_memory.h"
#include "hccl/base/waiter.h"
#include "hccl/local/call_key.h"

namespace hccl::local {

/// The cache line in which a rank announces an operation. `word` is stored last. The payload comes
/// first, so that a vector load of the payload stays within the line.
template <class Atomics>
struct alignas(64) BasicSlot {
  static constexpr std::size_t kPayload = 56;
  std::array<std::byte, kPayload> payload{};
  /// call_key() of the call and of the operation's number on this host.
  typename Atomics::template atomic<std::uint64_t> word{0};
  /// Value of `word` after a withdrawal of the announcement.
  static constexpr std::uint64_t kWithdrawn = 1;
};
using Slot = BasicSlot<StdAtomics>;
static_assert(sizeof(Slot) == 64);

/// A counter of one rank's progress. It counts over all operations, so it is never reset.
enum class Progress : std::uint8_t {
  kStaged,  ///< chunks that the rank has put into its staging buffer
  kFolded,  ///< chunks for which this rank's slice is folded in its staging buffer
  kTaken,   ///< chunks that the rank has taken from all staging buffers
};

/// Two lines, because processors fetch lines in pairs.
inline constexpr std::size_t kApart = 128;

template <class Atomics>
struct alignas(kApart) BasicControlBlock {
  using Counter = typename Atomics::template atomic<std::uint64_t>;
  /// Two slots, because a rank may be one operation ahead of another.
  std::array<BasicSlot<Atomics>, 2> slots;
  /// The full calls; read only if keys differ.
  alignas(kApart) std::array<Envelope, 2> calls;
  alignas(kApart) std::array<Counter, 3> progress{};
  alignas(kApart) Counter barriers{0};  ///< barriers reached so far
  /// Number of the last operation on peers' buffers that this rank has left.
  Counter left{0};
  /// The last copy that the kernel has refused to this rank; see Refusal.
  Counter refused{0};
};

/// One rank's access to the region. Used by one thread at a time, except lost() and wake().
/// Allocates nothing in an operation.
template <class Atomics = StdAtomics>
class BasicRegion {
 public:
  /// About twice a second-level cache. In a much smaller buffer, each line that is written would
  /// still be in the cache of a reader.
  static constexpr std::size_t kStaging = std::size_t{2} << 20;
  /// The longest input for which next_whole() has room.
  static constexpr std::size_t kMostWhole = std::size_t{512} << 10;
  /// The part of a staging buffer that holds chunks.
  static constexpr std::size_t kChunks = kStaging - kMostWhole;
  /// With more ranks, staging buffers are mapped when they are used: N ranks that map N buffers
  /// each take N^2 page tables and much time, and may never use them.
  static constexpr int kMapped = 8;

  static std::size_t bytes(int ranks) { return staging_at(ranks) + of(ranks) * kStaging; }

  /// `memory` must outlive the region. The timeout of `waiter` bounds every wait: all ranks must
  /// take their next step within it. `background`: the policy of operations that run while their
  /// callers compute.
  BasicRegion(const HostMemory& memory, BasicWaiter<Atomics> waiter, WaitPolicy background);
  /// Maps the control blocks and, if the ranks are few, the staging buffers of all ranks, so that
  /// no operation takes page faults for them. Call it between two operations of all ranks, after
  /// every rank has created its Region.
  void map_all();

  int local_rank() const { return local_rank_; }
  int size() const { return size_; }
  int rank_of(int local_rank) const { return memory_.ranks[static_cast<std::size_t>(local_rank)]; }
  const HostMemory& memory() const { return memory_; }
  const BasicAbortFlag<Atomics>* abort() const { return waiter_.abort; }
  bool shared_cores() const { return waiter_.policy.shared_cores; }

  // ---- announcing an operation ----

  /// Begins the next operation of these ranks. `call` must be valid until the operation ends.
  void begin(const Envelope& call, bool background) {
    ++number_;
    call_ = &call;
    waiting_ = background ? &background_ : &waiter_;
    waited_ = false;
    before_ = std::exchange(keys_[number_ & 1], call_key(call, number_));
  }
  /// Applies to operations that begin after this call; see Waiter::timeout.
  void set_timeout(std::chrono::nanoseconds timeout) {
    waiter_.timeout = background_.timeout = timeout;
  }
  std::uint64_t number() const { return number_; }
  /// Room for data that travels with the announcement. Write it before announce().
  std::byte* payload() { return slot(local_rank_).payload.data(); }
  const std::byte* payload(int local_rank) const { return slot(local_rank).payload.data(); }
  void announce() {
    control(local_rank_).calls[number_ & 1] = *call_;
    slot(local_rank_).word.store(key(), std::memory_order_release);
    doorbell().ring();
  }
  /// Waits until all ranks have announced this call. Then every rank has left the operation before
  /// the last one. look(local_rank) runs at every check of a peer's slot, as a hint (see slots.cc).
  /// kPara: a rank has announced another call.
  template <class Look>
  Status await_announced(Look&& look);
  Status await_announced() {
    return await_announced([](int) {});
  }
  /// Withdraws the announcement. A rank that announces later waits for the report of the failure.
  void withdraw() { slot(local_rank_).word.store(Slot::kWithdrawn, std::memory_order_release); }
  /// After operations that use peers' buffers: says that this rank no longer uses them.
  void leave() {
    control(local_rank_).left.store(number_, std::memory_order_release);
    doorbell().ring();
  }
  /// Waits, after a failure, until every rank that has announced this call has left it: until then
  /// peers may read or write this rank's buffers. Waits no longer than a long copy takes, because a
  /// rank may be stopped.
  void await_left();
  /// Records that a rank is dead, so that it counts as having left every operation. Ignores ranks
  /// of other hosts. Any thread may call.
  void lost(int rank);

  // ---- refused copies ----

  /// A copy between a rank and `local_rank` that the kernel has refused with `error`.
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
    if (word >> 32 != (number_ & 0xFFFFFFFF)) return std::nullopt;
    return Refusal{static_cast<int>(word >> 16 & 0xFFFF), static_cast<int>(word & 0xFFFF)};
  }

  // ---- progress ----

  /// A barrier of all ranks.
  Status barrier();
  /// Reports that this rank has made this progress with `chunk` of the operation.
  void done(Progress what, std::uint64_t chunk) {
    progress(local_rank_, what).store(chunks_ + chunk + 1, std::memory_order_release);
    doorbell().ring();
  }
  bool has_done(Progress what, int local_rank, std::uint64_t chunk) const {
    return progress(local_rank, what).load(std::memory_order_acquire) > chunks_ + chunk;
  }
  /// Waits until `local_rank`, or every rank, has made this progress with `chunk`.
  Status await(Progress what, int local_rank, std::uint64_t chunk) {
    return await_until(local_rank, [&](int peer) { return has_done(what, peer, chunk); });
  }
  Status await_all(Progress what, std::uint64_t chunk) {
    return await_each([&](int peer) { return has_done(what, peer, chunk); });
  }
  /// Number of chunks of all operations before this one; the same on all ranks.
  std::uint64_t chunks_before() const { return chunks_; }
  /// Ends an operation that had this number of chunks.
  void end_chunks(std::uint64_t chunks) {
    chunks_ += chunks;
    whole_at_ = 0;
  }

  // ---- staging ----

  /// The offset of the next whole input in every rank's staging buffer. A rank may write there
  /// before it knows the progress of its peers, and without a barrier at the end:
  ///  - Peers may still read the input of the last operation. That input lies elsewhere: two inputs
  ///    of kMostWhole never overlap before the end of the buffer is reached.
  ///  - No peer reads the input of the operation before the last one: each rank left that operation
  ///    before it announced the last one.
  ///  - Peers may still read chunks of the last operation. Chunks never lie in the first kMostWhole
  ///    bytes, where the first whole input after chunks goes.
  /// Chunks are written only after all ranks have announced their operation and so have left every
  /// operation before it.
  std::size_t next_whole(std::size_t bytes) {
    const std::size_t at = whole_at_ + bytes > kStaging ? 0 : whole_at_;
    whole_at_ = at + (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
    return at;
  }
  /// The offset of the input after the next whole input, if it has this number of bytes.
  std::size_t peek_whole(std::size_t bytes) const {
    return whole_at_ + bytes > kStaging ? 0 : whole_at_;
  }
  std::byte* staging(int local_rank) const {
    return base_ + staging_at(size_) + of(local_rank) * kStaging;
  }
  std::byte* chunks(int local_rank) const { return staging(local_rank) + kMostWhole; }
  /// For alltoallv: the blocks in the input of `local_rank`, by receiving rank. receives() are the
  /// blocks in its output, by sending rank.
  Block* sends(int local_rank) const {
    return reinterpret_cast<Block*>(base_ + tables_at(size_)) + 2 * of(local_rank) * of(size_);
  }
  Block* receives(int local_rank) const { return sends(local_rank) + size_; }

  // ---- waiting ----

  /// Waits until done(local_rank). A long wait also reports the other ranks that are not done as
  /// late.
  template <class Done>
  Status await_until(int local_rank, Done&& done) {
    return await_until(local_rank, done, [&](int peer) { return !done(peer); });
  }
  /// As above; a rank is reported as late if late(local_rank) is true.
  template <class Done, class Late>
  Status await_until(int local_rank, Done&& done, Late&& late) {
    if (soon<Atomics>([&] { return done(local_rank); }, waiting_->policy)) return {};
    return await_long([&] { return done(local_rank); }, late);
  }
  /// Waits until done(local_rank) for every peer.
  template <class Done>
  Status await_each(Done&& done);
  /// Waits a short time for the report of a failure. Returns its reason, or success if none
  /// arrives.
  Status await_failure();
  /// Whether a wait of this operation took longer than a few checks.
  bool waited() const { return waited_; }
  /// Sets Waiter::progress for every wait until it is set again.
  void set_progress(const std::function<Status()>& progress) {
    waiter_.progress = background_.progress = progress;
  }
  /// Makes a rank that sleeps check the abort flag. Any thread may call.
  void wake() { doorbell().wake(); }
  /// "allreduce #12 (count 1024, fp32, sum)".
  std::string call_text() const { return to_string(*call_); }

 private:
  using Slot = BasicSlot<Atomics>;
  using ControlBlock = BasicControlBlock<Atomics>;
  using Doorbell = BasicDoorbell<Atomics>;
  using Waiter = BasicWaiter<Atomics>;

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
  /// Whether the rank has announced this operation, with the same call or another: its slot no
  /// longer has the value of two operations ago, on which the ranks agreed.
  bool announced(int local_rank) const {
    const std::uint64_t there = word(local_rank);
    return there != before_ && there != Slot::kWithdrawn;
  }
  Status mismatch();
  Status await_long(const std::function<bool()>& done, const std::function<bool(int)>& late);

  const HostMemory& memory_;
  std::byte* base_;
  int local_rank_;
  int size_;
  Waiter waiter_;
  Waiter background_;
  const Waiter* waiting_ = &waiter_;  // the waiter of this operation
  const Envelope* call_ = nullptr;
  std::uint64_t number_ = 0;
  std::array<std::uint64_t, 2> keys_{};  // keys of this operation and the last one, by slot
  std::uint64_t before_ = 0;             // value of this slot two operations ago
  std::uint64_t chunks_ = 0;
  std::uint64_t barriers_ = 0;
  std::size_t whole_at_ = 0;
  bool waited_ = false;
};
using Region = BasicRegion<>;
static_assert(sizeof(Doorbell) <= kApart);

template <class Atomics>
template <class Look>
Status BasicRegion<Atomics>::await_announced(Look&& look) {
  bool all = true;  // Often all ranks have announced: loads all their lines at once.
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
    HCCL_RETURN_IF_ERROR(await_until(peer, here, late));
    if (word(peer) != key()) return mismatch();
  }
  return {};
}

template <class Atomics>
template <class Done>
Status BasicRegion<Atomics>::await_each(Done&& done) {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == local_rank_) continue;
    HCCL_RETURN_IF_ERROR(await_until(peer, done));
  }
  return {};
}

}  // namespace hccl::local
