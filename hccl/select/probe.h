// Measures the time of operations between the ranks of a communicator. The ranks agree on the
// numbers that decide whether there is time for another operation and how often an operation is
// repeated. So no rank waits for a rank that has already stopped measuring.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "hccl/base/call.h"
#include "hccl/base/status.h"
#include "hccl/local/algorithm.h"
#include "hccl/select/costs.h"

namespace hccl::select {

using ProbeClock = std::chrono::steady_clock;

/// How a probe runs operations. Collective: all ranks run the same operations. If an operation
/// fails, the probe ends with its error.
struct ProbeRuns {
  std::function<Status(const Call& call, std::string_view algorithm)> run;
  /// The algorithms that the probe itself uses for barriers and for allreduces of a few numbers.
  std::string_view barrier;
  std::string_view allreduce;
  std::function<ProbeClock::time_point()> now = ProbeClock::now;
};

/// Measures one operation after another within a budget that begins with the construction.
class Timer {
 public:
  Timer(const ProbeRuns& runs, std::chrono::nanoseconds budget)
      : runs_(runs), budget_(static_cast<double>(budget.count())), start_(runs_.now()) {}

  /// Returns the time of the operation on the slowest rank in nanoseconds: the least of a few
  /// loops. In a loop each rank writes `bytes` of its input anew before each operation; the time of
  /// that writing does not count. Returns nothing if the rest of the budget is too short for an
  /// operation that takes `expected_ns`. The rest of the budget is shared evenly by `sharers`
  /// measurements: this one and those that follow. All ranks must pass the same arguments.
  Result<std::optional<double>> time(const Call& call, std::string_view algorithm,
                                     std::uint64_t bytes, double expected_ns,
                                     std::size_t sharers = 1);
  /// Replaces each number by the largest one of all ranks.
  Status largest(std::vector<double>& numbers) const;
  /// Nanoseconds since the start, as the ranks agreed last.
  double spent() const { return spent_; }

 private:
  double since(ProbeClock::time_point then) const {
    return std::chrono::duration<double, std::nano>(runs_.now() - then).count();
  }
  Result<double> loop(const Call& call, std::string_view algorithm, std::uint64_t bytes,
                      std::size_t times);

  const ProbeRuns& runs_;
  double budget_;
  ProbeClock::time_point start_;
  double spent_ = 0;
};

/// The setting in which the ranks of a host are measured.
struct LocalProbe {
  local::Topology topology;
  /// Two areas of this rank's memory, each with kProbeBytes for inputs and kProbeBytes for outputs.
  /// `shared` is null if some rank has no device memory.
  std::byte* ordinary;
  std::byte* shared;
  std::function<void(const local::Tuning&)> set_tuning;
};
inline constexpr std::size_t kProbeBytes = std::size_t{1} << 20;

/// Measures the ranks of a host. Collective; all ranks get the same result. If ranks have a core
/// each, compares the algorithms of `preset` that can run here. Algorithms that `preset` lacks are
/// compared with kStandard, which `preset` must have. If the budget does not allow a measurement,
/// the preset's time stays.
Result<LocalCosts> compare_local(Timer& timer, const LocalProbe& where, const LocalCosts& preset);
/// First decides whether cores are far from each other; then compares with the built-in costs.
Result<LocalCosts> probe_local(const ProbeRuns& runs, const LocalProbe& where,
                               std::chrono::nanoseconds budget);

/// Measures messages. Collective; all ranks get the same result. The result lacks the measurements
/// that the budget does not allow.
Result<MessageCosts> probe_messages(const ProbeRuns& runs, int size,
                                    std::chrono::nanoseconds budget);

}  // namespace hccl::select
