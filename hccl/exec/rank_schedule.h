// The schedule that this rank runs, with the sizes on which all ranks must agree.
#pragma once

#include <cstddef>
#include <span>

#include "hccl/schedule/algorithm.h"
#include "transport/transport.h"

namespace hccl::exec {

/// The schedule of one rank, and the largest sizes that any rank needs. All ranks use these sizes,
/// so they cut the vector in the same way.
struct RankSchedule {
  schedule::Schedule schedule;
  int most_slots = 0;             ///< the most scratch slots of any rank
  std::size_t most_reducing = 0;  ///< the most reducing receives in one step
  bool folds_at_once = true;      ///< every fold takes the inputs of all ranks
};

/// `order` gives the rank at each position of the schedule, for algorithms with any_order. If
/// `order` is empty, ranks are in rank order.
RankSchedule make_rank_schedule(const schedule::Algorithm& algorithm, const schedule::Shape& shape,
                                std::span<const int> order = {});

/// Lets the mesh open the links for all sends of the schedule at once, before the first send.
void open_links(transport::Mesh& mesh, const RankSchedule& rank_schedule);

}  // namespace hccl::exec
