// Measures the ways of the host path against each other.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "hccl/exec/host/host_path.h"
#include "hccl/exec/host/ways_fit.h"
#include "hccl/exec/trials.h"

namespace hccl::exec::host {

/// Collective: all ranks of the path (two at least) call it together, and all get the same samples.
/// Ends soon after `budget`, short inputs first; what did not fit is left out. Sets the path's ways
/// back to `defaults`. `heap`: this process's device heap, whose memory others reach; may be null.
/// A failure is that of an operation, after which the path is of no more use.
Result<std::vector<WaySample>> measure_ways(
    HostPath& path, memory::Heap* heap, const Ways& defaults, std::chrono::nanoseconds budget,
    std::function<Trials::Clock::time_point()> now = Trials::Clock::now);

}  // namespace hccl::exec::host
