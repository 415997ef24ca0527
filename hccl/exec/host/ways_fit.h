// From measured times of the ways to the numbers that choose among them. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "hccl/exec/host/ways.h"

namespace hccl::exec::host {

/// An allreduce that took one way.
struct WaySample {
  Way way = Way::kPost;
  bool reachable = false;   ///< by the other ranks where it lies, as device memory is
  std::uint64_t bytes = 0;  ///< of a rank's input
  std::uint64_t chunk = 0;  ///< Ways::chunk; it matters to kStage alone
  std::uint64_t ns = 0;
  bool operator==(const WaySample&) const = default;
};

/// The way of an allreduce of `bytes` under these numbers.
Way way_of(const Ways& ways, bool reachable, std::uint64_t bytes);

/// The best numbers for the samples; `defaults` in all that the samples do not speak of, and where
/// they are as good but for a few percent.
Ways fit(const Ways& defaults, std::span<const WaySample> samples);

}  // namespace hccl::exec::host
