// The trace: the times that one rank measured in each iteration, and the forms in which it can be
// read. Plain data, independent of the code that records it. All times are nanoseconds of one clock
// of the rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hccl/base/status.h"

namespace hccl::split {

inline constexpr std::uint32_t kTraceVersion = 1;

/// A named point in time. The names are HCCL's: fp_start (forward begins), bp_end (backward has
/// ended), allreduce1_start, allreduce1_end, ... (segments, counted from 1), iteration_end.
struct TracePoint {
  std::string name;
  std::int64_t time_ns = 0;
  bool operator==(const TracePoint&) const = default;
};

struct TraceGradient {
  std::uint32_t index = 0;
  std::string name;
  std::uint64_t bytes = 0;
  std::int64_t ready_ns = 0;
  bool operator==(const TraceGradient&) const = default;
};

struct TraceSegment {
  std::uint32_t first = 0;  ///< first and last gradient
  std::uint32_t last = 0;
  std::uint64_t bytes = 0;
  std::string algorithm;  ///< name of the schedule that ran
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  /// The part of end - start in which the segment waited for other ranks. The last rank to arrive
  /// does not wait: its time is the pure cost. The wait of a rank is its time minus the pure cost.
  /// The wait is known after the ranks' traces were merged. The engine merges them while it records
  /// for the planner; otherwise the value is 0.
  std::int64_t wait_for_peer_ns = 0;
  /// Of the thread that ran the segment; 0 if not recorded for the planner.
  std::int64_t cpu_ns = 0;
  bool operator==(const TraceSegment&) const = default;
};

struct TraceIteration {
  std::uint64_t number = 0;
  /// fp_start, bp_end, iteration_end. The points of segments are in `segments` only.
  std::vector<TracePoint> marks;
  std::vector<TraceGradient> gradients;
  std::vector<TraceSegment> segments;
  /// The begin of the iteration: fp_start or, if that was not marked, the end of the previous
  /// iteration.
  std::int64_t begin_ns = 0;
  /// The end of backward: bp_end or, if that was not marked, the time at which the program began to
  /// wait.
  std::int64_t compute_end_ns = 0;
  bool overlapped = true;  ///< segments ran during backward; otherwise all ran after it
  /// Version of the automatic plan in force (0: none), and its prediction: the end of the last
  /// segment and the lower bound, both from the begin.
  std::uint32_t plan_version = 0;
  std::int64_t predicted_end_ns = 0;
  std::int64_t lower_bound_ns = 0;
  bool operator==(const TraceIteration&) const = default;
};

struct Trace {
  std::uint32_t version = kTraceVersion;
  std::uint32_t rank = 0;
  std::uint32_t rank_size = 1;
  std::string group;
  std::vector<TraceIteration> iterations;
  bool operator==(const Trace&) const = default;
};

/// All named points of an iteration, from marks and segments, sorted by time. Points with equal
/// times keep the order of a normal iteration.
std::vector<TracePoint> points(const TraceIteration& iteration);

/// One point on each line, sorted by time: "<whole microseconds from the first point> <name>\n".
std::string timeline_text(const TraceIteration& iteration);

/// Chrome's trace format, which Perfetto (https://ui.perfetto.dev) opens. Each rank is a process
/// with a thread each for compute, allreduce and gradients. Times are those of the rank's clock, so
/// the files of the ranks of one host can be shown together. Bytes of names that are not UTF-8 are
/// replaced.
std::string chrome_json(const Trace& trace);

/// A table with one row for each point, gradient and segment (column `kind`), times in nanoseconds.
std::string csv(const Trace& trace);

/// Reads the trace from a file with the message, binary or JSON. kOpenFileFailure, kPara,
/// kNotSupport, all naming the path. kPara also for a file in Chrome's format or CSV, which can
/// only be written.
Result<Trace> read_trace(const std::string& path);

/// kPara, naming the iteration and the error: gradients that are not 0, 1, 2 ...; segments that do
/// not cover them, or whose bytes are not the sum of their gradients'; times that go backwards;
/// iterations with different gradients.
Status check_trace(const Trace& trace);

/// Merges the traces of all ranks, in any order, into one trace. A single trace of one rank stands
/// for all ranks. The result has the iterations that all ranks have, with times from the begin.
/// Each gradient is ready when the last rank has it. Each segment begins at the latest start and
/// takes its pure cost, the shortest time on any rank. kPara, naming the ranks: a rank twice or
/// missing, different gradients or segments, no common iteration; or as for check_trace.
Result<Trace> merge_ranks(std::span<const Trace> ranks);

/// Writes the trace to a file and replaces the file. The name decides the form: .pb.json gets the
/// message in JSON, any other .json Chrome's format, .csv the table, any other name the binary
/// message. Blocks on the disk. kOpenFileFailure, naming the path and the reason, if the file
/// cannot be written completely (no such folder, no permission, disk full); the file may then be
/// incomplete.
Status write_trace(const Trace& trace, const std::string& path);

}  // namespace hccl::split
