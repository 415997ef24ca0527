// The fusion engine: takes gradients one by one as backward completes them, and reduces each
// segment as soon as its last gradient is ready and all earlier segments have started. With an
// automatic plan, the engine measures while training runs, and changes the segments on all ranks at
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hccl/core/communicator.h"
#include "split/engine/agreement.h"
#include "split/engine/automatic_plan.h"
#include "split/engine/iteration.h"
#include "split/strategy.h"
#include "split/trace.h"

namespace hccl::split {

/// Used by one thread at a time. Between ready(i) and wait() the memory of gradient i belongs to
/// the engine.
class Overlap {
 public:
  struct Gradient {
    std::string name;
    std::byte* data = nullptr;
    std::uint64_t count = 0;  ///< elements
  };
  enum class Point { kFpStart, kBpEnd, kIterationEnd };
  enum class Mode {
    kFixed,   ///< the segments stay
    kTraced,  ///< the segments stay; iterations are measured over all ranks
    kAuto,    ///< iterations are measured over all ranks; better segments replace the segments
  };

  /// `segments` must fit the gradients (strategy.h makes such lists). If `parallel` is set,
  /// segments run on the communicator's worker while the caller computes; otherwise they run inside
  /// wait(). Allocates the fusion buffer once, if any segment needs it. All ranks pass the same
  /// arguments; the first wait() checks that. `group` is the group whose strategy gave the
  /// segments; the trace names it. Fails with kPara or kOom.
  static Result<std::unique_ptr<Overlap>> create(std::shared_ptr<core::Communicator> communicator,
                                                 std::vector<Gradient> gradients, DataType type,
                                                 ReduceOp op, Segments segments, bool parallel,
                                                 Mode mode = Mode::kFixed,
                                                 std::string group = "hccl_world_group");
  /// Returns a new engine for the same gradients and segments in another communicator. No gradient
  /// is ready, and an automatic plan begins anew. Fails as create() does.
  Result<std::unique_ptr<Overlap>> rebound(std::shared_ptr<core::Communicator> communicator) const {
    return create(std::move(communicator), gradients_, type_, op_, segments(), parallel_given_,
                  mode_given_, recording_.group());
  }
  /// Finishes the segments whose own gradients and all earlier gradients are ready.
  ~Overlap();
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;

  /// Marks a gradient as ready. Fails with kPara if the index does not exist, or if the gradient
  /// was marked before in this iteration; the error text names the gradient.
  Status ready(std::uint32_t index);
  /// Returns when every segment is reduced; the next iteration begins. Fails with kPara if
  /// gradients were not marked: the error text names them, nothing has changed, and they can still
  /// be marked. The first wait() also fails with kPara, before anything is sent, if the ranks
  /// differ in their gradients or segments.
  Status wait();
  /// Returns when this segment and all earlier segments are reduced; wait() must follow. Fails with
  /// kPara if the segment does not exist, or if a gradient of this or an earlier segment is not
  /// ready.
  Status wait_segment(std::size_t segment);
  void mark(Point point);
  /// Plans the newest-first order of these gradients from the iterations so far. Collective; call
  /// it after wait() and before the next ready(). Fails with kPara at another time, or as
  /// order_together() does.
  Result<Order> newest_first() {
    if (!recording_.over())
      return Status(Code::kPara, "an order can be planned only between two iterations");
    return order_together(*communicator_, recording_.trace(), size_of(type_));
  }

  /// The segments of this iteration; an automatic plan changes them between iterations.
  const Segments& segments() const { return plan_->last_indices; }
  /// The times of the last iterations.
  const Recording& recording() const { return recording_; }

 private:
  struct Segment {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    std::uint64_t count = 0;
    std::byte* data = nullptr;  // input and output of the allreduce
    bool copied = false;        // data lies in the fusion buffer
    std::uint32_t missing = 0;  // number of gradients that are not ready yet in this iteration
    WorkQueue::Ticket ticket;
  };

  Overlap(std::shared_ptr<core::Communicator> communicator, std::vector<Gradient> gradients,
          DataType type, ReduceOp op, bool parallel, Mode mode, std::string group);
  Status lay_out(Segments segments);
  void abort_caught() noexcept;
  void begin_iteration();
  void start_due();
  void start(std::size_t segment);
  void gather(const Gradient& gradient, std::byte* slot) const;
  void scatter(const Segment& segment) const;
  std::string name(std::uint32_t index) const;
  std::vector<std::uint64_t> gradient_bytes() const;
  bool contiguous() const;

  Status meet();
  void give_up_place();
  Status end_window();

  std::shared_ptr<core::Communicator> communicator_;
  std::vector<Gradient> gradients_;
  DataType type_;
  ReduceOp op_;
  const bool parallel_given_;
  const Mode mode_given_;
  bool parallel_ = parallel_given_;
  Mode mode_ = mode_given_;
  std::uint32_t fingerprint_ = 0;
  std::shared_ptr<PlanVersion> plan_;
  std::vector<Segment> segments_;
  std::vector<std::uint32_t> segment_of_;  // by gradient
  std::vector<std::uint64_t> offset_;      // elements from the segment's start, by gradient
  std::unique_ptr<std::byte[]> buffer_;    // fusion buffer of the segments that are copied
  std::uint64_t buffer_elements_ = 0;
  std::vector<char> is_ready_;
  std::size_t due_ = 0;      // segments whose gradients, and all earlier gradients, are ready
  std::size_t started_ = 0;  // segments that have started, in order
  bool met_ = false;         // the ranks have agreed on the gradients
  Status refusal_;           // the failure, if the ranks have not agreed
  // The operation's place in the queue, held until the ranks have agreed. Until then no other
  // operation may run, and the communicator counts as in use.
  WorkQueue::Ticket place_;
  Recording recording_;
  std::unique_ptr<AutomaticPlan> automatic_;  // for measured plans; made in meet()
};

}  // namespace hccl::split
