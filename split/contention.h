// What compute and communication lose to each other while both run. Pure.
#pragma once

#include <optional>

#include "split/planner.h"

namespace hccl::split {

/// How long things take in iterations without segments beside compute, and in those with. Seconds;
/// medians.
struct ApartAndBeside {
  double compute_alone = 0;
  double compute_beside = 0;
  double busy = 0;  ///< how long segments ran beside compute
  double work = 0;  ///< how long that part of them takes alone
};

/// Nothing if busy is less than a twentieth of compute: too little to tell.
std::optional<Contention> contention_of(const ApartAndBeside& measured);

}  // namespace hccl::split
