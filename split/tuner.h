// The automatic plan: takes what windows of traced iterations measured, and decides which segments
// come next. Pure; one rank decides for all, and tells them.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "split/contention.h"
#include "split/cost_model.h"
#include "split/planner.h"
#include "split/strategy.h"

namespace hccl::split {

/// Some iterations with the same segments, merged over ranks. Seconds from the begin of an
/// iteration.
struct Window {
  /// Medians over the iterations of one kind, of the slowest rank; empty if there was none.
  struct Kind {
    std::vector<double> ready;
    double compute_end = 0;
    double end = 0;               ///< when the program had all gradients
    std::vector<double> start;    ///< of each segment
    std::vector<double> seconds;  ///< of each segment: from the last rank's start to the last end
    std::size_t iterations = 5;   ///< that the medians are of
    double compute_error = 0;     ///< standard error of compute_end
    double seconds_error = 0;     ///< and of the sum of `seconds`
    bool empty() const { return ready.empty(); }
  };
  std::uint64_t last_iteration = 0;
  Kind alone;       ///< segments ran behind backward
  Kind overlapped;  ///< segments ran beside it
};

struct Decision {
  std::uint32_t version = 0;  ///< of the plan in force: 0 is the first one
  bool changed = false;
  Segments last_indices;
  bool overlap = true;            ///< segments run beside backward
  bool alternate = false;         ///< every second iteration runs without overlap, to measure both
  std::uint64_t next_window = 0;  ///< the iteration that ends the next window
  double predicted_end = 0;
  double lower_bound = 0;
  std::string why;  ///< for a log; not told to the other ranks
};

/// Used by one thread at a time.
class Tuner {
 public:
  static constexpr std::uint64_t kWindow = 10;  ///< iterations
  static constexpr double kGain = 0.01;         ///< below this, a change is not worth it
  static constexpr int kTimesInARow = 3;
  /// Where nothing overlaps, what overlap would lose is measured again after so many iterations,
  /// and then ever less often.
  static constexpr std::uint64_t kProbeAfter = 200;

  /// bytes: of each gradient. first: the plan in force before the first decision. can_overlap:
  /// false if segments only ever run behind backward. keep: never change the plan, only measure.
  Tuner(std::vector<std::uint64_t> bytes, Segments first, CostModel model, bool can_overlap,
        bool keep);

  /// What to do from the next iteration on.
  Decision observe(const Window& window);

  const CostModel& model() const { return model_; }
  /// As far as it is measured.
  std::optional<Contention> contention() const;

 private:
  struct Tried {
    Segments last_indices;
    bool overlap = true;
    double end = 0;  // as measured
    std::uint64_t iteration = 0;
  };

  bool knows_costs() const;
  void learn(const Window& window);
  void learn_costs(const Window::Kind& kind);
  void learn_contention(const Window::Kind& alone, const Window::Kind& beside);
  void remember(const Segments& last_indices, bool overlap, double end, std::uint64_t iteration);
  const Tried* tried(const Segments& last_indices, bool overlap) const;
  bool drifted(const Window& window, const Prediction& told) const;
  Result<Plan> plan_at_most(const Problem& problem) const;
  Decision stay(const Window& window);
  std::vector<Plan> rivals(const Problem& problem) const;
  std::optional<Decision> probe(const Window& window, const Problem& problem);
  Decision try_next(const Window& window);
  std::optional<Decision> end_probe(const Window& window, bool overlap);
  Decision change(Plan plan, bool overlap, const Window& window, std::string why);
  Result<Plan> plan(const Problem& problem) const;
  Result<Prediction> predicted(const Problem& problem, const Segments& segments) const;
  double expected(const Problem& problem, const Plan& plan, bool overlap) const;
  std::uint64_t next_window(const Window& window, std::uint64_t windows) const;

  std::vector<std::uint64_t> bytes_;
  CostModel model_;
  bool can_overlap_;
  bool keep_;
  Segments now_;
  bool overlap_now_;
  std::uint32_t version_ = 0;
  double predicted_end_ = 0;
  double lower_bound_ = 0;
  std::vector<double> ready_;  // with nothing beside it
  double compute_end_ = 0;
  ContentionEstimate contention_;
  std::optional<double> delay_;  // of each segment's start beside compute
  bool provisional_ = true;      // the plan in force rests on what was not measured well
  // While other plans are tried, each for one window: the fastest so far, where it ends.
  struct Home {
    Plan plan;
    bool overlap = false;
  };
  std::optional<Home> home_;
  std::vector<Plan> rivals_;  // still to be tried, the next one at the back
  bool rivals_tried_ = false;
  std::uint64_t probe_at_ = kProbeAfter;  // iteration
  std::uint64_t probe_pause_ = kProbeAfter;
  int attempts_ = 0;  // windows that measure what the plan rests on
  int in_a_row_ = 0;
  int drifts_ = 0;          // windows in a row
  std::uint64_t calm_ = 0;  // windows since something last seemed worth a change
  std::deque<Tried> tried_;
  std::uint64_t iteration_ = 0;  // the last one seen
};

/// "4 segments, [0,9] [10,42] ...": the end predicted, the bound, and the gap.
std::string words(const Plan& plan, double instead_of);

}  // namespace hccl::split
