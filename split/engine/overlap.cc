#include "split/engine/overlap.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <new>

#include "hccl/base/caught.h"

namespace hccl::split {
namespace {

constexpr std::size_t kNamesInText = 8;

std::int64_t thread_cpu_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::int64_t{1000000000} * time.tv_sec + time.tv_nsec;
}

std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(1e9 * seconds); }

// The plan's fingerprint is in the envelope of each call, so ranks whose gradients or segments
// differ get an error.
std::uint32_t fingerprint(const std::vector<Overlap::Gradient>& gradients,
                          const Segments& segments) {
  std::uint64_t h = 1469598103934665603ull;
  const auto mix = [&h](std::uint64_t value) { h = (h ^ value) * 1099511628211ull; };
  for (const auto& gradient : gradients) mix(gradient.count);
  mix(gradients.size());
  for (const auto last : segments) mix(last);
  // The value 0 would mean no plan, and the highest bit would mean a tag.
  return (static_cast<std::uint32_t>(h ^ (h >> 32)) & 0x7FFFFFFF) | 1;
}

std::vector<TraceGradient> traced(const std::vector<Overlap::Gradient>& gradients, DataType type) {
  std::vector<TraceGradient> out;
  for (const auto& each : gradients) {
    out.push_back({static_cast<std::uint32_t>(out.size()), each.name, each.count * size_of(type)});
  }
  return out;
}

}  // namespace

Overlap::Overlap(std::shared_ptr<core::Communicator> communicator, std::vector<Gradient> gradients,
                 DataType type, ReduceOp op, bool parallel, Mode mode, std::string group)
    : communicator_(std::move(communicator)),
      gradients_(std::move(gradients)),
      type_(type),
      op_(op),
      parallel_given_(parallel),
      mode_given_(mode),
      segment_of_(gradients_.size()),
      offset_(gradients_.size()),
      is_ready_(gradients_.size()),
      recording_({kTraceVersion,
                  static_cast<std::uint32_t>(communicator_->rank()),
                  static_cast<std::uint32_t>(communicator_->size()),
                  std::move(group),
                  {}},
                 traced(gradients_, type)) {
  if (communicator_->size() > 1) return;
  // Nothing is sent, so there is nothing to measure, and nothing to run during backward.
  mode_ = Mode::kFixed;
  parallel_ = false;
  met_ = true;
}

Result<std::unique_ptr<Overlap>> Overlap::create(std::shared_ptr<core::Communicator> communicator,
                                                 std::vector<Gradient> gradients, DataType type,
                                                 ReduceOp op, Segments segments, bool parallel,
                                                 Mode mode, std::string group) {
  std::unique_ptr<Overlap> made(new Overlap(std::move(communicator), std::move(gradients), type, op,
                                            parallel, mode, std::move(group)));
  HCCL_RETURN_IF_ERROR(segments_by_index(made->gradient_bytes(), segments).status());
  const auto& log = made->communicator_->membership().log;
  // More segments than HCCL documents may be a mistake, unless each gradient is a segment of its
  // own.
  if (segments.size() > kDocumentedSegments && segments.size() < made->gradients_.size()) {
    log->warn("{} segments; HCCL documents at most {}", segments.size(), kDocumentedSegments);
  }
  log->info("gradient segment result: {}", segments_text(segments));
  HCCL_RETURN_IF_ERROR(made->lay_out(std::move(segments)));
  made->begin_iteration();
  return made;
}

std::vector<std::uint64_t> Overlap::gradient_bytes() const {
  std::vector<std::uint64_t> bytes;
  bytes.reserve(gradients_.size());
  for (const auto& gradient : gradients_) bytes.push_back(gradient.count * size_of(type_));
  return bytes;
}

// Returns whether the gradients lie one after another, so that every segment can be reduced in
// place.
bool Overlap::contiguous() const {
  const std::byte* next = nullptr;
  for (const auto& gradient : gradients_) {
    if (gradient.count == 0) continue;
    if (next != nullptr && gradient.data != next) return false;
    next = gradient.data + gradient.count * size_of(type_);
  }
  return true;
}

// If the function fails or throws, the previous segments stay.
Status Overlap::lay_out(Segments segments) {
  const std::size_t element = size_of(type_);
  auto in_use = std::make_shared<PlanVersion>();
  std::vector<Segment> laid_out;
  std::vector<std::uint32_t> segment_of(gradients_.size());
  std::vector<std::uint64_t> offset(gradients_.size());
  std::uint64_t buffer_elements = 0;
  std::uint32_t first = 0;
  for (const std::uint32_t last : segments) {
    Segment segment;
    segment.first = first;
    segment.last = last;
    for (std::uint32_t i = first; i <= last; ++i) {
      segment_of[i] = static_cast<std::uint32_t>(laid_out.size());
      offset[i] = segment.count;
      if (gradients_[i].count == 0) continue;  // the address of an empty gradient does not matter
      if (segment.count == 0) segment.data = gradients_[i].data;
      segment.copied =
          segment.copied || gradients_[i].data != segment.data + segment.count * element;
      segment.count += gradients_[i].count;
    }
    if (segment.copied) buffer_elements += segment.count;
    in_use->bytes.push_back(segment.count * element);
    laid_out.push_back(std::move(segment));
    first = last + 1;
  }
  // A later plan may copy gradients that these segments reduce in place. To fail with kOom at that
  // time would be too late, so the buffer is made for all gradients now.
  if (mode_ == Mode::kAuto && !contiguous()) {
    buffer_elements = 0;
    for (const auto& gradient : gradients_) buffer_elements += gradient.count;
  }
  if (buffer_elements > buffer_elements_) {
    std::unique_ptr<std::byte[]> buffer(new (std::nothrow) std::byte[buffer_elements * element]);
    if (!buffer) {
      return Status(Code::kOom, "the fusion buffer of " +
                                    std::to_string(buffer_elements * element) +
                                    " bytes cannot be allocated");
    }
    buffer_ = std::move(buffer);
    buffer_elements_ = buffer_elements;
  }
  std::byte* next = buffer_.get();
  for (Segment& segment : laid_out) {
    if (!segment.copied) continue;
    segment.data = next;
    next += segment.count * element;
  }
  const std::uint32_t print = fingerprint(gradients_, segments);
  segments_.swap(laid_out);
  segment_of_.swap(segment_of);
  offset_.swap(offset);
  due_ = started_ = 0;
  fingerprint_ = print;
  in_use->last_indices = std::move(segments);
  plan_ = std::move(in_use);
  return {};
}

// Starts the segments whose gradients are ready. They have not started before if the ranks never
// met, or if memory was missing.
Overlap::~Overlap() {
  try {
    if (!recording_.over() && started_ < due_ && (met_ || meet().ok())) start_due();
  } catch (...) {
    abort_caught();
  }
  give_up_place();
  for (std::size_t s = 0; s < started_; ++s) {
    if (segments_[s].ticket)
      static_cast<void>(communicator_->operations().queue().wait(segments_[s].ticket));
  }
}

// Ends the communicator, because other ranks wait for this rank, which cannot continue.
void Overlap::abort_caught() noexcept {
  try {
    communicator_->abort("its gradients cannot be reduced: " + caught().message());
  } catch (...) {
    communicator_->abort({});
  }
}

void Overlap::begin_iteration() {
  const std::uint64_t number = recording_.now().number + 1;
  recording_.begin(plan_, parallel_ && met_ && (!automatic_ || automatic_->overlaps(number)));
  std::fill(is_ready_.begin(), is_ready_.end(), 0);
  for (Segment& segment : segments_) {
    segment.missing = segment.last - segment.first + 1;
    segment.ticket.reset();
  }
  due_ = started_ = 0;
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
  if (recording_.over()) begin_iteration();
  if (is_ready_[index] != 0) {
    return Status(Code::kPara, "gradient " + name(index) + " is marked twice in one iteration");
  }
  is_ready_[index] = 1;
  Segment& own = segments_[segment_of_[index]];
  if (own.copied) gather(gradients_[index], own.data + offset_[index] * size_of(type_));
  recording_.now().ready[index] = now_ns();
  --own.missing;
  while (due_ < segments_.size() && segments_[due_].missing == 0) ++due_;
  if (met_) {
    start_due();
  } else if (due_ > 0 && place_ == nullptr) {
    place_ = communicator_->operations().queue().reserve();
  }
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

void Overlap::start_due() {
  for (; started_ < due_; ++started_) start(started_);
}

void Overlap::start(std::size_t index) {
  Segment& segment = segments_[index];
  const bool overlapped = recording_.now().overlapped;
  Call call;
  call.op = Op::kAllReduce;
  call.in = call.out = segment.data;
  call.count = segment.count;
  call.type = type_;
  call.reduce = op_;
  call.plan = fingerprint_;
  call.background = overlapped;
  segment.ticket = communicator_->operations().submit(
      call, !overlapped,
      [this, index] {
        Times& times = recording_.now();
        if (automatic_) times.cpu[index] = thread_cpu_ns();
        times.start[index] = now_ns();
      },
      [this, index] {
        Times& times = recording_.now();
        if (segments_[index].copied) scatter(segments_[index]);
        times.end[index] = now_ns();
        if (automatic_) times.cpu[index] = thread_cpu_ns() - times.cpu[index];
        times.algorithm[index] = communicator_->operations().selection().algorithm(Op::kAllReduce);
      });
}

Status Overlap::wait() {
  if (recording_.over()) begin_iteration();
  if (due_ < segments_.size()) {
    std::string missing;
    std::size_t number = 0;
    for (std::uint32_t i = 0; i < gradients_.size(); ++i) {
      if (is_ready_[i] != 0) continue;
      if (++number <= kNamesInText) missing += (number == 1 ? "" : ", ") + name(i);
    }
    if (number > kNamesInText) missing += ", … (" + std::to_string(number) + " in all)";
    return Status(Code::kPara, "gradients never marked ready in this iteration: " + missing);
  }
  recording_.begin_wait();
  if (!met_) HCCL_RETURN_IF_ERROR(meet());
  start_due();
  Status first_failure;
  for (Segment& segment : segments_) {
    const Status status = communicator_->operations().queue().wait(segment.ticket);
    if (first_failure.ok()) first_failure = status;
  }
  recording_.end();
  if (first_failure.ok() && automatic_ && automatic_->ends_window(recording_.now().number))
    first_failure = end_window();
  return first_failure;
}

Status Overlap::wait_segment(std::size_t segment) {
  if (segment >= due_) {
    return Status(Code::kPara, "segment " + std::to_string(segment) + " is not ready");
  }
  recording_.begin_wait();
  if (!met_) HCCL_RETURN_IF_ERROR(meet());
  start_due();
  return communicator_->operations().queue().wait(segments_[segment].ticket);
}

void Overlap::mark(Point point) {
  if (point != Point::kIterationEnd && recording_.over()) begin_iteration();
  Times& times = recording_.now();
  switch (point) {
    case Point::kFpStart:
      times.fp_start = times.begin = now_ns();
      return;
    case Point::kBpEnd:
      times.bp_end = now_ns();
      return;
    case Point::kIterationEnd:
      times.iteration_end = now_ns();
      return;
  }
}

void Overlap::give_up_place() {
  if (place_ == nullptr) return;
  communicator_->operations().queue().cancel(place_);
  place_.reset();
}

// Runs before the first segment. Checks that all ranks will reduce the same gradients, and measures
// the cost.
Status Overlap::meet() {
  give_up_place();
  HCCL_RETURN_IF_ERROR(refusal_);
  std::vector<std::uint64_t> counts;
  std::vector<std::string> names;
  for (const auto& gradient : gradients_) {
    counts.push_back(gradient.count);
    names.push_back(gradient.name);
  }
  refusal_ = agree(*communicator_, {counts, names, type_, op_, plan_->last_indices,
                                    static_cast<int>(mode_), mode_ != Mode::kFixed && parallel_});
  HCCL_RETURN_IF_ERROR(refusal_);
  if (mode_ != Mode::kFixed) {
    HCCL_ASSIGN_OR_RETURN(
        automatic_, AutomaticPlan::create(communicator_, gradient_bytes(), plan_->last_indices,
                                          parallel_, mode_ == Mode::kTraced));
  }
  met_ = true;
  return {};
}

Status Overlap::end_window() {
  HCCL_ASSIGN_OR_RETURN(Decision decision,
                        automatic_->end_window(recording_.now(), recording_.past()));
  if (decision.changed) {
    HCCL_RETURN_IF_ERROR(lay_out(std::move(decision.last_indices)));
  } else {
    plan_ = std::make_shared<PlanVersion>(*plan_);
  }
  plan_->version = decision.version;
  plan_->predicted_end = nanoseconds(decision.predicted_end);
  plan_->lower_bound = nanoseconds(decision.lower_bound);
  return {};
}

}  // namespace hccl::split
