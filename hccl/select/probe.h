// Measures what operations cost between the ranks of a communicator. Whether there is time for
// another one, and how often it is repeated, depends only on numbers that the ranks have agreed on,
// so that no rank waits for a rank that has stopped.
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

/// How a probe runs operations. Collective: all ranks run the same. A failure ends the probe, and
/// is that of an operation.
struct ProbeRuns {
  std::function<Status(const Call& call, std::string_view algorithm)> run;
  /// A barrier, and one for an allreduce of a few numbers.
  std::string_view barrier;
  std::string_view allreduce;
  std::function<ProbeClock::time_point()> now = ProbeClock::now;
};

/// Times one operation after another within a budget, which counts from the start.
class Timer {
 public:
  Timer(const ProbeRuns& runs, std::chrono::nanoseconds budget)
      : runs_(runs), budget_(static_cast<double>(budget.count())), start_(runs_.now()) {}

  /// Nanoseconds of the operation on the slowest rank, in a loop in which each rank writes `bytes`
  /// of its input anew before each operation, less the writing: the least of a few such loops.
  /// Nothing where the budget has no room for what is expected. All ranks pass the same.
  Result<std::optional<double>> time(const Call& call, std::string_view algorithm,
                                     std::uint64_t bytes, double expected_ns);
  /// Each number becomes the largest of all ranks.
  Status largest(std::vector<double>& numbers) const;
  /// Nanoseconds since the start, as the ranks last agreed.
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

/// Where the ranks of a host run their trials.
struct LocalProbe {
  local::Topology topology;
  /// Of this rank's inputs and outputs, kProbeBytes each; `shared` is null where some rank has no
  /// device memory.
  std::byte* ordinary;
  std::byte* shared;
  std::function<void(const local::Tuning&)> set_tuning;
};
inline constexpr std::size_t kProbeBytes = std::size_t{1} << 20;

/// Collective; all ranks get the same, which holds for these ranks. First decides whether cores are
/// far; then measures algorithms against each other, where ranks have a core each. What time does
/// not allow is as the preset says.
Result<LocalCosts> probe_local(const ProbeRuns& runs, const LocalProbe& where,
                               std::chrono::nanoseconds budget);

/// Collective; all ranks get the same. What time does not allow is left out.
Result<MessageCosts> probe_messages(const ProbeRuns& runs, int size,
                                    std::chrono::nanoseconds budget);

}  // namespace hccl::select
