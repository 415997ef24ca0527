// The memory that the ranks of one host share: a slot for each rank, in which it announces what it
// calls; counters of its progress; and a staging buffer for data that other ranks cannot reach
// where it lies. The region knows no operation: the algorithms (algorithm.h) do.
//
//   [ doorbell | a control block for each rank | block tables | page | a staging buffer each ]
//
// Every word has one writer, the rank that it belongs to, and cache lines are not shared between
// writers. The memory begins as zeroes. What a peer wrote is checked before it is used as an
// address or a length. A model checker runs the same code with atomics of its own.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
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

/// The line in which a rank announces an operation. `word` is stored last; the payload begins the
/// line, so that a vector load of the payload stays within the line.
template <class Atomics>
struct alignas(64) BasicSlot {
  static constexpr std::size_t kPayload = 56;
  std::array<std::byte, kPayload> payload{};
  /// call_key() of the call and the operation's number on this host.
  typename Atomics::template atomic<std::uint64_t> word{0};
  /// As the word: the announcement was taken back.
  static constexpr std::uint64_t kWithdrawn = 1;
};
using Slot = BasicSlot<StdAtomics>;
static_assert(sizeof(Slot) == 64);

/// What one rank has done, counted over all operations, so that no counter is ever reset.
enum class Progress : std::uint8_t {
  kStaged,  ///< chunks put into its staging buffer
  kFolded,  ///< chunks of which its slice is folded there
  kTaken,   ///< chunks taken from all staging buffers
};

/// Two lines: processors fetch lines in pairs.
inline constexpr std::size_t kApart = 128;

template <class Atomics>
struct alignas(kApart) BasicControlBlock {
  using Counter = typename Atomics::template atomic<std::uint64_t>;
  /// Two of each: a rank may be one operation ahead of another.
  std::array<BasicSlot<Atomics>, 2> slots;
  /// The calls behind the keys; read only where keys differ.
  alignas(kApart) std::array<Envelope, 2> calls;
  alignas(kApart) std::array<Counter, 3> progress{};
  alignas(kApart) Counter barriers{0};  ///< reached so far
  /// Number of the last operation that it has left, of those that use peers' buffers.
  Counter left{0};
};

/// One rank's view of the region. Used by one thread at a time, but for lost() and wake().
/// Allocates nothing in an operation.
template <class Atomics = StdAtomics>
class BasicRegion {
 public:
  /// About twice a second-level cache: of a much smaller buffer, each line that is written is
  /// still held by a reader's cache.
  static constexpr std::size_t kStaging = std::size_t{2} << 20;
  /// The longest input that next_whole() has room for.
  static constexpr std::size_t kMostWhole = std::size_t{512} << 10;
  /// The part of a staging buffer that chunks pass through.
  static constexpr std::size_t kChunks = kStaging - kMostWhole;

  static std::size_t bytes(int ranks) { return staging_at(ranks) + of(ranks) * kStaging; }

  /// `memory` outlives it. `waiter` bounds every wait: its timeout is the time for all ranks to
  /// make their next move. `background`: how calls wait that run while their caller computes.
  BasicRegion(const HostMemory& memory, BasicWaiter<Atomics> waiter, WaitPolicy background);
  /// Maps the control blocks and staging buffers of all ranks, so that no operation meets pages
  /// that it is the first to touch. To be called between two operations of all ranks, once every
  /// rank has its Region.
  void map_all();

  int place() const { return place_; }
  int size() const { return size_; }
  int rank_of(int place) const { return memory_.ranks[static_cast<std::size_t>(place)]; }
  const HostMemory& memory() const { return memory_; }
  const BasicAbortFlag<Atomics>* abort() const { return waiter_.abort; }
  bool shared_cores() const { return waiter_.policy.shared_cores; }

  // ---- announcing an operation ----

  /// The next operation of these ranks begins. `call` is valid until it ends.
  void begin(const Envelope& call, bool background) {
    ++number_;
    call_ = &call;
    waiting_ = background ? &background_ : &waiter_;
    waited_ = false;
    before_ = std::exchange(keys_[number_ & 1], call_key(call, number_));
  }
  /// Of the operations that begin from now on; see Waiter::timeout.
  void set_timeout(std::chrono::nanoseconds timeout) {
    waiter_.timeout = background_.timeout = timeout;
  }
  std::uint64_t number() const { return number_; }
  /// Room for what travels with the announcement; written before announce().
  std::byte* payload() { return slot(place_).payload.data(); }
  const std::byte* payload(int place) const { return slot(place).payload.data(); }
  void announce() {
    control(place_).calls[number_ & 1] = *call_;
    slot(place_).word.store(key(), std::memory_order_release);
    doorbell().ring();
  }
  /// Waits until all ranks have announced this call. Then every rank has left the operation before
  /// the last one. look(place) runs with every look at a peer's slot: a hint, see slots.cc. kPara:
  /// a rank has announced another call.
  template <class Look>
  Status await_announced(Look&& look);
  Status await_announced() {
    return await_announced([](int) {});
  }
  /// Takes the announcement back: a rank that comes later waits, and hears why from elsewhere.
  void withdraw() { slot(place_).word.store(Slot::kWithdrawn, std::memory_order_release); }
  /// Of operations that use peers' buffers: this rank does not any more.
  void leave() {
    control(place_).left.store(number_, std::memory_order_release);
    doorbell().ring();
  }
  /// After a failure: peers may be in the middle of reading or writing this rank's buffers. Waits
  /// until every rank that has announced this call has left it, for as long as a long copy takes at
  /// most: a rank may be stopped.
  void await_left();
  /// The rank, if it is one of these, is dead: it has left every operation. Any thread.
  void lost(int rank);

  // ---- progress ----

  /// A barrier of all ranks.
  Status barrier();
  /// This rank has done so with `chunk` of the operation.
  void done(Progress what, std::uint64_t chunk) {
    progress(place_, what).store(chunks_ + chunk + 1, std::memory_order_release);
    doorbell().ring();
  }
  bool has_done(Progress what, int place, std::uint64_t chunk) const {
    return progress(place, what).load(std::memory_order_acquire) > chunks_ + chunk;
  }
  /// Waits until the rank at `place`, or every rank, has done so with `chunk`.
  Status await(Progress what, int place, std::uint64_t chunk) {
    return await_until(place, [&](int peer) { return has_done(what, peer, chunk); });
  }
  Status await_all(Progress what, std::uint64_t chunk) {
    return await_each([&](int peer) { return has_done(what, peer, chunk); });
  }
  /// Chunks of all operations before this one; the same on all ranks.
  std::uint64_t chunks_before() const { return chunks_; }
  /// Ends an operation of so many chunks.
  void end_chunks(std::uint64_t chunks) {
    chunks_ += chunks;
    whole_at_ = 0;
  }

  // ---- staging ----

  /// Where the next whole input lies in every rank's staging buffer. A rank may write there before
  /// it knows where its peers are, and needs no barrier at the end, because:
  ///  - peers may still read the input of the last operation, which lies elsewhere: two inputs
  ///    of kMostWhole never overlap before the buffer's end is reached;
  ///  - no peer reads the input of the operation before that one: all ranks announced the last
  ///    operation when they had left it;
  ///  - peers may still read chunks of the last operation, which never lie in the first
  ///    kMostWhole bytes, where the first whole input after chunks goes.
  /// Chunks are written only after all ranks have announced their operation, and so have left
  /// every one before it.
  std::size_t next_whole(std::size_t bytes) {
    const std::size_t at = whole_at_ + bytes > kStaging ? 0 : whole_at_;
    whole_at_ = at + (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
    return at;
  }
  /// Where the one after it would lie, of as many bytes.
  std::size_t peek_whole(std::size_t bytes) const {
    return whole_at_ + bytes > kStaging ? 0 : whole_at_;
  }
  std::byte* staging(int place) const { return base_ + staging_at(size_) + of(place) * kStaging; }
  std::byte* chunks(int place) const { return staging(place) + kMostWhole; }
  /// Of alltoallv: the blocks in the input of `place`, by the rank they are for; and in its output,
  /// by the rank they come from.
  Block* sends(int place) const {
    return reinterpret_cast<Block*>(base_ + tables_at(size_)) + 2 * of(place) * of(size_);
  }
  Block* receives(int place) const { return sends(place) + size_; }

  // ---- waiting ----

  /// Waits until done(place); the other ranks that are not done either are named if it takes long.
  template <class Done>
  Status await_until(int place, Done&& done) {
    return await_until(place, done, [&](int peer) { return !done(peer); });
  }
  /// late(place): whether this rank is to be named.
  template <class Done, class Late>
  Status await_until(int place, Done&& done, Late&& late) {
    if (soon<Atomics>([&] { return done(place); }, waiting_->policy)) return {};
    return await_long([&] { return done(place); }, late);
  }
  /// Waits until done(place) for every peer.
  template <class Done>
  Status await_each(Done&& done);
  /// Gives a failure that is about to be told a moment to arrive: its reason, or success.
  Status await_failure();
  /// Whether this operation has had to wait for longer than a few looks.
  bool waited() const { return waited_; }
  /// As Waiter::progress, of every wait until this is set anew.
  void set_progress(const std::function<Status()>& progress) {
    waiter_.progress = background_.progress = progress;
  }
  /// Lets a rank that sleeps look at the abort flag. Any thread.
  void wake() { doorbell().wake(); }
  /// "allreduce #12 (count 1024, fp32, sum)".
  std::string call_text() const { return words(*call_); }

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
  ControlBlock& control(int place) const {
    return *reinterpret_cast<ControlBlock*>(base_ + kApart + of(place) * sizeof(ControlBlock));
  }
  Slot& slot(int place) const { return control(place).slots[number_ & 1]; }
  typename ControlBlock::Counter& progress(int place, Progress what) const {
    return control(place).progress[static_cast<std::size_t>(what)];
  }
  std::uint64_t key() const { return keys_[number_ & 1]; }
  std::uint64_t word(int place) const { return slot(place).word.load(std::memory_order_acquire); }
  /// Whether the rank has announced this operation, be it by another call: its slot has not what
  /// it had two operations ago, when the ranks agreed.
  bool announced(int place) const {
    const std::uint64_t there = word(place);
    return there != before_ && there != Slot::kWithdrawn;
  }
  Status mismatch();
  Status await_long(const std::function<bool()>& done, const std::function<bool(int)>& late);

  const HostMemory& memory_;
  std::byte* base_;
  int place_;
  int size_;
  Waiter waiter_;
  Waiter background_;
  const Waiter* waiting_ = &waiter_;  // of this operation
  const Envelope* call_ = nullptr;
  std::uint64_t number_ = 0;
  std::array<std::uint64_t, 2> keys_{};  // of this operation and the last one, by the slot
  std::uint64_t before_ = 0;             // what this slot had before
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
  bool all = true;  // Often every rank is there: their lines are asked for together.
  for (int peer = 0; peer < size_; ++peer) all &= word(peer) == key();
  if (all) return {};
  // A rank whose announcement is withdrawn has come; the wait ends with the reason.
  const auto late = [&](int peer) { return !announced(peer) && word(peer) != Slot::kWithdrawn; };
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == place_) continue;
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
    if (peer == place_) continue;
    HCCL_RETURN_IF_ERROR(await_until(peer, done));
  }
  return {};
}

}  // namespace hccl::local
