// What windows of measured iterations have shown of a training: when its gradients are ready, what
// its segments cost, what compute and communication lose to each other, and how plans did that were
// tried. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "split/contention.h"
#include "split/cost_model.h"
#include "split/planner.h"
#include "split/strategy.h"
#include "split/engine/window.h"

namespace hccl::split {

/// Used by one thread at a time.
class TrainingModel {
 public:
  /// A way to cut, and whether segments run beside backward.
  struct Cut {
    Segments last_indices;
    bool overlap = true;
    bool operator==(const Cut&) const = default;
  };
  /// A cut that was in force.
  struct Tried {
    Cut cut;
    double end = 0;               ///< as measured, the latest window counting most
    std::uint64_t iteration = 0;  ///< when it was last measured
  };

  /// bytes: of each gradient.
  TrainingModel(std::vector<std::uint64_t> bytes, CostModel costs);

  /// A window in which this cut was in force. both: its iterations behind backward tell what the
  /// cut does there, too, though it is meant to overlap.
  void learn(const Window& window, const Cut& cut, bool both = false);

  /// Whether anything was learnt: before, there are no times to plan with.
  bool knows_times() const { return !ready_.empty(); }
  /// Whether segments of about the sizes of these have been measured.
  bool knows_costs(const Segments& last_indices) const;
  const std::vector<std::uint64_t>& bytes() const { return bytes_; }
  /// Medians with nothing beside compute; seconds from the begin of an iteration.
  const std::vector<double>& ready() const { return ready_; }
  double compute_end() const { return compute_end_; }
  const CostModel& costs() const { return costs_; }
  /// As far as it is measured, and whether well enough to rely on.
  std::optional<Contention> contention() const { return contention_.contention(); }
  bool contention_is_settled() const { return contention_.is_settled(); }

  /// What was measured of a cut lately, and the fastest of all; null if there is nothing.
  const Tried* tried(const Cut& cut) const;
  const Tried* fastest() const;
  /// When a plan that was never tried is expected to end: as predicted for this problem, and as
  /// much later or earlier as the cut did that was tried lately and is most alike in number of
  /// segments.
  double expected(const Problem& problem, const Plan& plan, bool overlap) const;

  /// Whether the times of a window, in which `told` was predicted, are no longer what they were.
  bool has_changed(const Window& window, const Prediction& told) const;
  /// What other cuts than this one did is no measure any more, nor when segments began beside
  /// compute.
  void forget_but(const Cut& cut);

 private:
  void learn_costs(const Window::Kind& kind, const Segments& last_indices);
  void learn_times(const Window::Kind& alone);
  void remember(const Cut& cut, double end);
  /// Bytes of each segment.
  std::vector<std::uint64_t> sizes(const Segments& last_indices) const;

  std::vector<std::uint64_t> bytes_;
  CostModel costs_;
  std::vector<double> ready_;
  double compute_end_ = 0;
  ContentionEstimate contention_;
  std::deque<Tried> tried_;
  std::uint64_t iteration_ = 0;  // the last one seen
};

}  // namespace hccl::split
