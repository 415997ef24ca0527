// The trace: what one rank measured in each iteration, and the forms in which it can be read. Plain
// data, apart from whoever records it. All times are nanoseconds of one clock of the rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hccl/base/status.h"

namespace hccl::split {

inline constexpr std::uint32_t kTraceVersion = 1;

/// A named moment. The names are HCCL's: fp_start (forward begins), bp_end (backward has ended),
/// allreduce1_start, allreduce1_end, ... (segments, counted from 1), iteration_end.
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
  /// The part of end - start that was spent waiting for other ranks: what this rank took longer
  /// than the last one to arrive, whose time is the pure cost. Known once the ranks' traces have
  /// been merged, which the engine does while it records for the planner; else 0.
  std::int64_t wait_for_peer_ns = 0;
  std::int64_t cpu_ns = 0;  ///< of the thread that ran it; 0 unless recorded for the planner
  bool operator==(const TraceSegment&) const = default;
};

struct TraceIteration {
  std::uint64_t number = 0;
  std::vector<TracePoint>
      marks;  ///< fp_start, bp_end, iteration_end; the segments' points are not kept twice
  std::vector<TraceGradient> gradients;
  std::vector<TraceSegment> segments;
  /// Where the iteration begins: fp_start, or, if that was not marked, where the one before ended.
  std::int64_t begin_ns = 0;
  /// Where backward ends: bp_end, or, if that was not marked, where the program began to wait.
  std::int64_t compute_end_ns = 0;
  bool overlapped = true;  ///< segments ran beside backward; else all ran behind it
  /// Of the automatic plan in force, 0 where there is none; and what it promised: the end of the
  /// last segment and the lower bound, from the begin.
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

/// All named points of an iteration, marks and segments, sorted by time; equal times keep the order
/// of a normal iteration.
std::vector<TracePoint> points(const TraceIteration& iteration);

/// One point a line, sorted by time: "<whole microseconds from the first point> <name>\n".
std::string timeline_text(const TraceIteration& iteration);

/// Chrome's trace format, which Perfetto (https://ui.perfetto.dev) opens: one process a rank, with
/// a thread each for compute, allreduce and gradients. Times keep the rank's clock, so that the
/// files of the ranks of one host can be put side by side. Bytes of names that are not UTF-8 are
/// replaced.
std::string chrome_json(const Trace& trace);

/// A table with one row for each point, gradient and segment (column `kind`), times in nanoseconds.
std::string csv(const Trace& trace);

/// The trace in a file that holds the message, binary or JSON. kOpenFileFailure, kPara,
/// kNotSupport, all naming the path; kPara says so if the file is one of the two forms that are
/// only written.
Result<Trace> read_trace(const std::string& path);

/// kPara, naming the iteration and what is wrong: gradients that are not 0, 1, 2 ...; segments that
/// do not cover them, or whose bytes are not the sum of theirs; times that go backwards; iterations
/// of different gradients.
Status check_trace(const Trace& trace);

/// One trace out of those of all ranks, in any order, or out of that of one rank, which then stands
/// for all: for each iteration that all have, times from its begin, gradients ready when the last
/// rank has them, and each segment with its pure cost: the shortest time any rank took for it, from
/// the latest start. kPara, naming the ranks: a rank twice or missing, other gradients or segments,
/// no common iteration; or as check_trace.
Result<Trace> merge_ranks(std::span<const Trace> ranks);

/// Writes the trace to a file, replacing it: a name that ends in .pb.json gets the message in JSON,
/// any other .json Chrome's format, .csv the table, any other the binary message. Blocks on the
/// disk. kOpenFileFailure, naming the path and the reason, when it cannot be written whole (no such
/// folder, no permission, disk full); the file may then be incomplete.
Status write_trace(const Trace& trace, const std::string& path);

}  // namespace hccl::split
