// The plan that the ranks of a communicator measure and change together while training runs: which
// iterations are measured how, what all ranks hear of each other at the end of a window, and which
// segments come next. What to do is the tuner's to say; how it is told is agreement.h's.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "hccl/core/communicator.h"
#include "split/engine/iteration.h"
#include "split/engine/tuner.h"

namespace hccl::split {

/// Used by one thread at a time. All ranks call create() and end_window() in the same iterations.
class AutomaticPlan {
 public:
  /// Probes what an allreduce costs (at most about 50 ms). bytes: of each gradient; first: the
  /// segments that are in force; parallel: segments can run beside backward; measure_only: the
  /// segments stay. kOom, or the failure of an allreduce.
  static Result<std::unique_ptr<AutomaticPlan>> create(
      std::shared_ptr<core::Communicator> communicator, std::vector<std::uint64_t> bytes,
      const Segments& first, bool parallel, bool measure_only);

  /// Whether the segments of this iteration may run beside backward; if not, they run behind it: by
  /// the plan, or to measure both apart.
  bool overlaps(std::uint64_t iteration) const;
  bool ends_window(std::uint64_t iteration) const { return iteration == next_window_; }
  /// What comes from the next iteration on, the same on all ranks. `now` is the iteration that has
  /// ended, `past` those before it, oldest first; what they waited for peers is filled in. The
  /// failure of a message, or kPara: the decision does not fit the gradients.
  Result<Decision> end_window(Times& now, std::deque<Times>& past);

 private:
  AutomaticPlan(std::shared_ptr<core::Communicator> communicator, std::size_t gradients)
      : communicator_(std::move(communicator)), gradients_(gradients) {}
  void log(const Decision& decision, std::uint64_t iteration) const;

  std::shared_ptr<core::Communicator> communicator_;
  std::size_t gradients_;
  std::unique_ptr<Tuner> tuner_;  // rank 0's
  bool overlap_ = true;
  bool alternate_ = true;
  std::uint64_t begin_ = 1;  // the iterations after this one are in the window; the first of all is
                             // no example
  std::uint64_t next_window_ = Window::kIterations;  // the iteration that ends it
};

}  // namespace hccl::split
