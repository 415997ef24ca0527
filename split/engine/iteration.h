// The record of an iteration, which the fusion engine writes while the iteration runs: plain data,
// times in nanoseconds of one clock. Only for overlap*.cc and automatic_plan.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "split/strategy.h"

namespace hccl::split {

/// The values that all iterations with one plan share.
struct PlanVersion {
  Segments last_indices;
  std::vector<std::uint64_t> bytes;  ///< of each segment
  std::uint32_t version = 0;
  std::int64_t predicted_end = 0;
  std::int64_t lower_bound = 0;
};

/// Times of one iteration; 0 = did not happen.
struct Times {
  std::uint64_t number = 0;
  bool overlapped = false;
  std::int64_t begin = 0;
  std::int64_t fp_start = 0;
  std::int64_t bp_end = 0;
  std::int64_t wait_begin = 0;
  std::int64_t wait_end = 0;
  std::int64_t iteration_end = 0;
  std::vector<std::int64_t> ready;  ///< of each gradient
  std::vector<std::int64_t> start;  ///< of each segment; so are the members below
  std::vector<std::int64_t> end;
  std::vector<std::int64_t> cpu;
  std::vector<std::int64_t> wait_for_peer;
  std::vector<std::string> algorithm;
  std::shared_ptr<const PlanVersion> plan;
  std::int64_t compute_end() const { return bp_end != 0 ? bp_end : wait_begin; }
};

}  // namespace hccl::split
