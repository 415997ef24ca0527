// The automatic plan: decides after each window of traced iterations which segments come next.
// Pure; one rank decides for all, and tells them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "split/planner.h"
#include "split/strategy.h"
#include "split/engine/training_model.h"
#include "split/engine/window.h"

namespace hccl::split {

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
  Tuner(std::vector<std::uint64_t> bytes, Segments first, CostModel costs, bool can_overlap,
        bool keep);

  /// What to do from the next iteration on.
  Decision observe(const Window& window);

  /// What the decisions rest on.
  const TrainingModel& model() const { return model_; }

 private:
  using Cut = TrainingModel::Cut;
  using Tried = TrainingModel::Tried;

  /// What a window has shown.
  struct Outlook {
    const Problem& problem;
    Plan best;
    double today = 0;      // the end expected of the plan in force
    bool overlap = false;  // of the best plan
    bool drift = false;
    std::string why;
  };

  Decision stay(const Window& window);
  std::string reason(const Outlook& outlook, const Contention& contention) const;
  Decision go_on(const Window& window, const Outlook& outlook);
  std::optional<Decision> improve(const Window& window, const Outlook& outlook);
  std::vector<Plan> rivals(const Problem& problem) const;
  std::optional<Decision> probe(const Window& window, const Problem& problem);
  Decision try_next(const Window& window);
  std::vector<Plan> nearly_alike() const;
  void find_home();
  std::optional<Decision> end_probe(const Window& window, bool overlap);
  Decision change(Plan plan, bool overlap, const Window& window, std::string why);
  std::uint64_t next_window(const Window& window, std::uint64_t windows) const;

  TrainingModel model_;
  bool can_overlap_;
  bool keep_;
  Cut now_;
  std::uint32_t version_ = 0;
  double predicted_end_ = 0;
  double lower_bound_ = 0;
  bool provisional_ = true;  // the plan in force rests on what was not measured well
  // While other plans are tried, each for one window: the fastest so far, where it ends.
  struct Home {
    Plan plan;
    bool overlap = false;
  };
  std::optional<Home> home_;
  std::vector<Plan> rivals_;      // still to be tried, the next one at the back
  std::vector<Plan> contenders_;  // all of them, and the plan before if it overlaps
  bool rivals_tried_ = false;
  int looks_ = 0;                         // windows that each of them may have had
  std::uint64_t probe_at_ = kProbeAfter;  // iteration
  std::uint64_t probe_pause_ = kProbeAfter;
  int attempts_ = 0;  // windows that measure what the plan rests on
  int in_a_row_ = 0;
  int drifts_ = 0;          // windows in a row
  std::uint64_t calm_ = 0;  // windows since something last seemed worth a change
};

/// "4 segments, [0,9] [10,42] ...": the end predicted, the bound, and the gap.
std::string words(const Plan& plan, double instead_of);

}  // namespace hccl::split
