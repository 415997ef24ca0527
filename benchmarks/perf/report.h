// The table of hccl_perf: on the terminal, as JSON and as CSV.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "benchmarks/perf/options.h"

namespace hccl_perf {

/// The result of one size with one algorithm. Times are those of the slowest rank.
struct Row {
  std::string algorithm;  ///< "": the library's choice
  bool chosen = false;    ///< the library chooses this algorithm
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  double p50_us = 0;
  double p99_us = 0;
  double min_us = 0;
  double algbw = 0;  ///< GB/s: bytes / p50
  double busbw = 0;
  double cpu = 0;           ///< processor seconds of a rank in each second, the mean of all ranks
  double wait = 0;          ///< the share of time in which a rank sleeps, the mean of all ranks
  std::int64_t wrong = -1;  ///< wrong elements; -1: not checked
};

void print_header(const Options& options, int ranks);
void print_row(const Row& row);
/// Prints that an algorithm cannot be used, and the reason.
void print_refused(std::uint64_t bytes, const std::string& algorithm, const std::string& reason);
/// Returns false, with a message on standard error, if a file cannot be written.
bool write_files(const Options& options, int ranks, const std::vector<Row>& rows);

}  // namespace hccl_perf
