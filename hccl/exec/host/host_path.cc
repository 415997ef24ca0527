#include "hccl/exec/host/host_path.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "hccl/base/pages.h"
#include "hccl/exec/host/host_path-inl.h"

namespace hccl::exec::host {

HostPath::HostPath(const HostMemory& memory, std::shared_ptr<const memory::Heap> heap,
                   const Ways& ways, const kernels::StoreRule& stores, Watch watch)
    : memory_(memory),
      heap_(std::move(heap)),
      area_(memory.area, static_cast<int>(memory.ranks.size())),
      ways_(ways),
      stores_(stores),
      watch_(std::move(watch)),
      place_(memory.place),
      size_(static_cast<int>(memory.ranks.size())),
      one_process_(std::all_of(memory.peers.begin(), memory.peers.end(),
                               [](const auto& peer) { return peer.same_process; })),
      in_rank_order_(size_),
      by_core_(in_rank_order_),
      inputs_(memory.ranks.size()),
      ins_(memory.ranks.size()),
      outs_(memory.ranks.size()),
      touched_(memory.ranks.size()) {
  set_core_groups({});
  area_.bell().join();
  fault_in(&area_.words(place_), sizeof(RankWords));
  fault_in(area_.ring(place_), Area::kRing);
}

// Each rank has faulted in what is its own, on the memory next to it, before it comes here.
Status HostPath::map_rings() {
  const Call barrier;
  HCCL_RETURN_IF_ERROR(run(barrier, envelope(barrier, 0, 0)));
  for (int place = 0; place < size_; ++place) {
    if (place == place_) continue;
    fault_in(&area_.words(place), sizeof(RankWords));
    fault_in(area_.ring(place), Area::kRing);
  }
  return {};
}

void HostPath::set_core_groups(const std::vector<std::vector<int>>& groups) {
  by_core_ = groups.empty() ? in_rank_order_ : Chains(groups);
  cores_ = Cores();
  posted_most_ = kMostInLine;
  if (watch_.policy.shared_cores && groups.size() > 1) {
    const Cores bound(groups, place_);
    // In a crowd a core's posts do not fit.
    if (const std::size_t most = Post::kMost / bound.most(); most >= kMostInLine) {
      cores_ = bound;
      posted_most_ = most;
    }
  }
  others_.clear();
  for (int place = 0; place < size_; ++place) {
    if (place != place_) others_.push_back(place);
  }
  look_for_mates();
}

Run HostPath::enter(const Call& call, const Envelope& envelope) {
  ++number_;
  waited_ = false;
  Run run(call, place_, size_, envelope);
  const bool blocks_differ = !call.in_blocks.empty() || !call.out_blocks.empty();
  run.bytes = blocks_differ ? Run::kDiffer : run.exchange.input() * run.element;
  if (run.bytes <= posted_most_) {
    way_ = Way::kPost;
    post(run, call.in, run.exchange.gives(place_) ? run.bytes : 0);
  } else if (run.bytes <= ways_.ring_most) {
    way_ = Way::kRing;
    begin_ring_trial(run);
    run.in_ring = put_in_ring(run);
    post(run, nullptr, 0);
    if (!watch_.policy.shared_cores) hand_over_ring(run);
  } else {
    way_ = Way::kStage;  // where nothing else pays: finish() knows more
    const Notice mine = notice(run);
    if (call.op == Op::kAllToAllV) {
      std::copy(call.in_blocks.begin(), call.in_blocks.end(), area_.gives(place_));
      std::copy(call.out_blocks.begin(), call.out_blocks.end(), area_.takes(place_));
    }
    run.store = stores_.store(run.touched());
    post(run, &mine, sizeof mine);
  }
  return run;
}

Status HostPath::finish(const Run& run) {
  if (way_ == Way::kPost) return in_post(run);
  if (way_ == Way::kRing) {
    if (!watch_.policy.shared_cores) ask_before_meeting(run);
    HCCL_RETURN_IF_ERROR(meet(run));
    from_ring(run, run.in_ring);
    end_ring_trial(run, run.bytes);
    if (!watch_.policy.shared_cores) ask_after_run(run);
    return {};
  }
  // From here on others may reach into this rank's buffers.
  const Status status = with_notices(run);
  area_.words(place_).left.store(number_, std::memory_order_release);
  area_.bell().ring();
  if (!status.ok()) retreat(status);
  return status;
}

Status HostPath::with_notices(const Run& run) {
  HCCL_RETURN_IF_ERROR(meet(run));
  HCCL_RETURN_IF_ERROR(check_pairs(run));
  way_ = choose(run);
  if (way_ == Way::kStage && run.bytes <= ways_.whole_most) {
    way_ = Way::kRing;
    return through_ring(run);
  }
  if (way_ == Way::kStage) return stage(run);
  if (way_ == Way::kCma) return cma(run);
  if (way_ == Way::kChain) return chain(run);
  resolve(run);
  if (run.call.op == Op::kReduce) return reduce_slices(run);
  if (run.call.op != Op::kAllReduce && way_ == Way::kPush) {
    return run.exchange.from_root() ? broadcast_slices(run) : push_blocks(run);
  }
  if (run.call.op != Op::kAllReduce) return pull(run);
  return way_ == Way::kPull ? pull_slices(run) : push_slices(run);
}

// The caller will do with its buffers what it likes. Who comes later finds no post here, and waits
// for the reason; where calls differ the post stays, for all to see. Who is here already is given
// the time of a long copy to find out that this operation has failed. Who is dead, or never came,
// is not waited for any longer.
void HostPath::retreat(const Status& why) {
  if (why.code() != Code::kPara) withdraw_post();
  const auto all_left = [&] {
    for (int place = 0; place < size_; ++place) {
      if (area_.words(place).left.load(std::memory_order_acquire) < number_) return false;
    }
    return true;
  };
  static_cast<void>(
      hccl::wait(all_left, Deadline::after(kLongestCopy), nullptr, area_.bell(), watch_.policy));
}

// ---- where buffers lie ----

Notice HostPath::notice(const Run& run) const {
  Notice notice;
  notice.in = reinterpret_cast<std::uintptr_t>(run.call.in);
  notice.out = reinterpret_cast<std::uintptr_t>(run.call.out);
  notice.longest = run.exchange.longest();
  notice.in_bytes = run.input_extent() * run.element;
  notice.out_bytes = run.output_extent() * run.element;
  if (heap_ != nullptr) {
    if (const auto at = heap_->locate(run.call.in, notice.in_bytes)) notice.in_heap = *at;
    if (const auto at = heap_->locate(run.call.out, notice.out_bytes)) notice.out_heap = *at;
  }
  return notice;
}

Notice HostPath::notice_of(int place) const {
  Notice notice;
  std::memcpy(&notice, post_of(place).line.payload.data(), sizeof notice);
  return notice;
}

bool HostPath::reachable(int place, std::uint64_t heap_at, std::uint64_t bytes) const {
  const auto& peer = memory_.peers[static_cast<std::size_t>(place)];
  return one_process_ || (heap_at != Notice::kPrivate && heap_at <= peer.heap_bytes &&
                          bytes <= peer.heap_bytes - heap_at);
}

// The same on all ranks: a function of what all of them have posted.
Way HostPath::choose(const Run& run) {
  const Exchange& exchange = run.exchange;
  bool ins = true;
  bool outs = true;
  std::uint64_t largest = 0;
  for (int place = 0; place < size_; ++place) {
    const Notice notice = notice_of(place);
    largest = std::max({largest, notice.in_bytes, notice.out_bytes});
    if (exchange.gives(place)) ins = ins && reachable(place, notice.in_heap, notice.in_bytes);
    if (exchange.takes(place)) outs = outs && reachable(place, notice.out_heap, notice.out_bytes);
  }
  const bool writes_others = run.call.op == Op::kAllReduce || run.call.op == Op::kReduce;
  if (!ins || (writes_others && !outs)) {
    if (takes_cma(run, largest)) return Way::kCma;
    return chains(run) ? Way::kChain : Way::kStage;
  }
  const bool moves = !exchange.folds() && run.call.op != Op::kScatter;
  if (moves && outs) return Way::kPush;
  if (run.call.op != Op::kAllReduce) return Way::kPull;
  if (run.call.count * run.element <= ways_.stage_most) return Way::kStage;
  return run.call.count * run.element <= ways_.pull_most ? Way::kPull : Way::kPush;
}

// In alltoallv each pair of ranks has to agree. All ranks look at all pairs, so that all of them
// fail, and none touches another's buffer before.
Status HostPath::check_pairs(const Run& run) const {
  if (run.call.op != Op::kAllToAllV) return {};
  for (int from = 0; from < size_; ++from) {
    const std::uint64_t most = notice_of(from).in_bytes / run.element;
    for (int to = 0; to < size_; ++to) {
      const Block given = area_.gives(from)[to];
      const Block expected = area_.takes(to)[from];
      const std::uint64_t room = notice_of(to).out_bytes / run.element;
      if (given.count <= most && given.at <= most - given.count && given.count == expected.count &&
          expected.count <= room && expected.at <= room - expected.count) {
        continue;
      }
      return Status(Code::kPara, "EI0005: the ranks' calls differ: in " + words(run.mine) +
                                     " rank " + std::to_string(rank_of(from)) + " sends " +
                                     std::to_string(given.count) + " elements to rank " +
                                     std::to_string(rank_of(to)) + ", which expects " +
                                     std::to_string(expected.count));
    }
  }
  return {};
}

}  // namespace hccl::exec::host
