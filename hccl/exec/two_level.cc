#include "hccl/exec/two_level.h"

#include <algorithm>
#include <set>

#include "hccl/base/cache_hints.h"
#include "hccl/exec/chunk_layout.h"
#include "hccl/kernels/folding.h"
#include "hccl/local/blocks.h"
#include "hccl/select/remote_selector.h"

namespace hccl::exec {

namespace {

// A slice must be long enough to make its synchronizations cheap. There must be enough slices,
// because the network idles while the first slice is summed and while the ranks of a host exchange
// the last slice.
constexpr std::uint64_t kSliceBytes = std::uint64_t{2} << 20;
constexpr std::uint64_t kFewSlices = 8;
constexpr std::uint64_t kShortestSlice = std::uint64_t{256} << 10;
// Bytes of staging, for all lanes together, for received parts that wait to be folded.
constexpr std::size_t kFoldedBytes = std::size_t{2} << 20;

}  // namespace

TwoLevel::TwoLevel(transport::Mesh& mesh, LocalEngine& local, int hosts)
    : mesh_(mesh),
      local_(local),
      hosts_(hosts),
      places_(mesh.size() / hosts),
      host_(mesh.rank() / places_),
      place_(mesh.rank() % places_) {
  for (std::size_t i = 0; i < kLanes; ++i) lanes_.push_back(std::make_unique<Lane>(mesh));
}

Status TwoLevel::run(const Call& call, std::uint64_t sequence, const Waiter& waiter) {
  // Messages to other hosts advance while this rank waits for the ranks of its own host.
  local_.waits().set_progress([this] { return progress(); });
  Status status = run_slices(call, sequence, waiter);
  local_.waits().set_progress(nullptr);
  if (!status.ok()) {
    // Requests may still use the caller's memory, so abort the requests.
    mesh_.abort(status);
    mesh_.progress();
  }
  return status;
}

Status TwoLevel::run_slices(const Call& call, std::uint64_t sequence, const Waiter& waiter) {
  cut(call);
  chosen_ = &choose(longest_ * size_of(call.type), select::rounds(call));
  const RankSchedule& plan = *chosen_->plan;
  const Envelope mine = envelope(call, sequence,
                                 fingerprint(chosen_->choice.algorithm->name,
                                             {static_cast<std::uint64_t>(chosen_->choice.depth),
                                              static_cast<std::uint64_t>(hosts_), slices_}));

  // Between hosts all work is in place, because each host's sum lies in the output buffers of its
  // ranks.
  Call between = call;
  between.in = call.out;
  const kernels::Folding fold = kernels::Folding::of(call, mesh_.size());
  const schedule::Schedule& steps = plan.schedule;
  const auto slots = static_cast<std::size_t>(steps.scratch_slots);
  const auto chunks = static_cast<std::uint64_t>(std::max(1, steps.chunks));
  const std::uint64_t slot_bytes = (longest_ + chunks - 1) / chunks * size_of(call.type);
  const std::size_t slots_end = (slot_bytes * slots + kCacheLine - 1) / kCacheLine * kCacheLine;
  const std::size_t message = Flow::message_within(kFoldedBytes, plan.most_reducing * kLanes);
  const std::size_t room = slots_end + plan.most_reducing * Flow::kWindow * message;
  if (room * kLanes > scratch_bytes_) {
    scratch_bytes_ = room * kLanes;
    scratch_.reset();
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(scratch_bytes_);
  }
  for (std::size_t i = 0; i < kLanes; ++i) {
    lanes_[i]->begin(static_cast<std::uint32_t>(i), between, mine, fold.partial(), message,
                     scratch_.get() + i * room + slots_end);
  }

  for (std::size_t step = 0; step < slices_ + kLanes - 1; ++step) {
    if (step < slices_) {
      const Part& part = parts_[step];
      HCCL_RETURN_IF_ERROR(sum_on_host(call, part, mine));
      const Block& own = part.blocks[static_cast<std::size_t>(place_)];
      lanes_[step % kLanes]->add(
          steps,
          ChunkLayout(between, host_, hosts_, steps.chunks, plan.most_slots > 0,
                      part.slice_at + own.at, own.count),
          scratch_.get() + step % kLanes * room);
      HCCL_RETURN_IF_ERROR(progress());
    }
    if (step + 1 < kLanes) continue;
    const std::size_t back = step + 1 - kLanes;
    HCCL_RETURN_IF_ERROR(await_lane(back % kLanes, mine, waiter));
    const Block& own = parts_[back].blocks[static_cast<std::size_t>(place_)];
    fold.finish_in_place(
        static_cast<std::byte*>(call.out) + (parts_[back].slice_at + own.at) * size_of(call.type),
        own.count);
    HCCL_RETURN_IF_ERROR(spread_on_host(call, parts_[back], mine));
  }
  return {};
}

// Slices and their parts begin at multiples of a cache line.
void TwoLevel::cut(const Call& call) {
  const std::uint64_t element = size_of(call.type);
  const std::uint64_t bytes = call.count * element;
  const std::uint64_t length_bytes = std::clamp(bytes / kFewSlices, kShortestSlice, kSliceBytes);
  slices_ = std::max<std::uint64_t>(1, bytes / length_bytes);
  if (parts_.size() < slices_) parts_.resize(slices_);
  longest_ = 0;
  for (std::size_t s = 0; s < slices_; ++s) {
    Part& part = parts_[s];
    const Block slice =
        local::slice(static_cast<int>(s), static_cast<int>(slices_), call.count, element);
    part.slice_at = slice.at;
    part.blocks.clear();
    for (int place = 0; place < places_; ++place) {
      part.blocks.push_back(local::slice(place, places_, slice.count, element));
      longest_ = std::max(longest_, part.blocks.back().count);
    }
  }
}

void TwoLevel::set_costs(std::optional<select::MessageCosts> costs) {
  costs_ = std::move(costs);
  remembered_.fill({});
  chosen_ = nullptr;
}

const TwoLevel::Chosen& TwoLevel::choose(std::size_t part_bytes, bool round_once) {
  // Multiples of the same size differ in the upper bits of the product.
  Chosen& chosen = remembered_[(part_bytes * 0x9E3779B97F4A7C15u) >> 61 & (kRemembered - 1)];
  if (chosen.plan != nullptr && chosen.part_bytes == part_bytes &&
      chosen.round_once == round_once) {
    return chosen;
  }
  chosen.part_bytes = part_bytes;
  chosen.round_once = round_once;
  chosen.choice = select::choose_remote(Op::kAllReduce, hosts_, part_bytes, {}, hosts_,
                                        costs_ ? &*costs_ : nullptr, false, round_once);
  chosen.plan = &plan_for(chosen.choice);
  return chosen;
}

const RankSchedule& TwoLevel::plan_for(const schedule::Choice& choice) {
  const auto key = std::make_pair(choice.algorithm, choice.depth);
  if (const auto at = plans_.find(key); at != plans_.end()) return at->second;
  RankSchedule plan = make_rank_schedule(*choice.algorithm, {host_, hosts_, 0, choice.depth, 1});
  for (schedule::Step& step : plan.schedule.steps) {
    for (schedule::Send& send : step.sends) send.peer = send.peer * places_ + place_;
    for (schedule::Recv& recv : step.recvs) recv.peer = recv.peer * places_ + place_;
  }
  open_links(mesh_, plan);
  return plans_.emplace(key, std::move(plan)).first->second;
}

Status TwoLevel::sum_on_host(const Call& call, const Part& part, const Envelope& mine) {
  const std::uint64_t element = size_of(call.type);
  const Block& own = part.blocks[static_cast<std::size_t>(place_)];
  Call sum = call;
  sum.op = Op::kReduceScatterV;
  sum.scale = {};
  if (sum.reduce == ReduceOp::kAvg) sum.reduce = ReduceOp::kSum;
  sum.in = static_cast<const std::byte*>(call.in) + part.slice_at * element;
  sum.out = static_cast<std::byte*>(call.out) + (part.slice_at + own.at) * element;
  sum.count = own.count;
  sum.in_blocks = part.blocks;
  return local_.run(sum, mine);
}

Status TwoLevel::spread_on_host(const Call& call, const Part& part, const Envelope& mine) {
  const std::uint64_t element = size_of(call.type);
  const Block& own = part.blocks[static_cast<std::size_t>(place_)];
  auto* const slice = static_cast<std::byte*>(call.out) + part.slice_at * element;
  Call spread = call;
  spread.op = Op::kAllGatherV;
  spread.in = slice + own.at * element;
  spread.out = slice;
  spread.count = own.count;
  spread.out_blocks = part.blocks;
  return local_.run(spread, mine);
}

Status TwoLevel::progress() {
  mesh_.progress();
  return advance();
}

Status TwoLevel::advance() {
  for (const auto& lane : lanes_) {
    if (!lane->done()) HCCL_RETURN_IF_ERROR(lane->advance());
  }
  return {};
}

Status TwoLevel::await_lane(std::size_t lane, const Envelope& mine, const Waiter& waiter) {
  Status failure;
  const auto ready = [&] {
    // The waiter may check once more before it returns, so no lane may advance after a failure.
    // Executor::drive() explains why the loop repeats until nothing moves.
    for (bool moved = true; failure.ok() && moved && !lanes_[lane]->done();) {
      moved = mesh_.progress();
      failure = advance();
    }
    return !failure.ok() || lanes_[lane]->done();
  };
  const auto describe = [&] {
    std::set<int> late;
    for (const auto& each : lanes_) each->late(late);
    return WaitingCall{mine.sequence, to_string(mine), {late.begin(), late.end()}};
  };
  HCCL_RETURN_IF_ERROR(waiter.wait(ready, describe, mesh_.sleeper()));
  return failure;
}

}  // namespace hccl::exec
