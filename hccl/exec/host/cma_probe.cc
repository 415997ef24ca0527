#include "hccl/exec/host/cma_probe.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "hccl/exec/host/probe_runs.h"

namespace hccl::exec::host {
namespace {

/// Of one rank's input, where kCma begins to matter. An allreduce gains less than an alltoall, and
/// later.
constexpr std::size_t kMoved = std::size_t{256} << 10;
constexpr std::size_t kFolded = std::size_t{1} << 20;
/// As in ways_fit.cc: what is a little faster in a few rounds may be noise.
constexpr double kWorthIt = 0.95;
/// A trial takes a part of it, see Trials.
constexpr std::chrono::milliseconds kBudget{150};

class Probe {
 public:
  Probe(HostPath& path, int ranks, std::function<Trials::Clock::time_point()> now)
      : path_(path),
        ranks_(static_cast<std::size_t>(ranks)),
        ways_(path.ways()),
        runs_(path, ways_),
        trials_(kBudget, runs_.ranks(std::move(now))) {}

  Result<bool> pays(schedule::Op op, std::size_t bytes) {
    in_.assign(bytes, std::byte{0});
    out_.assign(op == schedule::Op::kAllToAll ? bytes : 0, std::byte{0});
    HCCL_ASSIGN_OR_RETURN(const auto others, time(op, false));
    HCCL_ASSIGN_OR_RETURN(const auto copies, time(op, true));
    path_.set_ways(ways_);
    return others && copies && *copies < kWorthIt * *others;
  }

 private:
  // Nothing where time has run out.
  Result<std::optional<double>> time(schedule::Op op, bool copies) {
    Ways ways = ways_;
    ways.cma_moves_from = ways.cma_folds_from = copies ? 1 : 0;
    ways.cma_moves_most = ways.cma_folds_most = kFolded;
    path_.set_ways(ways);
    const bool moves = op == schedule::Op::kAllToAll;
    Call call;
    call.op = op;
    call.in = in_.data();
    call.out = moves ? out_.data() : in_.data();
    call.count = in_.size() / size_of(call.type) / (moves ? ranks_ : 1);
    const auto write = [&] { std::fill(in_.begin(), in_.end(), std::byte{1}); };
    return trials_.time(0, write, [&] { return runs_.run(call); });
  }

  HostPath& path_;
  std::size_t ranks_;
  Ways ways_;
  ProbeRuns runs_;
  Trials trials_;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
};

}  // namespace

Ways CmaGains::of(Ways ways) const {
  if (!moves.value_or(true)) ways.cma_moves_from = 0;
  if (!folds.value_or(moves.value_or(true))) ways.cma_folds_from = 0;
  return ways;
}

Result<CmaGains> measure_cma(HostPath& path, std::function<Trials::Clock::time_point()> now) {
  CmaGains gains;
  HCCL_ASSIGN_OR_RETURN(gains.attached, path.attach());
  if (!gains.attached) return gains;
  Probe probe(path, path.ranks(), std::move(now));
  if (path.ways().cma_moves_from != 0) {
    HCCL_ASSIGN_OR_RETURN(gains.moves, probe.pays(schedule::Op::kAllToAll, kMoved));
  }
  if (path.ways().cma_folds_from != 0) {
    HCCL_ASSIGN_OR_RETURN(gains.folds, probe.pays(schedule::Op::kAllReduce, kFolded));
  }
  path.set_ways(gains.of(path.ways()));
  return gains;
}

}  // namespace hccl::exec::host
