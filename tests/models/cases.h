// The cases that run the library's templates: small programs, each with a name.
#pragma once

#include <string>
#include <vector>

#include "hccl/base/waiter.h"
#include "tests/models/model.h"

namespace hccl::model {

struct Case {
  std::string name;
  Scenario scenario;
  Bounds bounds;  /// bounds of the short form
};

/// Sleeping and waking; aborts.
std::vector<Case> doorbell_cases();
/// The shared region of a host's ranks.
std::vector<Case> region_cases(int ranks);
/// The links of the shm transport over their rings.
std::vector<Case> link_cases(int ranks);

/// Memory that all ranks of a case share; all cases use the same memory. The first `zeroes` bytes
/// are zero when an execution begins.
std::byte* shared_memory(std::size_t bytes, std::size_t zeroes);

inline constexpr WaitPolicy kSleeps{.spin = std::chrono::nanoseconds(0),
                                    .longest_nap = std::chrono::hours(1)};

}  // namespace hccl::model
