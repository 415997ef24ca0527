// The plan that the ranks of a communicator measure and change together while training runs.
// Decides how each iteration is measured, and exchanges the measurements at the end of a window.
// The tuner decides which segments come next; agreement.h sends the decision.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "hccl/core/communicator.h"
#include "split/engine/iteration.h"
#include "split/engine/tuner.h"

namespace hccl::split {

/// Used by one thread at a time. All ranks call create() and end_window() in the same iterations.
class AutomaticPlan {
 public:
  /// Probes the cost of an allreduce (at most about 50 ms). `bytes` has the size of each gradient,
  /// `first` the current segments. If `measure_only` is set, the segments stay. Fails with kOom, or
  /// with the failure of an allreduce.
  static Result<std::unique_ptr<AutomaticPlan>> create(
      std::shared_ptr<core::Communicator> communicator, std::vector<std::uint64_t> bytes,
      const Segments& first, bool parallel, bool measure_only);

  /// Whether the segments of this iteration may run during backward. Otherwise they run after
  /// backward, because the plan does not overlap, or to measure compute and communication apart.
  bool overlaps(std::uint64_t iteration) const;
  bool ends_window(std::uint64_t iteration) const { return iteration == next_window_; }
  /// Decides how the iterations after this one run; the decision is the same on all ranks. `now` is
  /// the iteration that has ended, `past` the earlier ones, oldest first; the call fills in their
  /// waits for peers. Fails with kPara if the decision does not fit the gradients, or with the
  /// failure of a message.
  Result<Decision> end_window(Times& now, std::deque<Times>& past);

 private:
  AutomaticPlan(std::shared_ptr<core::Communicator> communicator, std::size_t gradients)
      : communicator_(std::move(communicator)), gradients_(gradients) {}
  void log(const Decision& decision, std::uint64_t iteration) const;

  std::shared_ptr<core::Communicator> communicator_;
  std::size_t gradients_;
  std::unique_ptr<Tuner> tuner_;  // on rank 0 only
  bool overlap_ = true;
  bool alternate_ = true;
  // The window begins after this iteration. The first iteration of the training is not typical.
  std::uint64_t begin_ = 1;
  std::uint64_t next_window_ = Window::kIterations;  // the iteration that ends the window
};

}  // namespace hccl::split
