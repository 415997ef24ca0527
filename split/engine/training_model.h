// Learns from windows of measured iterations when gradients are ready, what segments cost, and how
// much compute and communication slow each other. Does no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "split/cost_model.h"
#include "split/engine/window.h"
#include "split/planner.h"
#include "split/strategy.h"

namespace hccl::split {

/// Used by one thread at a time.
class TrainingModel {
 public:
  /// `bytes` has the size of each gradient.
  TrainingModel(std::vector<std::uint64_t> bytes, CostModel costs);

  /// Learns from a window that ran with these segments.
  void learn(const Window& window, const Segments& last_indices);

  const std::vector<std::uint64_t>& bytes() const { return bytes_; }
  /// The median ready times of the gradients without communication during compute, in seconds from
  /// the start of an iteration. Empty before the first window.
  const std::vector<double>& ready() const { return ready_; }
  double compute_end() const { return compute_end_; }
  const CostModel& costs() const { return costs_; }
  /// Empty until contention was measured.
  const std::optional<Contention>& contention() const { return contention_; }

 private:
  void learn_times(const Window::Medians& kind, double weight);
  void learn_costs(const Window::Medians& kind, const Segments& last_indices);

  std::vector<std::uint64_t> bytes_;
  CostModel costs_;
  std::vector<double> ready_;
  double compute_end_ = 0;
  std::optional<Contention> contention_;
};

}  // namespace hccl::split
