#include "split/overlap.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

namespace hccl::split {
namespace {

constexpr std::size_t kNamesInText = 8;
constexpr std::size_t kTraceBytes = std::size_t{16} << 20;  // for the times of past iterations

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Ranks with other gradients or segments must not reduce: the plan's fingerprint travels with each
// call.
std::uint32_t fingerprint(const std::vector<Overlap::Gradient>& gradients,
                          const Segments& segments) {
  std::uint64_t h = 1469598103934665603ull;
  const auto mix = [&h](std::uint64_t value) { h = (h ^ value) * 1099511628211ull; };
  for (const auto& gradient : gradients) mix(gradient.count);
  mix(gradients.size());
  for (const auto last : segments) mix(last);
  return static_cast<std::uint32_t>(h ^ (h >> 32)) | 1;  // 0 means no plan
}

}  // namespace

Overlap::Overlap(std::shared_ptr<core::Communicator> communicator, std::vector<Gradient> gradients,
                 DataType type, ReduceOp op, Segments segments, bool parallel)
    : communicator_(std::move(communicator)),
      gradients_(std::move(gradients)),
      type_(type),
      op_(op),
      last_indices_(std::move(segments)),
      parallel_(parallel),
      plan_(fingerprint(gradients_, last_indices_)),
      segment_of_(gradients_.size()),
      offset_(gradients_.size()),
      is_ready_(gradients_.size()) {}

Result<std::unique_ptr<Overlap>> Overlap::create(std::shared_ptr<core::Communicator> communicator,
                                                 std::vector<Gradient> gradients, DataType type,
                                                 ReduceOp op, Segments segments, bool parallel) {
  std::vector<std::uint64_t> bytes;
  for (const auto& gradient : gradients) bytes.push_back(gradient.count * size_of(type));
  HCCL_RETURN_IF_ERROR(segments_by_index(bytes, segments).status());
  if (segments.size() > kDocumentedSegments) {
    communicator->log()->warn("{} segments; HCCL documents at most {}", segments.size(),
                              kDocumentedSegments);
  }
  communicator->log()->info("gradient segment result: {}", segments_text(segments));
  std::unique_ptr<Overlap> made(new Overlap(std::move(communicator), std::move(gradients), type, op,
                                            std::move(segments), parallel));
  HCCL_RETURN_IF_ERROR(made->lay_out());
  made->begin_iteration();
  return made;
}

Status Overlap::lay_out() {
  const std::size_t element = size_of(type_);
  std::uint64_t buffer_elements = 0;
  std::uint32_t first = 0;
  for (const std::uint32_t last : last_indices_) {
    Segment segment;
    segment.first = first;
    segment.last = last;
    for (std::uint32_t i = first; i <= last; ++i) {
      segment_of_[i] = static_cast<std::uint32_t>(segments_.size());
      offset_[i] = segment.count;
      if (gradients_[i].count == 0) continue;  // wherever it may lie
      if (segment.count == 0) segment.data = gradients_[i].data;
      segment.copied =
          segment.copied || gradients_[i].data != segment.data + segment.count * element;
      segment.count += gradients_[i].count;
    }
    if (segment.copied) buffer_elements += segment.count;
    segments_.push_back(std::move(segment));
    first = last + 1;
  }
  if (buffer_elements == 0) return {};
  buffer_.reset(new (std::nothrow) std::byte[buffer_elements * element]);
  if (!buffer_) {
    return Status(Code::kOom, "the fusion buffer of " + std::to_string(buffer_elements * element) +
                                  " bytes cannot be allocated");
  }
  std::byte* next = buffer_.get();
  for (Segment& segment : segments_) {
    if (!segment.copied) continue;
    segment.data = next;
    next += segment.count * element;
  }
  return {};
}

Overlap::~Overlap() {
  for (std::size_t s = 0; s < started_; ++s) {
    if (segments_[s].ticket) static_cast<void>(communicator_->wait(segments_[s].ticket));
  }
}

void Overlap::begin_iteration() {
  std::fill(is_ready_.begin(), is_ready_.end(), 0);
  for (Segment& segment : segments_) {
    segment.missing = segment.last - segment.first + 1;
    segment.ticket.reset();
  }
  started_ = 0;
  over_ = false;
  const std::uint64_t number = now_.number + 1;
  now_ = Times();
  now_.number = number;
  now_.ready.assign(gradients_.size(), 0);
  now_.start.assign(segments_.size(), 0);
  now_.end.assign(segments_.size(), 0);
}

void Overlap::begin_if_over() {
  if (!over_) return;
  const std::size_t bytes =
      sizeof(Times) + (gradients_.size() + 2 * segments_.size()) * sizeof(std::int64_t);
  past_.push_back(std::move(now_));
  if (past_.size() >= std::clamp<std::size_t>(kTraceBytes / bytes, 2, kTraced)) past_.pop_front();
  now_ = Times();
  now_.number = past_.back().number;
  begin_iteration();
}

std::string Overlap::name(std::uint32_t index) const {
  const std::string& own = gradients_[index].name;
  return std::to_string(index) + (own.empty() ? "" : " (" + own + ")");
}

Status Overlap::ready(std::uint32_t index) {
  if (index >= gradients_.size()) {
    return Status(Code::kPara, "gradient " + std::to_string(index) + " does not exist: there are " +
                                   std::to_string(gradients_.size()));
  }
  begin_if_over();
  if (is_ready_[index] != 0) {
    return Status(Code::kPara, "gradient " + name(index) + " is marked twice in one iteration");
  }
  is_ready_[index] = 1;
  Segment& own = segments_[segment_of_[index]];
  if (own.copied) gather(gradients_[index], own.data + offset_[index] * size_of(type_));
  now_.ready[index] = now_ns();
  --own.missing;
  while (started_ < segments_.size() && segments_[started_].missing == 0) start(started_++);
  return {};
}

void Overlap::gather(const Gradient& gradient, std::byte* slot) const {
  if (gradient.count != 0) std::memcpy(slot, gradient.data, gradient.count * size_of(type_));
}

void Overlap::scatter(const Segment& segment) const {
  const std::size_t element = size_of(type_);
  for (std::uint32_t i = segment.first; i <= segment.last; ++i) {
    if (gradients_[i].count == 0) continue;
    std::memcpy(gradients_[i].data, segment.data + offset_[i] * element,
                gradients_[i].count * element);
  }
}

void Overlap::start(std::size_t index) {
  Segment& segment = segments_[index];
  exec::Call call;
  call.op = schedule::Op::kAllReduce;
  call.in = call.out = segment.data;
  call.count = segment.count;
  call.type = type_;
  call.reduce = op_;
  call.plan = plan_;
  segment.ticket = communicator_->submit(
      call, !parallel_, [this, index] { now_.start[index] = now_ns(); },
      [this, index] {
        if (segments_[index].copied) scatter(segments_[index]);
        now_.end[index] = now_ns();
      });
}

Status Overlap::wait() {
  begin_if_over();
  if (started_ < segments_.size()) {
    std::string missing;
    std::size_t number = 0;
    for (std::uint32_t i = 0; i < gradients_.size(); ++i) {
      if (is_ready_[i] != 0) continue;
      if (++number <= kNamesInText) missing += (number == 1 ? "" : ", ") + name(i);
    }
    if (number > kNamesInText) missing += ", … (" + std::to_string(number) + " in all)";
    return Status(Code::kPara, "gradients never marked ready in this iteration: " + missing);
  }
  Status first_failure;
  for (Segment& segment : segments_) {
    const Status status = communicator_->wait(segment.ticket);
    if (first_failure.ok()) first_failure = status;
  }
  over_ = true;
  return first_failure;
}

void Overlap::mark(Point point) {
  if (point != Point::kIterationEnd) begin_if_over();
  (point == Point::kFpStart ? now_.fp_start
   : point == Point::kBpEnd ? now_.bp_end
                            : now_.iteration_end) = now_ns();
}

TraceIteration Overlap::iteration(const Times& times) const {
  TraceIteration out;
  out.number = times.number;
  if (times.fp_start != 0) out.marks.push_back({"fp_start", times.fp_start});
  if (times.bp_end != 0) out.marks.push_back({"bp_end", times.bp_end});
  if (times.iteration_end != 0) out.marks.push_back({"iteration_end", times.iteration_end});
  const std::size_t element = size_of(type_);
  for (std::uint32_t i = 0; i < gradients_.size(); ++i) {
    out.gradients.push_back({i, gradients_[i].name, gradients_[i].count * element, times.ready[i]});
  }
  const std::string algorithm = communicator_->algorithm(schedule::Op::kAllReduce);
  for (std::size_t s = 0; s < segments_.size(); ++s) {
    out.segments.push_back({segments_[s].first, segments_[s].last, segments_[s].count * element,
                            algorithm, times.start[s], times.end[s], 0});
  }
  return out;
}

std::string Overlap::timeline() const {
  if (over_) return timeline_text(iteration(now_));
  return past_.empty() ? "" : timeline_text(iteration(past_.back()));
}

Trace Overlap::trace() const {
  Trace out;
  out.rank = static_cast<std::uint32_t>(communicator_->rank());
  out.rank_size = static_cast<std::uint32_t>(communicator_->size());
  out.group = communicator_->name();
  for (const Times& times : past_) out.iterations.push_back(iteration(times));
  if (over_) out.iterations.push_back(iteration(now_));
  return out;
}

}  // namespace hccl::split
