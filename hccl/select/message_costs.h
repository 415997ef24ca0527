// The costs of messages and folds between the ranks of a communicator, and the time of a schedule
// predicted from them. Pure: the same numbers give the same time on every rank.
#pragma once

#include <cstdint>
#include <vector>

#include "hccl/base/status.h"
#include "hccl/schedule/algorithm.h"

namespace hccl::select {

inline constexpr std::uint64_t kKiB = 1024;

struct MessageCosts {
  /// A step in which every rank sends one message of `bytes` and receives one takes step_ns. Each
  /// further message of the step adds more_ns.
  struct Step {
    std::uint64_t bytes = 0;
    std::uint64_t step_ns = 0;
    std::uint64_t more_ns = 0;
    bool operator==(const Step&) const = default;
  };

  std::vector<Step> steps;  ///< by rising bytes; at least one
  std::uint64_t fold_ns_per_mib = 0;

  bool operator==(const MessageCosts&) const = default;
  /// kPara: the steps are empty or not in order, or a number is implausible.
  Status check() const;
};

/// Predicted nanoseconds of an operation on a vector of `bytes`, on one lane. The time never falls
/// when `bytes` rises.
double predict_ns(const schedule::Algorithm& algorithm, int size, std::uint64_t bytes, int depth,
                  const MessageCosts& costs);

}  // namespace hccl::select
