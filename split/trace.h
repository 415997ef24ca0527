// The trace: the times that one rank measured in each iteration, and the forms in which programs
// can read them. A trace is plain data, independent of the code that records it. All times are
// nanoseconds of one clock of the rank.
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
  std::uint32_t first = 0;  ///< indices of the first and the last gradient
  std::uint32_t last = 0;
  std::uint64_t bytes = 0;
  std::string algorithm;  ///< name of the schedule that ran
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  /// The part of end - start in which the segment waited for other ranks. The last rank to arrive
  /// does not wait, so its time is the pure cost; another rank's wait is its time minus the pure
  /// cost. The value is known after the traces of all ranks are merged. The engine merges them
  /// while it records for the planner; otherwise the value is 0.
  std::int64_t wait_for_peer_ns = 0;
  /// CPU time of the thread that ran the segment; 0 if not recorded for the planner.
  std::int64_t cpu_ns = 0;
  bool operator==(const TraceSegment&) const = default;
};

struct TraceIteration {
  std::uint64_t number = 0;
  /// fp_start, bp_end, iteration_end. The points of segments are in `segments` only.
  std::vector<TracePoint> marks;
  std::vector<TraceGradient> gradients;
  std::vector<TraceSegment> segments;
  /// The start of the iteration: fp_start or, if that was not marked, the end of the previous
  /// iteration.
  std::int64_t begin_ns = 0;
  /// The end of backward: bp_end or, if that was not marked, the time at which the program began to
  /// wait.
  std::int64_t compute_end_ns = 0;
  bool overlapped = true;  ///< segments ran during backward; otherwise all ran after it
  /// The version of the automatic plan in force (0: no plan), and the plan's prediction: the end of
  /// the last segment and the lower bound, both measured from the start of the iteration.
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

/// Returns one line for each point, sorted by time: "<whole microseconds from the first point>
/// <name>\n".
std::string timeline_text(const TraceIteration& iteration);

/// Returns Chrome's trace format, which Perfetto (https://ui.perfetto.dev) opens. Each rank is a
/// process with one thread for compute, one for allreduce and one for gradients. Times are those of
/// the rank's clock, so the files of the ranks of one host can be shown together. Bytes of names
/// that are not UTF-8 are replaced.
std::string chrome_json(const Trace& trace);

/// Returns a table with one row for each point, gradient and segment (column `kind`). Times are
/// nanoseconds.
std::string csv(const Trace& trace);

/// Reads the trace from a file with the message: in binary, as JSON, or in Chrome's format as
/// write_trace() writes it. Fails with kOpenFileFailure, kPara or kNotSupport; the error text names
/// the path. CSV, and Chrome's format without the message, can only be written: reading them fails
/// with kPara.
Result<Trace> read_trace(const std::string& path);

/// Checks that a trace is consistent. Fails with kPara, and names the iteration and the error, if
/// the indices of gradients are not 0, 1, 2 ...; if segments do not cover the gradients, or their
/// bytes are not the sum of their gradients' bytes; if times go backwards; or if iterations have
/// different gradients.
Status check_trace(const Trace& trace);

/// Merges the traces of all ranks, in any order, into one trace. A single trace of one rank stands
/// for all ranks. The result has the iterations that all ranks have, with times from the start of
/// the iteration. Each gradient is ready when the last rank has it. Each segment begins at the
/// latest start and takes its pure cost, the shortest time on any rank. Fails with kPara, and names
/// the ranks, if a rank is missing or present twice, if gradients or segments differ, or if there
/// is no common iteration. Also fails as check_trace() does.
Result<Trace> merge_ranks(std::span<const Trace> ranks);

/// Writes the trace to a file, and replaces an existing file. The name decides the form: .pb.json
/// gets the message in JSON, any other .json Chrome's format, .csv the table, any other name the
/// binary message. Blocks on the disk. Fails with kOpenFileFailure, and names the path and the
/// reason, if the file cannot be written completely (no such folder, no permission, disk full); the
/// file may then be incomplete.
Status write_trace(const Trace& trace, const std::string& path);

}  // namespace hccl::split
