#include "hccl/exec/host/opening_probe.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "hccl/base/pages.h"
#include "hccl/exec/host/probe_runs.h"

namespace hccl::exec::host {
namespace {

/// Of one rank's input: what goes through the rings whatever the number of ranks.
constexpr std::size_t kInRings = std::size_t{64} << 10;
/// Fills the rings and goes on, as whatever is long does: in the first ring full, what is staged
/// looks slower than it is.
constexpr std::size_t kLong = std::size_t{1} << 20;
/// As in ways_fit.cc: what is a little faster in a few rounds may be noise.
constexpr double kWorthIt = 0.95;
/// An alltoall through rings gets faster for its first hundred times (1 MiB 95 -> 50 us), one by
/// the kernel does not (80 -> 65). Where that pays, it takes half the time.
constexpr double kWorthMoving = 0.75;
/// A trial takes a part of it, see Trials.
constexpr std::chrono::milliseconds kBudget{150};
/// Two things are tried in turn, as what else the machine does comes and goes: so often, unless
/// that takes longer than it is worth.
constexpr int kTurns = 3;
constexpr double kLongEnoughNs = 20e6;

class Probe {
 public:
  /// buffers: an input and an output of kLong.
  Probe(HostPath& path, Pages buffers, std::function<Trials::Clock::time_point()> now)
      : path_(path),
        ranks_(static_cast<std::size_t>(path.ranks())),
        ways_(path.ways()),
        runs_(path, ways_),
        trials_(kBudget, runs_.ranks(std::move(now))),
        buffers_(std::move(buffers)) {}

  // Rings that nobody has written yet are slower than what they are compared with.
  Status warm_up() {
    constexpr std::size_t kRuns = 2 * Area::kRing / kLong;
    const Call call = prepare(Op::kAllToAll, kLong, false);
    for (std::size_t i = 0; i < kRuns; ++i) HCCL_RETURN_IF_ERROR(runs_.run(call));
    path_.set_ways(ways_);
    return {};
  }

  Result<bool> streams() {
    const auto with = [this](kernels::Store store) {
      path_.set_ring_store(store);
      return time(Op::kAllReduce, kInRings, false);
    };
    return pays(
        RingStore::kWorth, [&] { return with(kernels::Store::kCached); },
        [&] { return with(kernels::Store::kStream); });
  }

  Result<bool> copies_pay(Op op, double worth) {
    return pays(
        worth, [&] { return time(op, kLong, false); }, [&] { return time(op, kLong, true); });
  }

 private:
  Call prepare(Op op, std::size_t bytes, bool copies) {
    const bool moves = op == Op::kAllToAll;
    Ways ways = ways_;
    ways.cma_moves_from = ways.cma_folds_from = copies ? 1 : 0;
    ways.cma_moves_most = ways.cma_folds_most = kLong;
    path_.set_ways(ways);
    Call call;
    call.op = op;
    call.in = buffers_.data();
    call.out = buffers_.data() + (moves ? kLong : 0);
    call.count = bytes / size_of(call.type) / (moves ? ranks_ : 1);
    return call;
  }
  using Time = std::optional<double>;  // nothing where time has run out

  // Whether the best time of `new_way` is at most `worth` of the best of `old_way`.
  template <class Old, class New>
  Result<bool> pays(double worth, Old&& old_way, New&& new_way) {
    const double begin = trials_.spent();
    Time best_old, best_new;
    const auto keep = [](Time& best, const Time& time) {
      if (time) best = std::min(*time, best.value_or(*time));
    };
    for (int turn = 0; turn < kTurns && trials_.spent() - begin < kLongEnoughNs; ++turn) {
      HCCL_ASSIGN_OR_RETURN(const Time before, old_way());
      HCCL_ASSIGN_OR_RETURN(const Time after, new_way());
      keep(best_old, before);
      keep(best_new, after);
    }
    return best_old && best_new && *best_new < worth * *best_old;
  }
  Result<Time> time(Op op, std::size_t bytes, bool copies) {
    const Call call = prepare(op, bytes, copies);
    const auto write = [&] { std::fill_n(buffers_.data(), bytes, std::byte{1}); };
    auto taken = trials_.time(0, write, [&] { return runs_.run(call); });
    path_.set_ways(ways_);
    return taken;
  }

  HostPath& path_;
  std::size_t ranks_;
  Ways ways_;
  ProbeRuns runs_;
  Trials trials_;
  Pages buffers_;
};

}  // namespace

void Opening::apply(HostPath& path) const {
  path.set_ring_store(ring_store);
  path.set_attached(attached);
  Ways ways = path.ways();
  if (!cma_moves.value_or(true)) ways.cma_moves_from = 0;
  // What folds, if that was not tried, where nothing else does either.
  if (!cma_folds.value_or(cma_moves.value_or(true))) ways.cma_folds_from = 0;
  path.set_ways(ways);
}

Result<Opening> probe_opening(HostPath& path, bool cma,
                              std::function<Trials::Clock::time_point()> now) {
  Opening found;
  HCCL_ASSIGN_OR_RETURN(Pages buffers, Pages::map(2 * kLong));
  Probe probe(path, std::move(buffers), std::move(now));
  HCCL_RETURN_IF_ERROR(probe.warm_up());
  HCCL_ASSIGN_OR_RETURN(const bool streams, probe.streams());
  if (streams) found.ring_store = kernels::Store::kStream;
  path.set_ring_store(found.ring_store);
  if (cma) {
    HCCL_ASSIGN_OR_RETURN(found.attached, path.attach());
  }
  if (found.attached && path.ways().cma_moves_from != 0) {
    HCCL_ASSIGN_OR_RETURN(found.cma_moves, probe.copies_pay(Op::kAllToAll, kWorthMoving));
  }
  if (found.attached && path.ways().cma_folds_from != 0) {
    HCCL_ASSIGN_OR_RETURN(found.cma_folds, probe.copies_pay(Op::kAllReduce, kWorthIt));
  }
  found.apply(path);
  return found;
}

}  // namespace hccl::exec::host
