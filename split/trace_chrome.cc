// Chrome's trace format: complete events (X) for intervals, instant events (i) for points.
#include <nlohmann/json.hpp>
#include <string>

#include "split/trace.h"

namespace hccl::split {
namespace {

using Json = nlohmann::ordered_json;

enum Thread : int { kCompute = 1, kAllreduce = 2, kGradients = 3 };

constexpr double us(std::int64_t ns) { return static_cast<double>(ns) / 1000; }

Json metadata(std::uint32_t rank, int thread, const char* what, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

Json complete(std::uint32_t rank, Thread thread, const std::string& name, std::int64_t start_ns,
              std::int64_t end_ns, Json args) {
  return {{"name", name},
          {"ph", "X"},
          {"ts", us(start_ns)},
          {"dur", us(end_ns - start_ns)},
          {"pid", rank},
          {"tid", static_cast<int>(thread)},
          {"args", std::move(args)}};
}

Json instant(std::uint32_t rank, Thread thread, const std::string& name, std::int64_t time_ns,
             Json args) {
  return {{"name", name},           {"ph", "i"},   {"s", "t"},
          {"ts", us(time_ns)},      {"pid", rank}, {"tid", static_cast<int>(thread)},
          {"args", std::move(args)}};
}

const TracePoint* find(const TraceIteration& iteration, std::string_view name) {
  for (const auto& mark : iteration.marks)
    if (mark.name == name) return &mark;
  return nullptr;
}

void append(Json& events, std::uint32_t rank, const TraceIteration& iteration) {
  Json which = {{"iteration", iteration.number}};
  if (iteration.plan_version != 0) which["plan"] = iteration.plan_version;
  const TracePoint* begin = find(iteration, "fp_start");
  const TracePoint* end = find(iteration, "bp_end");
  if (begin != nullptr && end != nullptr)
    events.push_back(
        complete(rank, kCompute, "forward and backward", begin->time_ns, end->time_ns, which));
  for (const auto& point : points(iteration))
    events.push_back(instant(rank, kCompute, point.name, point.time_ns, which));
  for (std::size_t k = 0; k < iteration.segments.size(); ++k) {
    const auto& segment = iteration.segments[k];
    events.push_back(complete(rank, kAllreduce, "allreduce" + std::to_string(k + 1),
                              segment.start_ns, segment.end_ns,
                              {{"iteration", iteration.number},
                               {"gradients", {segment.first, segment.last}},
                               {"bytes", segment.bytes},
                               {"algorithm", segment.algorithm},
                               {"wait_for_peer_us", us(segment.wait_for_peer_ns)},
                               {"cpu_us", us(segment.cpu_ns)}}));
  }
  for (const auto& gradient : iteration.gradients) {
    const std::string name =
        gradient.name.empty() ? "gradient " + std::to_string(gradient.index) : gradient.name;
    events.push_back(instant(
        rank, kGradients, name, gradient.ready_ns,
        {{"iteration", iteration.number}, {"index", gradient.index}, {"bytes", gradient.bytes}}));
  }
}

}  // namespace

std::string chrome_json(const Trace& trace) {
  Json events = Json::array();
  events.push_back(metadata(trace.rank, 0, "process_name", "rank " + std::to_string(trace.rank)));
  events.push_back(metadata(trace.rank, kCompute, "thread_name", "compute"));
  events.push_back(metadata(trace.rank, kAllreduce, "thread_name", "allreduce"));
  events.push_back(metadata(trace.rank, kGradients, "thread_name", "gradients"));
  for (const auto& iteration : trace.iterations) append(events, trace.rank, iteration);
  const Json document = {
      {"traceEvents", std::move(events)},
      {"displayTimeUnit", "ms"},
      {"otherData",
       {{"trace_version", trace.version}, {"rank_size", trace.rank_size}, {"group", trace.group}}}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hccl::split
