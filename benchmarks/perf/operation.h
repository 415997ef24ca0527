// A table of the collectives of hccl_perf: their buffers, their calls and their expected results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "benchmarks/perf/options.h"

namespace hccl_perf {

/// One collective. Element i of rank r's input is input(r, i); every result element is a function
/// of such inputs.
struct Operation {
  const char* name;
  /// The elements of the send buffer and of the receive buffer, for `count` elements of the larger
  /// buffer.
  std::uint64_t (*send_count)(std::uint64_t count, int ranks);
  std::uint64_t (*recv_count)(std::uint64_t count, int ranks);
  /// The bytes on the busiest link for each byte of the larger buffer: busbw = algbw * factor.
  double (*bus_factor)(int ranks);
  /// `count` counts elements of the larger buffer. It is a multiple of `ranks` if `blocks` is true.
  HcclResult (*run)(const Options&, void* send, void* recv, std::uint64_t count, int rank,
                    int ranks, HcclComm comm);
  /// Returns element i of rank `rank`'s receive buffer as a whole number.
  std::uint64_t (*expect)(const Options&, std::uint64_t i, std::uint64_t count, int rank,
                          int ranks);
  bool blocks;        ///< the larger buffer has one block for each rank
  bool recv_on_root;  ///< only the root has a result
};

const Operation& find_operation(const std::string& name);

/// Writes small whole numbers, exact in every type, that differ by rank, element and iteration.
void write_input(const Options& options, void* buffer, std::uint64_t elements, int rank, int ranks,
                 int round);
/// Returns the number of wrong elements in [begin, end).
std::uint64_t count_wrong(const Options& options, const Operation& operation, const void* buffer,
                          std::uint64_t begin, std::uint64_t end, std::uint64_t count, int rank,
                          int ranks, int round);

}  // namespace hccl_perf
