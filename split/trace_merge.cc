// Merges the traces of all ranks, and checks that a trace is consistent.
#include <algorithm>
#include <map>
#include <string>

#include "split/trace.h"

namespace hccl::split {
namespace {

Status wrong(const Trace& trace, const TraceIteration& iteration, const std::string& what) {
  return Status(Code::kPara, "bad trace of rank " + std::to_string(trace.rank) + ", iteration " +
                                 std::to_string(iteration.number) + ": " + what);
}

std::string number(std::int64_t value) { return std::to_string(value); }

std::int64_t mark_or(const TraceIteration& iteration, const char* name, std::int64_t otherwise) {
  for (const auto& mark : iteration.marks)
    if (mark.name == name) return mark.time_ns;
  return otherwise;
}

Status check_gradients(const Trace& trace, const TraceIteration& iteration) {
  if (iteration.gradients.empty()) return wrong(trace, iteration, "it has no gradients");
  for (std::size_t i = 0; i < iteration.gradients.size(); ++i) {
    const auto& gradient = iteration.gradients[i];
    if (gradient.index != i) {
      return wrong(
          trace, iteration,
          "gradient " + std::to_string(i) + " has the index " + std::to_string(gradient.index));
    }
    if (gradient.ready_ns < iteration.begin_ns) {
      return wrong(trace, iteration,
                   "gradient " + std::to_string(i) + " is ready at " + number(gradient.ready_ns) +
                       ", before the begin at " + number(iteration.begin_ns));
    }
  }
  if (iteration.compute_end_ns < iteration.begin_ns)
    return wrong(trace, iteration, "backward ends before the iteration begins");
  return {};
}

Status check_segments(const Trace& trace, const TraceIteration& iteration) {
  std::size_t next = 0;
  for (std::size_t k = 0; k < iteration.segments.size(); ++k) {
    const auto& segment = iteration.segments[k];
    const std::string name = "allreduce" + std::to_string(k + 1);
    if (segment.first != next || segment.last < segment.first ||
        segment.last >= iteration.gradients.size()) {
      return wrong(trace, iteration,
                   name + " has the gradients " + std::to_string(segment.first) + " to " +
                       std::to_string(segment.last) + ": it must begin with " +
                       std::to_string(next) + ", and there are " +
                       std::to_string(iteration.gradients.size()));
    }
    std::uint64_t bytes = 0;
    for (; next <= segment.last; ++next) bytes += iteration.gradients[next].bytes;
    if (bytes != segment.bytes) {
      return wrong(trace, iteration,
                   name + " has " + std::to_string(segment.bytes) + " bytes, its gradients " +
                       std::to_string(bytes));
    }
    if (segment.end_ns < segment.start_ns || segment.start_ns < iteration.begin_ns ||
        (k > 0 && segment.start_ns < iteration.segments[k - 1].end_ns)) {
      return wrong(trace, iteration,
                   name + " runs from " + number(segment.start_ns) + " to " +
                       number(segment.end_ns) +
                       ": times must not go backwards, segments not overlap");
    }
    const std::int64_t took = segment.end_ns - segment.start_ns;
    if (segment.wait_for_peer_ns < 0 || segment.wait_for_peer_ns > took) {
      return wrong(trace, iteration,
                   name + " waits " + number(segment.wait_for_peer_ns) + " ns of " + number(took));
    }
  }
  if (next != iteration.gradients.size()) {
    return wrong(trace, iteration,
                 "its segments leave out the gradients from " + std::to_string(next) + " on");
  }
  return {};
}

// Checks that two iterations have the same gradients. They may belong to one rank or to two.
Status check_same_gradients(const Trace& trace, const TraceIteration& iteration, const Trace& other,
                            const TraceIteration& reference) {
  const std::string whom = trace.rank == other.rank
                               ? "iteration " + std::to_string(reference.number)
                               : "rank " + std::to_string(other.rank);
  if (iteration.gradients.size() != reference.gradients.size()) {
    return wrong(trace, iteration,
                 "it has " + std::to_string(iteration.gradients.size()) + " gradients, " + whom +
                     " has " + std::to_string(reference.gradients.size()));
  }
  for (std::size_t i = 0; i < iteration.gradients.size(); ++i) {
    const auto& mine = iteration.gradients[i];
    const auto& theirs = reference.gradients[i];
    if (mine.bytes == theirs.bytes && mine.name == theirs.name) continue;
    return wrong(trace, iteration,
                 "gradient " + std::to_string(i) + " is " + mine.name + " of " +
                     std::to_string(mine.bytes) + " bytes; " + whom + " has " + theirs.name +
                     " of " + std::to_string(theirs.bytes));
  }
  return {};
}

std::int64_t pure(const TraceSegment& segment) {
  return segment.end_ns - segment.start_ns - segment.wait_for_peer_ns;
}

void normalize(TraceIteration& iteration) {
  const std::int64_t begin = iteration.begin_ns;
  iteration.compute_end_ns -= begin;
  iteration.begin_ns = 0;
  for (auto& mark : iteration.marks) mark.time_ns -= begin;
  for (auto& gradient : iteration.gradients) gradient.ready_ns -= begin;
  for (auto& segment : iteration.segments) {
    segment.start_ns += segment.wait_for_peer_ns - begin;
    segment.end_ns -= begin;
    segment.wait_for_peer_ns = 0;
  }
}

// For each segment, takes the later start of the two ranks and the shorter pure cost.
Status merge(TraceIteration& into, TraceIteration other, const Trace& trace) {
  for (std::size_t i = 0; i < into.gradients.size(); ++i) {
    auto& ready = into.gradients[i].ready_ns;
    ready = std::max(ready, other.gradients[i].ready_ns);
  }
  if (into.segments.size() != other.segments.size()) {
    return wrong(trace, other,
                 "it has " + std::to_string(other.segments.size()) +
                     " segments, another rank has " + std::to_string(into.segments.size()));
  }
  for (std::size_t k = 0; k < into.segments.size(); ++k) {
    auto& mine = into.segments[k];
    const auto& theirs = other.segments[k];
    if (mine.last != theirs.last) {
      return wrong(trace, other,
                   "allreduce" + std::to_string(k + 1) + " ends with gradient " +
                       std::to_string(theirs.last) + ", that of another rank with " +
                       std::to_string(mine.last));
    }
    const std::int64_t shortest = std::min(pure(mine), pure(theirs));
    mine.start_ns = std::max(mine.start_ns, theirs.start_ns);
    mine.end_ns = mine.start_ns + shortest;
    mine.cpu_ns = std::max(mine.cpu_ns, theirs.cpu_ns);
  }
  into.compute_end_ns = std::max(into.compute_end_ns, other.compute_end_ns);
  for (auto& mark : into.marks)
    mark.time_ns = std::max(mark.time_ns, mark_or(other, mark.name.c_str(), mark.time_ns));
  return {};
}

Status check_ranks(std::span<const Trace> ranks) {
  if (ranks.empty()) return Status(Code::kPara, "no traces");
  std::map<std::uint32_t, int> seen;
  for (const Trace& trace : ranks) {
    if (trace.group != ranks[0].group) {
      return Status(Code::kPara, "a trace is of group \"" + trace.group +
                                     "\", the first of group \"" + ranks[0].group + "\"");
    }
    if (trace.rank_size != ranks[0].rank_size || trace.rank >= trace.rank_size) {
      return Status(Code::kPara, "a trace is of rank " + std::to_string(trace.rank) + " of " +
                                     std::to_string(trace.rank_size) + ", the first of one of " +
                                     std::to_string(ranks[0].rank_size));
    }
    if (++seen[trace.rank] > 1)
      return Status(Code::kPara, "rank " + std::to_string(trace.rank) + " has two traces");
  }
  if (ranks.size() == 1 || seen.size() == ranks[0].rank_size) return {};
  std::string missing;
  for (std::uint32_t rank = 0; rank < ranks[0].rank_size && missing.size() < 40; ++rank)
    if (seen.count(rank) == 0) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  return Status(Code::kPara, "traces of ranks are missing: " + missing + " of " +
                                 std::to_string(ranks[0].rank_size));
}

}  // namespace

Status check_trace(const Trace& trace) {
  for (const auto& iteration : trace.iterations) {
    HCCL_RETURN_IF_ERROR(check_gradients(trace, iteration));
    HCCL_RETURN_IF_ERROR(check_same_gradients(trace, iteration, trace, trace.iterations.front()));
    HCCL_RETURN_IF_ERROR(check_segments(trace, iteration));
  }
  return {};
}

Result<Trace> merge_ranks(std::span<const Trace> ranks) {
  HCCL_RETURN_IF_ERROR(check_ranks(ranks));
  std::map<std::uint64_t, TraceIteration> merged;
  std::map<std::uint64_t, std::size_t> had_by;
  for (const Trace& trace : ranks) {
    HCCL_RETURN_IF_ERROR(check_trace(trace));
    for (TraceIteration iteration : trace.iterations) {
      if (!ranks[0].iterations.empty()) {
        HCCL_RETURN_IF_ERROR(
            check_same_gradients(trace, iteration, ranks[0], ranks[0].iterations.front()));
      }
      normalize(iteration);
      if (++had_by[iteration.number] == 1) {
        merged.emplace(iteration.number, std::move(iteration));
        continue;
      }
      const std::uint64_t key = iteration.number;
      HCCL_RETURN_IF_ERROR(merge(merged.at(key), std::move(iteration), trace));
    }
  }
  Trace out{kTraceVersion, 0, ranks[0].rank_size, ranks[0].group, {}};
  for (auto& [key, iteration] : merged)
    if (had_by.at(key) == ranks.size()) out.iterations.push_back(std::move(iteration));
  if (out.iterations.empty()) return Status(Code::kPara, "the traces have no iteration in common");
  return out;
}

}  // namespace hccl::split
