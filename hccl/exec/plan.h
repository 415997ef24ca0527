// A schedule as this rank runs it, with the sizes that all ranks must agree on.
#pragma once

#include <cstddef>
#include <span>

#include "hccl/schedule/algorithm.h"

namespace hccl::exec {

/// The schedule of one rank, and the largest needs of any rank, so that all ranks cut alike.
struct Plan {
  schedule::Schedule schedule;
  int most_slots = 0;             ///< scratch slots
  std::size_t most_reducing = 0;  ///< reducing receives of one step
  bool folds_at_once = true;      ///< every fold is of the inputs of all ranks
};

/// `order`: the rank at each place of the schedule, where the algorithm takes any_order; empty: in
/// rank order.
Plan make_plan(const schedule::Algorithm& algorithm, const schedule::Shape& shape,
               std::span<const int> order = {});

}  // namespace hccl::exec
