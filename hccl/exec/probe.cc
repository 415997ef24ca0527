#include "hccl/exec/probe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "hccl/kernels/kernels.h"

namespace hccl::exec {
namespace {

using schedule::MessageCosts;

constexpr std::uint64_t kKiB = 1024;
constexpr std::array<std::uint64_t, 6> kMessages = {64,        kKiB,       8 * kKiB,
                                                    64 * kKiB, 512 * kKiB, 4096 * kKiB};
/// Outputs of all ranks' messages take no more than this.
constexpr std::uint64_t kOutput = std::uint64_t{16} << 20;
/// Long enough to show what lanes are good for.
constexpr std::uint64_t kLanesVector = std::uint64_t{4} << 20;
constexpr std::array kLaneNumbers = {2, 4};
constexpr std::uint64_t kFoldBytes = 256 * kKiB;
/// All ranks together that exchange directly in the rules of schedule/select.cc.
constexpr int kFewRanks = 8;

std::uint64_t whole(double ns) {
  return static_cast<std::uint64_t>(
      std::llround(std::clamp(ns, 0.0, static_cast<double>(MessageCosts::kMostNs))));
}

class Probe {
 public:
  Probe(Executor& executor, int size, const Limits& limits, std::chrono::nanoseconds budget,
        std::function<Trials::Clock::time_point()> now)
      : executor_(executor),
        size_(size),
        limits_(limits),
        trials_(budget,
                {[this] { return run(Op::kBarrier, "dissemination", 0, 1); },
                 [this](std::span<double> numbers) { return largest(numbers); }, std::move(now)}) {}

  Result<MessageCosts> measure() {
    HCCL_RETURN_IF_ERROR(steps());
    HCCL_RETURN_IF_ERROR(fold());
    HCCL_RETURN_IF_ERROR(lanes());
    return costs_;
  }

 private:
  void reserve(std::uint64_t in, std::uint64_t out) {
    in_.resize(std::max<std::size_t>(in_.size(), in));
    out_.resize(std::max<std::size_t>(out_.size(), out));
  }

  Status run(Op op, std::string_view algorithm, std::uint64_t bytes, int lanes) {
    Call call;
    call.op = op;
    call.in = in_.data();
    call.out = out_.data();
    call.type = DataType::kFp32;
    call.count = bytes / size_of(call.type);
    return run(call, algorithm, lanes);
  }
  Status run(const Call& call, std::string_view algorithm, int lanes) {
    schedule::Choice choice;
    choice.algorithm = schedule::find(call.op, algorithm);
    choice.lanes = lanes;
    return executor_.run(call, choice, ++sequence_, limits_);
  }
  Status largest(std::span<double> numbers) {
    std::vector<double> all(numbers.size());
    Call call;
    call.op = Op::kAllReduce;
    call.in = numbers.data();
    call.out = all.data();
    call.count = numbers.size();
    call.type = DataType::kFp64;
    call.reduce = ReduceOp::kMax;
    HCCL_RETURN_IF_ERROR(run(call, "bruck", 1));
    std::copy(all.begin(), all.end(), numbers.begin());
    return {};
  }

  Status fold() {
    reserve(kFoldBytes, kFoldBytes);
    const std::array<const std::byte*, 2> inputs = {out_.data(), in_.data()};
    HCCL_ASSIGN_OR_RETURN(const auto ns, trials_.time(
                                             0, [] {},
                                             [&] {
                                               kernels::fold(DataType::kFp32, ReduceOp::kSum,
                                                             inputs, out_.data(), kFoldBytes / 4);
                                               return Status();
                                             }));
    costs_.fold_ns_per_mib = whole(ns.value_or(0) * (kKiB * kKiB / kFoldBytes));
    return {};
  }

  Result<std::optional<double>> gather(std::string_view algorithm, std::uint64_t bytes,
                                       double expected) {
    // A rank's input is fresh in its caches, as after a computation.
    return trials_.time(
        expected, [&] { std::fill_n(in_.begin(), bytes, std::byte{1}); },
        [&] { return run(Op::kAllGather, algorithm, bytes, 1); });
  }

  Status steps() {
    const double others = size_ - 1;
    double ring = 0, direct = 0;  // of the shorter message
    std::uint64_t shorter = 0;
    for (const std::uint64_t bytes : kMessages) {
      if (bytes * static_cast<std::uint64_t>(size_) > kOutput && shorter != 0) break;
      // More messages never take longer by more than their bytes.
      const double times = shorter == 0 ? 0 : static_cast<double>(bytes) / shorter;
      reserve(bytes, bytes * static_cast<std::uint64_t>(size_));
      HCCL_ASSIGN_OR_RETURN(const auto around, gather("ring", bytes, ring * times));
      if (!around) break;
      std::optional<double> together = around;
      if (size_ > 2) {
        HCCL_ASSIGN_OR_RETURN(together, gather("direct", bytes, direct * times));
      }
      ring = *around;
      MessageCosts::Step step{bytes, std::max<std::uint64_t>(1, whole(ring / others)), 0};
      if (size_ > 2 && together) {
        direct = *together;
        step.more_ns = whole((direct - ring / others) / (others - 1));
      } else {
        // Half of what one message takes beyond the shortest one, and all of its bytes.
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

  Status lanes() {
    const std::string_view name = size_ <= kFewRanks ? "direct" : "ring";
    const schedule::Algorithm& algorithm = *schedule::find(Op::kAllReduce, name);
    const auto predicted = [&](std::uint64_t bytes) {
      return schedule::predict_ns(algorithm, size_, bytes, 1, 1, costs_);
    };
    reserve(kLanesVector, kLanesVector);
    const auto timed = [&](int lanes, double expected) {
      return trials_.time(
          expected, [&] { std::fill_n(in_.begin(), kLanesVector, std::byte{1}); },
          [&, lanes] { return run(Op::kAllReduce, name, kLanesVector, lanes); });
    };
    HCCL_ASSIGN_OR_RETURN(const auto one, timed(1, predicted(kLanesVector)));
    if (!one) return {};
    for (const int lanes : kLaneNumbers) {
      HCCL_ASSIGN_OR_RETURN(const auto some, timed(lanes, *one));
      if (!some) return {};
      // The model lets savings grow from a shortest vector on; so is the share scaled.
      const double start =
          predicted(schedule::kSavingLaneBytes * static_cast<std::uint64_t>(lanes));
      const double growing = std::max(0.5, 1 - start / predicted(kLanesVector));
      const double percent = std::clamp(100 * (1 - *some / *one) / growing, -100.0, 90.0);
      costs_.lanes.push_back({lanes, static_cast<int>(std::lround(percent))});
    }
    return {};
  }

  Executor& executor_;
  int size_;
  const Limits& limits_;
  Trials trials_;
  std::uint64_t sequence_ = 0;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
  MessageCosts costs_;
};

}  // namespace

Result<MessageCosts> measure_messages(Executor& executor, int size, const Limits& limits,
                                      std::chrono::nanoseconds budget,
                                      std::function<Trials::Clock::time_point()> now) {
  return Probe(executor, size, limits, budget, std::move(now)).measure();
}

}  // namespace hccl::exec
