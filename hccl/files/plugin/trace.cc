// Converts the trace to a Protobuf message and back.
#include "split/trace.h"

#include <string>

#include "hccl/files/plugin/message.h"
#include "hccl/files/plugin/trace.pb.h"

namespace hccl::files {
namespace {

using split::kTraceVersion;
using split::Trace;
using split::TraceIteration;

constexpr char kTraceName[] = "trace";

/// Protobuf texts must be UTF-8, but names come from users. Replaces every byte that is not part of
/// a well-formed sequence by '?'.
std::string utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const unsigned char lead = byte(i);
    const std::size_t length = lead < 0x80                    ? 1
                               : lead >= 0xC2 && lead < 0xE0  ? 2
                               : lead >= 0xE0 && lead < 0xF0  ? 3
                               : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                              : 0;
    bool good = length > 0 && i + length <= text.size();
    for (std::size_t k = 1; good && k < length; ++k) good = (byte(i + k) & 0xC0) == 0x80;
    if (good && length > 2) {  // no overlong forms, no surrogates, nothing above U+10FFFF
      const unsigned char second = byte(i + 1);
      good = !(lead == 0xE0 && second < 0xA0) && !(lead == 0xED && second > 0x9F) &&
             !(lead == 0xF0 && second < 0x90) && !(lead == 0xF4 && second > 0x8F);
    }
    if (good) {
      result += text.substr(i, length);
      i += length;
    } else {
      result += '?';
      ++i;
    }
  }
  return result;
}

proto::Trace to_message(const Trace& trace) {
  proto::Trace message;
  message.set_version(trace.version);
  message.set_rank(trace.rank);
  message.set_rank_size(trace.rank_size);
  message.set_group(utf8(trace.group));
  for (const auto& iteration : trace.iterations) {
    auto* out = message.add_iterations();
    out->set_number(iteration.number);
    for (const auto& mark : iteration.marks) {
      auto* point = out->add_marks();
      point->set_name(utf8(mark.name));
      point->set_time_ns(mark.time_ns);
    }
    for (const auto& gradient : iteration.gradients) {
      auto* item = out->add_gradients();
      item->set_index(gradient.index);
      item->set_name(utf8(gradient.name));
      item->set_bytes(gradient.bytes);
      item->set_ready_ns(gradient.ready_ns);
    }
    for (const auto& segment : iteration.segments) {
      auto* item = out->add_segments();
      item->set_first(segment.first);
      item->set_last(segment.last);
      item->set_bytes(segment.bytes);
      item->set_algorithm(utf8(segment.algorithm));
      item->set_start_ns(segment.start_ns);
      item->set_end_ns(segment.end_ns);
      item->set_wait_for_peer_ns(segment.wait_for_peer_ns);
      item->set_cpu_ns(segment.cpu_ns);
    }
    out->set_begin_ns(iteration.begin_ns);
    out->set_compute_end_ns(iteration.compute_end_ns);
    out->set_behind_backward(!iteration.overlapped);
    out->set_plan_version(iteration.plan_version);
    out->set_predicted_end_ns(iteration.predicted_end_ns);
    out->set_lower_bound_ns(iteration.lower_bound_ns);
  }
  return message;
}

Result<Trace> from_message(const proto::Trace& message) {
  if (message.version() == 0) return Status(Code::kPara, "not a trace: it has no version");
  if (message.version() > kTraceVersion)
    return Status(Code::kNotSupport, "trace version " + std::to_string(message.version()) +
                                         " is newer than " + std::to_string(kTraceVersion) +
                                         ", the newest one this library reads: update it");
  Trace trace{message.version(), message.rank(), message.rank_size(), message.group(), {}};
  trace.iterations.reserve(static_cast<std::size_t>(message.iterations_size()));
  for (const auto& in : message.iterations()) {
    TraceIteration iteration;
    iteration.number = in.number();
    for (const auto& mark : in.marks()) iteration.marks.push_back({mark.name(), mark.time_ns()});
    for (const auto& item : in.gradients())
      iteration.gradients.push_back({item.index(), item.name(), item.bytes(), item.ready_ns()});
    for (const auto& item : in.segments())
      iteration.segments.push_back({item.first(), item.last(), item.bytes(), item.algorithm(),
                                    item.start_ns(), item.end_ns(), item.wait_for_peer_ns(),
                                    item.cpu_ns()});
    iteration.begin_ns = in.begin_ns();
    iteration.compute_end_ns = in.compute_end_ns();
    iteration.overlapped = !in.behind_backward();
    iteration.plan_version = in.plan_version();
    iteration.predicted_end_ns = in.predicted_end_ns();
    iteration.lower_bound_ns = in.lower_bound_ns();
    trace.iterations.push_back(std::move(iteration));
  }
  return trace;
}

}  // namespace

Codec<Trace> trace_codec() {
  return codec<Trace, proto::Trace, to_message, from_message, kTraceName>();
}

}  // namespace hccl::files
