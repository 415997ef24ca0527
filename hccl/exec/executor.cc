#include "hccl/exec/executor.h"

#include <algorithm>
#include <functional>
#include <set>

#include "hccl/base/cache_hints.h"
#include "hccl/exec/chunk_layout.h"
#include "hccl/exec/direct_v.h"
#include "hccl/exec/lane.h"
#include "hccl/kernels/folding.h"

namespace hccl::exec {

namespace {

// How a vector is cut into slices, and how the slices are spread over lanes.
struct Cut {
  std::size_t message;  // the most bytes of a message that is folded
  std::size_t folded;   // bytes of a lane's received messages that wait to be folded
  std::size_t lanes;
  std::uint64_t slices;
};

// Received messages that wait to be folded, and the slots of a slice, must fit into the lane's
// staging memory on every rank. All ranks compute the same cut.
Cut cut_for(const Call& call, const schedule::Choice& choice, const RankSchedule& rank_schedule,
            int ranks, std::size_t staging_bytes) {
  const std::uint64_t bytes =
      call.count * size_of(call.type) * static_cast<std::uint64_t>(blocks_of(call.op, ranks));
  const auto lanes = static_cast<std::uint64_t>(std::max(1, choice.lanes));
  Cut cut;
  cut.message = Flow::message_within(staging_bytes / 2, rank_schedule.most_reducing * lanes);
  cut.folded = rank_schedule.most_reducing * Flow::kWindow * cut.message;
  const std::uint64_t for_slots =
      staging_bytes / lanes - std::min(staging_bytes / lanes, cut.folded);
  const std::uint64_t per_lane = std::max<std::uint64_t>(for_slots, 4096);
  const std::uint64_t slot_bytes =
      bytes / static_cast<std::uint64_t>(std::max(1, rank_schedule.schedule.chunks)) *
      static_cast<std::uint64_t>(rank_schedule.most_slots);
  cut.slices = std::max(lanes, (slot_bytes + per_lane - 1) / per_lane);
  if (choice.slice != 0) {
    cut.slices = std::max<std::uint64_t>(cut.slices, (bytes + choice.slice - 1) / choice.slice);
  }
  cut.slices = (cut.slices + lanes - 1) / lanes * lanes;  // the same number on each lane
  cut.slices = std::clamp<std::uint64_t>(cut.slices, 1, std::max<std::uint64_t>(1, call.count));
  cut.lanes = std::min<std::uint64_t>(lanes, cut.slices);
  return cut;
}

}  // namespace

Executor::Executor(transport::Mesh& mesh, std::size_t staging_bytes, std::vector<int> order)
    : mesh_(mesh), staging_bytes_(staging_bytes), order_(std::move(order)), batch_(mesh) {}

Executor::~Executor() = default;

const RankSchedule& Executor::schedule_for(const schedule::Algorithm& algorithm, int root,
                                           int depth, int hosts) {
  const auto key = std::make_tuple(static_cast<const void*>(&algorithm), root, depth, hosts);
  if (const auto at = schedules_.find(key); at != schedules_.end()) return at->second;
  RankSchedule rank_schedule =
      make_rank_schedule(algorithm, {mesh_.rank(), mesh_.size(), root, depth, hosts}, order_);
  open_links(mesh_, rank_schedule);
  return schedules_.emplace(key, std::move(rank_schedule)).first->second;
}

std::byte* Executor::scratch(std::size_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_.reset();
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

Status Executor::drive(std::span<Activity* const> activities,
                       const std::function<WaitingCall()>& call, const Waiter& waiter) {
  Status failure;
  const auto describe = [&] {
    WaitingCall pending = call();
    std::set<int> late;
    for (const Activity* each : activities) each->late(late);
    pending.late.assign(late.begin(), late.end());
    return pending;
  };
  const auto advance = [&] {
    bool done = true;
    for (Activity* each : activities) {
      if (each->done()) continue;
      failure = each->advance();
      if (!failure.ok()) return true;
      done = done && each->done();
    }
    return done;
  };
  // Sends start before the links are polled.
  if (advance()) return failure;
  const auto ready = [&] {
    // Repeat until nothing moves. The waiter may sleep after this check, and data that the mesh
    // already holds does not end the sleep. The waiter may also check once more before it returns,
    // so no activity may advance after a failure.
    for (bool moved = true; failure.ok() && moved;) {
      moved = mesh_.progress();
      if (advance()) return true;
    }
    return !failure.ok();
  };
  HCCL_RETURN_IF_ERROR(waiter.wait(ready, describe, mesh_.sleeper()));
  return failure;
}

Status Executor::drive_lanes(std::size_t lanes, const Envelope& mine, const Waiter& waiter) {
  active_.clear();
  for (std::size_t i = 0; i < lanes; ++i) active_.push_back(lanes_[i].get());
  return drive(
      active_, [&mine] { return WaitingCall{mine.sequence, to_string(mine), {}}; }, waiter);
}

const schedule::Schedule& Executor::barrier_steps() {
  return schedule_for(*schedule::find(Op::kBarrier, "dissemination"), 0, 1).schedule;
}

Status Executor::run_agreement(std::uint32_t lane, const Envelope& mine, const Waiter& waiter) {
  const schedule::Schedule& steps = barrier_steps();
  if (lanes_.empty()) lanes_.push_back(std::make_unique<Lane>(mesh_));
  const Call nothing;
  lanes_[0]->begin(lane, nothing, mine);
  lanes_[0]->add(steps, ChunkLayout(nothing, mesh_.rank(), mesh_.size(), 0, false, 0, 0), nullptr);
  return drive_lanes(1, mine, waiter);
}

Status Executor::end(Status status) {
  if (!status.ok()) {
    // Requests may still use the caller's memory, so abort the requests.
    mesh_.abort(status);
    mesh_.progress();
  }
  return status;
}

Status Executor::run(const Call& call, const schedule::Choice& choice, std::uint64_t sequence,
                     const Waiter& waiter) {
  HCCL_RETURN_IF_ERROR(end(run_lanes(call, choice, sequence, waiter)));
  const kernels::Folding fold = kernels::Folding::of(call, mesh_.size());
  if (fold.finish.nothing() ||
      schedule_for(*choice.algorithm, call.root, choice.depth, choice.hosts).folds_at_once) {
    return {};
  }
  if (call.op != Op::kReduce || call.root == mesh_.rank()) {
    fold.finish_in_place(static_cast<std::byte*>(call.out), call.count);
  }
  return {};
}

Status Executor::run_lanes(const Call& call, const schedule::Choice& choice, std::uint64_t sequence,
                           const Waiter& waiter) {
  const RankSchedule& rank_schedule =
      schedule_for(*choice.algorithm, call.root, choice.depth, choice.hosts);
  const schedule::Schedule& steps = rank_schedule.schedule;
  const Cut cut = cut_for(call, choice, rank_schedule, mesh_.size(), staging_bytes_);
  const std::size_t lanes = cut.lanes;
  const std::uint32_t algorithm = fingerprint(
      choice.algorithm->name, {static_cast<std::uint64_t>(choice.depth),
                               static_cast<std::uint64_t>(choice.hosts), lanes, cut.slices});
  const Envelope mine = envelope(call, sequence, algorithm);
  if (call.count == 0 && call.op != Op::kBarrier) return run_agreement(0, mine, waiter);

  const bool agree = rooted(call.op) && mesh_.size() > 1;
  while (lanes_.size() < lanes + (agree ? 1 : 0)) lanes_.push_back(std::make_unique<Lane>(mesh_));
  const auto layout = [&](std::uint64_t slice) {
    const std::uint64_t first = call.count * slice / cut.slices;
    return ChunkLayout(call, mesh_.rank(), mesh_.size(), steps.chunks, rank_schedule.most_slots > 0,
                       first, call.count * (slice + 1) / cut.slices - first);
  };
  const auto slots = static_cast<std::size_t>(steps.scratch_slots);
  std::size_t stride = 0;
  for (std::uint64_t s = 0; s < cut.slices; ++s) {
    stride =
        std::max(stride, (layout(s).longest() * slots + kCacheLine - 1) / kCacheLine * kCacheLine);
  }
  std::byte* const staging = scratch((stride + cut.folded) * lanes);
  const kernels::Folding fold = kernels::Folding::of(call, mesh_.size());
  for (std::size_t i = 0; i < lanes; ++i) {
    lanes_[i]->begin(static_cast<std::uint32_t>(i), call, mine,
                     rank_schedule.folds_at_once ? fold : fold.partial(), cut.message,
                     staging + stride * lanes + cut.folded * i);
  }
  for (std::uint64_t s = 0; s < cut.slices; ++s) {
    lanes_[s % lanes]->add(steps, layout(s), staging + stride * (s % lanes));
  }
  if (agree) {
    // In this schedule data flows in one direction only. Without the barrier the first senders
    // would never notice a mismatch.
    const Call nothing;
    lanes_[lanes]->begin(kAgreementLane, nothing, mine);
    lanes_[lanes]->add(barrier_steps(),
                       ChunkLayout(nothing, mesh_.rank(), mesh_.size(), 0, false, 0, 0), nullptr);
  }
  return drive_lanes(lanes + (agree ? 1 : 0), mine, waiter);
}

Status Executor::run_blocks(const Call& call, std::uint64_t sequence, const Waiter& waiter) {
  const std::size_t piece = DirectV::piece_bytes(staging_bytes_, mesh_.size());
  const Envelope mine = envelope(call, sequence, fingerprint("direct", {piece}));
  if (!direct_) direct_ = std::make_unique<DirectV>(mesh_);
  std::byte* const staging = scratch(DirectV::staging_wanted(call, piece, mesh_.size()));
  direct_->begin(call, mine, staging, piece, barrier_steps());
  active_.assign(1, direct_.get());
  return end(
      drive(active_, [&mine] { return WaitingCall{mine.sequence, to_string(mine), {}}; }, waiter));
}

Status Executor::exchange(std::span<const Transfer> transfers, const Waiter& waiter) {
  if (transfers.empty()) return {};
  batch_.begin(transfers);
  active_.assign(1, &batch_);
  const Transfer& first = transfers.front();
  const bool alone = transfers.size() == 1;
  const auto describe = [&] {
    const std::string words =
        hccl::to_string(envelope(first)) + " with rank " + std::to_string(first.peer);
    if (alone) return WaitingCall{first.sequence, words, {}};
    return WaitingCall{first.sequence,
                       "a batch of " + std::to_string(transfers.size()) +
                           " sends and receives, the first " + words + ",",
                       {}};
  };
  Status status = drive(active_, describe, waiter);
  // A single transfer that timed out has one culprit: the peer.
  if (alone && status.code() == Code::kTimeout) {
    status = Status(Code::kTimeout, status.message(), first.peer);
  }
  return end(std::move(status));
}

}  // namespace hccl::exec
