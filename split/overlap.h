// The fusion engine: takes gradients one by one as backward completes them, and reduces each
// segment as soon as its last gradient is ready and all earlier segments have started.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hccl/core/communicator.h"
#include "split/strategy.h"
#include "split/trace.h"

namespace hccl::split {

/// Used by one thread at a time. Between ready(i) and wait() the memory of gradient i is the
/// engine's.
class Overlap {
 public:
  struct Gradient {
    std::string name;
    std::byte* data = nullptr;
    std::uint64_t count = 0;  ///< elements
  };
  enum class Point { kFpStart, kBpEnd, kIterationEnd };

  /// `segments` must fit the gradients (strategy.h makes such lists). parallel: segments run on the
  /// communicator's worker while the caller computes; otherwise inside wait(). Allocates the fusion
  /// buffer, if any segment needs one, once. kPara, kOom.
  static Result<std::unique_ptr<Overlap>> create(std::shared_ptr<core::Communicator> communicator,
                                                 std::vector<Gradient> gradients, DataType type,
                                                 ReduceOp op, Segments segments, bool parallel);
  /// Finishes the segments whose gradients are all ready, together with the other ranks.
  ~Overlap();
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;

  /// kPara, naming the gradient: no such index, or marked twice in this iteration.
  Status ready(std::uint32_t index);
  /// Returns when every segment is reduced; the next iteration begins. kPara names gradients that
  /// were never marked; then nothing has changed, and they can still be marked.
  Status wait();
  void mark(Point point);

  const Segments& segments() const { return last_indices_; }
  /// The time line of the last iteration that was waited for; empty before the first.
  std::string timeline() const;
  /// The last iterations: kTraced, or as many as fit in 16 MiB.
  Trace trace() const;

  static constexpr std::size_t kTraced = 1000;

 private:
  struct Segment {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    std::uint64_t count = 0;
    std::byte* data = nullptr;  // where the allreduce runs
    bool copied = false;        // data lies in the fusion buffer
    std::uint32_t missing = 0;  // gradients not ready yet in this iteration
    core::OpQueue::Ticket ticket;
  };
  // Times of one iteration; 0 = did not happen.
  struct Times {
    std::uint64_t number = 0;
    std::int64_t fp_start = 0;
    std::int64_t bp_end = 0;
    std::int64_t iteration_end = 0;
    std::vector<std::int64_t> ready;
    std::vector<std::int64_t> start;
    std::vector<std::int64_t> end;
  };

  Overlap(std::shared_ptr<core::Communicator> communicator, std::vector<Gradient> gradients,
          DataType type, ReduceOp op, Segments segments, bool parallel);
  Status lay_out();
  void begin_iteration();
  void begin_if_over();
  void start(std::size_t segment);
  void gather(const Gradient& gradient, std::byte* slot) const;
  void scatter(const Segment& segment) const;
  std::string name(std::uint32_t index) const;
  TraceIteration iteration(const Times& times) const;

  std::shared_ptr<core::Communicator> communicator_;
  std::vector<Gradient> gradients_;
  DataType type_;
  ReduceOp op_;
  Segments last_indices_;
  bool parallel_;
  std::uint32_t plan_;
  std::vector<Segment> segments_;
  std::vector<std::uint32_t> segment_of_;  // by gradient
  std::vector<std::uint64_t> offset_;      // elements from the segment's start, by gradient
  std::unique_ptr<std::byte[]> buffer_;    // fusion buffer of the segments that are copied
  std::vector<char> is_ready_;
  std::size_t started_ = 0;  // segments, in order
  bool over_ = false;        // waited for: the next call begins an iteration
  Times now_;
  std::deque<Times> past_;
};

}  // namespace hccl::split
