#include "hccl/select/probe.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "hccl/kernels/kernels.h"
#include "hccl/local/blocks.h"
#include "hccl/select/points.h"
#include "hccl/select/presets.h"

namespace hccl::select {
namespace {

std::uint64_t whole(double ns) {
  return static_cast<std::uint64_t>(
      std::llround(std::clamp(ns, 0.0, static_cast<double>(kMostNs))));
}

}  // namespace

Status Timer::largest(std::vector<double>& numbers) const {
  std::vector<double> all(numbers.size());
  const Call call{Op::kAllReduce, numbers.data(),  all.data(),
                  numbers.size(), DataType::kFp64, ReduceOp::kMax};
  HCCL_RETURN_IF_ERROR(runs_.run(call, runs_.allreduce));
  numbers = std::move(all);
  return {};
}

Result<double> Timer::loop(const Call& call, std::string_view algorithm, std::uint64_t bytes,
                           std::size_t times) {
  auto* const input = static_cast<std::byte*>(const_cast<void*>(call.in));
  const auto write = [&](std::size_t round) {
    std::fill_n(input, bytes, static_cast<std::byte>(round));
    asm volatile("" ::: "memory");  // keeps the compiler from omitting stores
  };
  write(0);
  const auto begin_writing = runs_.now();
  for (std::size_t i = 0; i < times; ++i) write(i);
  const double writing = since(begin_writing);
  HCCL_RETURN_IF_ERROR(runs_.run(Call(), runs_.barrier));
  const auto begin = runs_.now();
  for (std::size_t i = 0; i < times; ++i) {
    write(i);
    HCCL_RETURN_IF_ERROR(runs_.run(call, algorithm));
  }
  std::vector<double> numbers = {(since(begin) - writing) / static_cast<double>(times),
                                 since(start_)};
  HCCL_RETURN_IF_ERROR(largest(numbers));
  spent_ = numbers[1];
  return std::max(1.0, numbers[0]);
}

Result<std::optional<double>> Timer::time(const Call& call, std::string_view algorithm,
                                          std::uint64_t bytes, double expected_ns,
                                          std::size_t sharers) {
  constexpr double kLoopNs = 300e3;
  constexpr double kMostTimes = 64;
  constexpr int kLoops = 3;
  if (spent_ + 2 * expected_ns > budget_) return std::optional<double>();
  const double share = (budget_ - spent_) / static_cast<double>(sharers);
  const double end = spent_ + share;
  HCCL_ASSIGN_OR_RETURN(double least, loop(call, algorithm, bytes, 1));
  const double loop_ns = std::min(kLoopNs, share / (kLoops + 1));
  const double times = std::clamp(loop_ns / least, 2.0, kMostTimes);
  for (int i = 0; i < kLoops; ++i) {
    // Always runs the first of these loops, because the run above is not typical: caches were cold,
    // and the first bytes on a network are faster than the rest.
    if (i > 0 && spent_ + times * least > end) break;
    HCCL_ASSIGN_OR_RETURN(const double ns,
                          loop(call, algorithm, bytes, static_cast<std::size_t>(times)));
    least = i == 0 ? ns : std::min(least, ns);
  }
  return std::optional<double>(least);
}

// ---- inside a host ----

namespace {

// If stores past the caches take at most this share of the time of ordinary stores, they count as
// faster. They take twice the time if cores share a cache, and half of it if cores do not.
constexpr double kFar = 0.85;
constexpr std::uint64_t kFarBytes = 64 * kKiB;
constexpr int kTurns = 3;
constexpr std::array<std::uint64_t, 3> kLocalSizes = {8 * kKiB, 64 * kKiB, kProbeBytes};
// If everything takes this many times as long as the built-in costs, the machine is busy with other
// work, and the measurements do not tell algorithms apart.
constexpr double kDisturbed = 4;

// Whether stores past the caches are faster. Tries both kinds in turn, because other load on the
// machine comes and goes.
Result<bool> far(Timer& timer, const LocalProbe& where) {
  const local::Tuning near_by = local_preset(where.topology, false).tuning;
  const local::Tuning far_off = local_preset(where.topology, true).tuning;
  const Call call{Op::kAllReduce, where.ordinary, where.ordinary + kProbeBytes, kFarBytes / 4};
  double cached = HUGE_VAL, streamed = HUGE_VAL;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (double* best : {&cached, &streamed}) {
      where.set_tuning(best == &cached ? near_by : far_off);
      HCCL_ASSIGN_OR_RETURN(const auto ns, timer.time(call, "slots", kFarBytes, 0));
      *best = std::min(*best, ns.value_or(HUGE_VAL));
    }
  }
  return streamed < kFar * cached;
}

struct Trial {
  const local::Algorithm* algorithm;
  Call call;
  std::uint64_t bytes;  // of a rank's input
};

Call trial_call(const LocalProbe& where, Op op, std::byte* buffers, std::uint64_t bytes) {
  const auto ranks = static_cast<std::uint64_t>(where.topology.ranks);
  Call call{op, buffers, buffers + kProbeBytes, bytes / 4};
  if (op == Op::kBroadcast) call.out = buffers;
  if (local::Blocks(call, 0, where.topology.ranks).block_for_each()) call.count /= ranks;
  if (op == Op::kAllGather) call.count = std::min(call.count, kProbeBytes / 4 / ranks);
  return call;
}

// Returns the trials of the algorithms that can run here: if `known`, of the algorithms with
// built-in costs; otherwise of the algorithms without built-in costs, also with short inputs. Each
// operation in kStandFor stands for its kind; an algorithm without built-in costs that does not run
// this operation is tried with another operation of the kind.
std::vector<Trial> trials(const LocalProbe& where, const LocalCosts& preset, bool known) {
  constexpr std::array kStandFor = {Op::kAllReduce, Op::kAllToAll, Op::kBroadcast};
  constexpr std::array kOthers = {Op::kReduceScatter, Op::kReduce, Op::kAllGather, Op::kScatter};
  std::vector<Op> ops(kStandFor.begin(), kStandFor.end());
  std::vector<std::uint64_t> sizes(kLocalSizes.begin(), kLocalSizes.end());
  if (!known) {
    ops.insert(ops.end(), kOthers.begin(), kOthers.end());
    sizes.insert(sizes.begin(), local::Slot::kPayload);
  }
  std::vector<Trial> all;
  for (const std::uint64_t size : sizes) {
    const auto first = static_cast<std::ptrdiff_t>(all.size());
    for (const Op op : ops) {
      for (const bool reachable : {false, true}) {
        std::byte* const buffers = reachable ? where.shared : where.ordinary;
        if (buffers == nullptr) continue;
        const Call call = trial_call(where, op, buffers, size);
        const std::uint64_t bytes = local::Blocks(call, 0, where.topology.ranks).input() * 4;
        if (bytes == 0) continue;
        for (const local::Algorithm& each : local::algorithms()) {
          const CurveKind kind = kind_of(op);
          if (!each.operations.contains(op)) continue;
          if ((preset.find(each.name, kind) != nullptr) != known) continue;
          const local::Case here{op, DataType::kFp32, bytes, reachable, reachable};
          if (!each.refuse(here, where.topology).empty()) continue;
          // If an algorithm runs in both memories or runs several operations of a kind, it is tried
          // once for each size.
          const bool again = std::any_of(all.begin() + first, all.end(), [&](const Trial& other) {
            return other.algorithm->name == each.name && kind_of(other.call.op) == kind;
          });
          if (!again) all.push_back({&each, call, bytes});
        }
      }
    }
  }
  return all;
}

void add_point(std::vector<Curve>& curves, const Trial& trial, double ns) {
  const CurveKind kind = kind_of(trial.call.op);
  auto at = std::find_if(curves.begin(), curves.end(), [&](const Curve& curve) {
    return curve.algorithm == trial.algorithm->name && curve.kind == kind;
  });
  if (at == curves.end()) {
    at = curves.insert(at, Curve{std::string(trial.algorithm->name), kind, {}});
  }
  // An allgather has room only for shorter inputs, so its input may not grow with the size.
  if (!at->points.empty() && trial.bytes <= at->points.back().bytes) return;
  const std::uint64_t least = at->points.empty() ? 1 : at->points.back().ns;
  at->points.push_back({trial.bytes, std::max(least, whole(ns))});
}

}  // namespace

Result<LocalCosts> compare_local(Timer& timer, const LocalProbe& where, const LocalCosts& preset) {
  // If ranks share cores, times vary too much to judge the built-in costs.
  const std::vector<Trial> known =
      where.topology.shared_cores ? std::vector<Trial>() : trials(where, preset, true);
  const std::vector<Trial> others = trials(where, preset, false);
  std::size_t left = known.size() + 2 * others.size();
  const auto time = [&](const Trial& trial, std::string_view algorithm, const Curve& expected) {
    return timer.time(trial.call, algorithm, trial.bytes, expected.ns(trial.bytes), left--);
  };
  // For each algorithm without built-in costs: its time divided by that of kStandard; 0: unknown.
  std::vector<double> ratios;
  for (const Trial& trial : others) {
    const Curve& usual = *preset.find(kStandard, kind_of(trial.call.op));
    HCCL_ASSIGN_OR_RETURN(const auto standard, time(trial, kStandard, usual));
    HCCL_ASSIGN_OR_RETURN(const auto ns, time(trial, trial.algorithm->name, usual));
    ratios.push_back(standard && ns ? *ns / *standard : 0);
  }
  std::vector<Curve> measured;
  for (const Trial& trial : known) {
    const Curve& usual = *preset.find(trial.algorithm->name, kind_of(trial.call.op));
    HCCL_ASSIGN_OR_RETURN(const auto ns, time(trial, trial.algorithm->name, usual));
    if (ns) add_point(measured, trial, *ns);
  }
  if (slowdown(preset, measured) > kDisturbed) return preset;
  LocalCosts costs = fit(preset, preset, measured);
  std::vector<Curve> added;
  for (std::size_t i = 0; i < others.size(); ++i) {
    const Curve& standard = *costs.find(kStandard, kind_of(others[i].call.op));
    if (ratios[i] > 0) add_point(added, others[i], ratios[i] * standard.ns(others[i].bytes));
  }
  costs.curves.insert(costs.curves.end(), added.begin(), added.end());
  return costs;
}

Result<LocalCosts> probe_local(const ProbeRuns& runs, const LocalProbe& where,
                               std::chrono::nanoseconds budget) {
  Timer timer(runs, budget);
  // Staging buffers are slower until they have been written once.
  const Call first{Op::kAllReduce, where.ordinary, where.ordinary + kProbeBytes, kProbeBytes / 4};
  for (int i = 0; i < 2; ++i) HCCL_RETURN_IF_ERROR(runs.run(first, kStandard));
  HCCL_ASSIGN_OR_RETURN(const bool is_far, far(timer, where));
  const LocalCosts preset = local_preset(where.topology, is_far);
  where.set_tuning(preset.tuning);
  return compare_local(timer, where, preset);
}

// ---- messages ----

namespace {

constexpr std::array<std::uint64_t, 6> kMessages = {64,        kKiB,       8 * kKiB,
                                                    64 * kKiB, 512 * kKiB, 4096 * kKiB};
/// The largest output of an operation that measures messages.
constexpr std::uint64_t kOutput = std::uint64_t{16} << 20;
constexpr std::uint64_t kFoldBytes = 256 * kKiB;

class Messages {
 public:
  Messages(const ProbeRuns& runs, int size, std::chrono::nanoseconds budget)
      : runs_(runs), size_(size), timer_(runs, budget) {}

  Result<MessageCosts> measure() {
    HCCL_RETURN_IF_ERROR(steps());
    HCCL_RETURN_IF_ERROR(fold());
    return costs_;
  }

 private:
  Result<std::optional<double>> time(Op op, std::string_view algorithm, std::uint64_t bytes,
                                     double expected) {
    in_.resize(std::max<std::size_t>(in_.size(), bytes));
    out_.resize(std::max<std::size_t>(
        out_.size(), bytes * (op == Op::kAllGather ? static_cast<std::uint64_t>(size_) : 1)));
    return timer_.time(Call{op, in_.data(), out_.data(), bytes / 4}, algorithm, bytes, expected);
  }

  Status fold() {
    in_.resize(std::max<std::size_t>(in_.size(), kFoldBytes));
    out_.resize(std::max<std::size_t>(out_.size(), kFoldBytes));
    const std::array<const std::byte*, 2> inputs = {out_.data(), in_.data()};
    double least = HUGE_VAL;
    for (int turn = 0; turn < kTurns; ++turn) {
      const auto begin = runs_.now();
      kernels::fold(DataType::kFp32, ReduceOp::kSum, inputs, out_.data(), kFoldBytes / 4);
      least =
          std::min(least, std::chrono::duration<double, std::nano>(runs_.now() - begin).count());
    }
    std::vector<double> numbers = {least};
    HCCL_RETURN_IF_ERROR(timer_.largest(numbers));
    costs_.fold_ns_per_mib =
        whole(numbers[0] * (1024.0 * 1024.0 / static_cast<double>(kFoldBytes)));
    return {};
  }

  Status steps() {
    const double others = size_ - 1;
    double ring = 0, direct = 0;  // times of the next shorter message
    std::uint64_t shorter = 0;
    for (const std::uint64_t bytes : kMessages) {
      if (bytes * static_cast<std::uint64_t>(size_) > kOutput && shorter != 0) break;
      // The time of a message grows at most in proportion to its bytes.
      const double times = shorter == 0 ? 0 : static_cast<double>(bytes) / shorter;
      HCCL_ASSIGN_OR_RETURN(const auto around, time(Op::kAllGather, "ring", bytes, ring * times));
      if (!around) break;
      std::optional<double> together = around;
      if (size_ > 2) {
        HCCL_ASSIGN_OR_RETURN(together, time(Op::kAllGather, "direct", bytes, direct * times));
      }
      ring = *around;
      MessageCosts::Step step{bytes, std::max<std::uint64_t>(1, whole(ring / others)), 0};
      if (size_ > 2 && together) {
        direct = *together;
        step.more_ns = whole((direct - ring / others) / (others - 1));
      } else {
        // Estimates more_ns: half of the time of the shortest message, plus the time that further
        // bytes add.
        const auto& first = costs_.steps.empty() ? step : costs_.steps.front();
        step.more_ns = step.step_ns - std::min(step.step_ns, first.step_ns / 2);
      }
      if (!costs_.steps.empty()) {
        step.step_ns = std::max(step.step_ns, costs_.steps.back().step_ns);
        step.more_ns = std::max(step.more_ns, costs_.steps.back().more_ns);
      }
      costs_.steps.push_back(step);
      if (!together) break;
      shorter = bytes;
    }
    return {};
  }

  const ProbeRuns& runs_;
  int size_;
  Timer timer_;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
  MessageCosts costs_;
};

}  // namespace

Result<MessageCosts> probe_messages(const ProbeRuns& runs, int size,
                                    std::chrono::nanoseconds budget) {
  return Messages(runs, size, budget).measure();
}

}  // namespace hccl::select
