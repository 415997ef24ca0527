// Collectives between the ranks of one host, by load and store: no messages. Whatever the way
// (ways.h), contributions are folded in rank order, so the bits of a result depend on the inputs
// alone; but for Way::kChain, which may have an order of its own (chains.h).
//
// An operation begins with a post of every rank. Each rank waits for all of them: it then knows
// that everybody is in the same call, that everybody has left the call before the last one, and
// where the others' buffers are.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hccl/base/deadline.h"
#include "hccl/base/wait.h"
#include "hccl/base/call.h"
#include "hccl/exec/host/area.h"
#include "hccl/exec/host/chains.h"
#include "hccl/exec/host/cores.h"
#include "hccl/exec/host/ring_store.h"
#include "hccl/exec/host/run.h"
#include "hccl/exec/host/ways.h"
#include "hccl/kernels/store_rule.h"
#include "hccl/memory/heap.h"
#include "hccl/base/host_memory.h"

namespace hccl::exec::host {

/// What bounds the runs of one communicator.
struct Watch {
  std::chrono::nanoseconds timeout{0};  ///< for all ranks to make their next move; 0: for ever
  const AbortFlag* abort = nullptr;
  WaitPolicy policy;
  WaitPolicy beside;  ///< of calls that run beside the caller's computing
  /// Called while a run waits, about once a second and before a deadline passes, with the number
  /// and the words of its call and the ranks that have not come; may be empty.
  std::function<void(std::uint64_t sequence, const std::string& what,
                     const std::vector<int>& awaited)>
      stalled;
};

/// Belongs to one communicator, all of whose ranks are on one host; used by one thread at a time,
/// but for wake(). Allocates nothing in an operation.
class HostPath {
 public:
  static std::size_t area_bytes(int ranks) { return Area::bytes(ranks); }

  /// `memory` outlives it. `heap`: this process's device heap, or null. `stores` need not be alike
  /// on all ranks.
  HostPath(const HostMemory& memory, std::shared_ptr<const memory::Heap> heap,
           const Ways& ways, const kernels::StoreRule& stores, Watch watch);

  /// Runs a collective to its end; `envelope` is the call's. kPara: the ranks disagree; kTimeout;
  /// or the reason of the abort. After a failure it is of no more use.
  Status run(const Call& call, const Envelope& envelope) {
    const Run run = enter(call, envelope);
    return finish(run);
  }
  /// The same in two steps, for who has something to do while the others learn that this rank has
  /// come. `call` outlives the second step.
  Run enter(const Call& call, const Envelope& envelope);
  Status finish(const Run& run);

  /// What a run does while it waits, until this is set anew: it must not block, and its failure
  /// ends the run. Waits then nap no longer than a millisecond. Empty: nothing.
  void set_meanwhile(std::function<Status()> meanwhile) { meanwhile_ = std::move(meanwhile); }

  /// Maps the others' posts and rings, so that no operation meets pages that it is the first to
  /// touch. Collective, once all ranks have their paths.
  Status map_rings();
  /// Finds out whether the ranks may copy from and to each other's memory by way of the kernel:
  /// before that, and where they may not, no run takes Way::kCma. Collective: all ranks call it
  /// between the same runs, and are told the same. For ranks of one process it is false: they
  /// reach everything anyway.
  Result<bool> attach();
  /// As attach() told before, of these ranks or more of the same host.
  void set_attached(bool attached) { attached_ = attached; }

  int ranks() const { return size_; }
  /// Bytes of an input up to which it travels with the post, whatever the ways.
  std::size_t posted_most() const { return posted_most_; }
  /// The way that the last run took.
  Way way() const { return way_; }
  /// Whether the run that has just ended took a few microseconds at most: its input was short and
  /// the others were there. Never where cores are shared: whoever gets the core keeps it for long.
  bool brief(const Run& run) const {
    return run.bytes <= kBrief && !waited_ && !watch_.policy.shared_cores;
  }
  const Ways& ways() const { return ways_; }
  /// For the runs from now on; all ranks set the same between the same runs.
  void set_ways(const Ways& ways) { ways_ = ways; }
  /// The places that share a core, to which they are bound, core by core: kChain folds in such an
  /// order, unless the call's envelope asks for kInRankOrder, and one rank of a core tells other
  /// cores of its posts. All places, once each; or nothing, for rank order. The same on all ranks,
  /// between the same runs.
  void set_core_groups(const std::vector<std::vector<int>>& groups);
  /// How data is stored into a ring from which others read it, until the other way is found to be
  /// faster; need not be alike on all ranks.
  void set_ring_store(kernels::Store store) { ring_store_.keep(store); }
  kernels::Store ring_store() const { return ring_store_.kept(); }
  /// Lets a run that sleeps look at the abort flag. Any thread.
  void wake() { area_.bell().wake(); }

 private:
  static constexpr std::size_t kBrief = 1024;

  Status with_notices(const Run& run);
  void retreat(const Status& why);
  void post(const Run& run, const void* payload, std::size_t bytes);
  void withdraw_post();
  Status meet(const Run& run);
  Status meet_by_cores(const Run& run);
  Status differing(const Run& run);
  bool late(int place, std::uint64_t expected) const;
  void tell(const Run& run, bool alike);
  Post& post_of(int place) const { return area_.words(place).posts[number_ & 1]; }
  Post& told_by(int place) const;
  std::size_t asked_of_told(const Run& run, int place) const;
  bool core_gives(const Run& run, int place) const;
  const std::byte* input_of(const Run& run, int giver) const;
  Notice notice(const Run& run) const;
  Notice notice_of(int place) const;
  Way choose(const Run& run);
  bool reachable(int place, std::uint64_t heap_at, std::uint64_t bytes) const;
  std::byte* peer_bytes(int place, std::uint64_t address, std::uint64_t heap_at,
                        std::uint64_t bytes);

  Status in_post(const Run& run);
  std::size_t next_in_ring(std::size_t bytes) const;
  std::size_t put_in_ring(const Run& run);
  void hand_over_ring(const Run& run) const;
  bool asks_for_inputs(const Run& run) const;
  void ask_for_input(const Run& run, int giver) const;
  void ask_before_meeting(const Run& run) const;
  void ask_after_run(const Run& run) const;
  void ask_for_next(const Run& run) const;
  void from_ring(const Run& run, std::size_t at);
  bool folds_for_core(const Run& run) const;
  void fold_for_core(const Run& run, std::size_t at);
  Status through_ring(const Run& run);
  Status stage(const Run& run);
  bool tries_ring_store(const Run& run) const;
  void begin_ring_trial(const Run& run);
  void end_ring_trial(const Run& run, std::uint64_t bytes);
  template <class Work>
  void timed_at_rings(Work&& work);
  bool chains(const Run& run) const;
  std::size_t chain_chunk(const Run& run) const;
  std::uint64_t chain_lag(const Chains& chains) const;
  void take_turn(const Run& run, bool first, bool last, std::byte* slot, Block part);
  Status chain(const Run& run);
  bool takes_cma(const Run& run, std::uint64_t largest) const;
  Status cma(const Run& run);
  Status cma_moves(const Run& run);
  Status cma_broadcast(const Run& run);
  Status cma_folds(const Run& run);
  Status fetch(const Run& run, int place, std::uint64_t from, std::byte* to, std::size_t bytes);
  Status store(const Run& run, int place, std::uint64_t to, const std::byte* from,
               std::size_t bytes);
  template <class Copy>
  Status by_pieces(const Run& run, int place, std::size_t bytes, std::size_t piece, Copy&& copy);
  Status not_copied(const Run& run, int place, int error);
  Status pull(const Run& run);
  Status push_blocks(const Run& run);
  Status broadcast_slices(const Run& run);
  Status pull_slices(const Run& run);
  Status push_slices(const Run& run);
  Status reduce_slices(const Run& run);
  void resolve(const Run& run);
  Status check_pairs(const Run& run) const;

  template <class Put>
  Status give_blocks(const Run& run, Put&& put);
  template <class At>
  void take(const Run& run, std::uint64_t first, std::uint64_t length, At&& at);
  void fill(const Run& run, std::byte* slot, std::uint64_t first, std::uint64_t length,
            std::size_t stride);
  int rank_of(int place) const { return memory_.ranks[static_cast<std::size_t>(place)]; }
  template <class Done>
  Status await(const Run& run, int place, Done&& done) {
    return await(run, place, done, [&](int who) { return !done(who); });
  }
  template <class Done, class Late>
  Status await(const Run& run, int place, Done&& done, Late&& late);
  template <class Done, class Late>
  Status await_long(const Run& run, int place, Done&& done, Late&& late);
  template <class Await>
  Status each_other(Await&& await);
  template <class Await>
  Status each_other_sharing(Await&& await);
  bool shares_core(int place) const;
  void look_for_mates();
  Status all_at(const Run& run, std::atomic<std::uint64_t> RankWords::*counter,
                std::uint64_t value);
  Status gate(const Run& run);

  const HostMemory& memory_;
  std::shared_ptr<const memory::Heap> heap_;
  Area area_;
  Ways ways_;
  kernels::StoreRule stores_;
  Watch watch_;
  std::function<Status()> meanwhile_;
  int place_;
  int size_;
  Cores cores_;
  std::size_t posted_most_ = kMostInLine;  // bytes of an input that travels with the post
  int core_ = 0;                           // as in RankWords
  std::vector<int> others_;  // the other places; where cores are shared, those of this one first
  std::size_t mates_ = 0;    // how many these are
  bool look_elsewhere_ = false;  // at what is awaited, before this core is given away
  bool one_process_;
  bool attached_ = false;
  Way way_ = Way::kPost;
  bool waited_ = false;  // in the last run, and for longer than a few looks

  std::uint64_t number_ = 0;  // of the operation
  std::uint64_t chunks_ = 0;  // through the rings so far
  std::uint64_t gates_ = 0;
  std::size_t ring_at_ = 0;  // where in the rings the next whole input goes

  Chains in_rank_order_;
  Chains by_core_;
  RingStore ring_store_{Area::kRing};
  std::uint64_t ring_ticks_ = 0;                      // ticks of this run, if the store is on trial
  kernels::Store in_ring_ = kernels::Store::kCached;  // of this run

  std::vector<const std::byte*> inputs_;  // of a fold, by place
  std::vector<std::byte*> ins_;           // the peers' buffers as they lie here
  std::vector<std::byte*> outs_;
  std::vector<std::vector<bool>> touched_;  // blocks of each peer's heap that are faulted in
};

}  // namespace hccl::exec::host
