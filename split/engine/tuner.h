// The automatic plan: decides after each window of traced iterations which segments come next. Does
// no I/O; one rank decides and sends the decision to all ranks.
//
// The planner proposes a few candidates from the measurements. Each candidate runs for one window.
// Those within 3 % of the fastest run for two more. The fastest stays until the times change.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "split/engine/training_model.h"
#include "split/engine/window.h"
#include "split/planner.h"
#include "split/strategy.h"

namespace hccl::split {

/// The part of a decision that the other ranks always get.
struct Told {
  std::uint64_t next_window = 0;  ///< the iteration that ends the next window
  double predicted_end = 0;
  double lower_bound = 0;
  std::uint32_t version = 0;  ///< version of the current plan; the first is 0
  bool changed = false;
  bool overlap = true;     ///< segments run during backward
  bool alternate = false;  ///< every second iteration runs without overlap, to measure both
};

struct Decision : Told {
  Segments last_indices;  ///< the other ranks get them if they have changed
  std::string why;        ///< the reason, for a log; not sent to the other ranks
};

/// Used by one thread at a time.
class Tuner {
 public:
  static constexpr double kGain = 0.01;  ///< a smaller predicted gain is not worth a trial
  /// If nothing overlaps, a candidate with overlap runs again after this many iterations. Each
  /// later pause is longer.
  static constexpr std::uint64_t kProbeAfter = 200;

  /// `bytes` has the size of each gradient, `first` the plan before the first decision.
  /// `can_overlap` is false if segments only ever run after backward. With `measure_only` the plan
  /// never changes.
  Tuner(std::vector<std::uint64_t> bytes, Segments first, CostModel costs, bool can_overlap,
        bool measure_only);

  /// Decides how the next iterations run.
  Decision observe(const Window& window);

  /// The model on which the decisions are based.
  const TrainingModel& model() const { return model_; }

 private:
  /// A list of segments, and whether they run during backward.
  struct Cut {
    Segments last_indices;
    bool overlap = true;
    bool operator==(const Cut&) const = default;
  };
  struct Candidate {
    Cut cut;
    std::vector<double> ends = {};  // the measured end in each window
    double end() const;
  };

  std::size_t try_candidates(const Window& window, const Problem& problem, const Plan& best);
  std::optional<std::size_t> next_trial(const Problem& problem, const Plan& best);
  std::optional<Cut> rival(int number, const Problem& problem, const Plan& best) const;
  bool add(const Cut& cut);
  std::size_t fastest() const;
  void watch(const Window& window);
  bool has_changed(const Window& window) const;
  const Window::Medians& of(const Window& window) const;
  double predicted(const Problem& problem, std::size_t candidate) const;
  std::string reason(const Plan& best, double today) const;

  TrainingModel model_;
  const bool can_overlap_;
  const bool measure_only_;
  std::vector<Candidate> candidates_;
  std::size_t now_ = 0;  // the candidate in force
  int rivals_ = 0;       // number of rivals considered so far
  std::uint32_t version_ = 0;
  std::uint64_t calm_ = 0;      // number of windows since the fastest candidate is known
  Window::Medians usual_;       // the measurements of the first of these windows
  int changes_in_a_row_ = 0;    // consecutive windows whose times differ from usual_
  std::uint64_t probe_at_ = 0;  // the iteration in which overlap is tried again
};

/// Returns "segment num: 2, segment index list: [0,9] [10,42]; predicted end ...", the lower bound
/// and the gap. If `instead_of` is above 0, compares the predicted end with this time.
std::string to_string(const Plan& plan, double instead_of);

}  // namespace hccl::split
