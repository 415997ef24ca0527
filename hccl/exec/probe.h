// Measures what messages between the ranks of a communicator cost, with the engine itself.
#pragma once

#include <chrono>
#include <functional>

#include "hccl/exec/executor.h"
#include "hccl/base/limits.h"
#include "hccl/exec/trials.h"
#include "hccl/schedule/message_costs.h"

namespace hccl::exec {

/// Collective: all ranks of the executor's mesh (two at least) call it together, and all get the
/// same numbers. Ends soon after `budget`; what did not fit is left out. A failure is that of an
/// operation, after which the executor is of no more use.
Result<schedule::MessageCosts> measure_messages(
    Executor& executor, int size, const Limits& limits, std::chrono::nanoseconds budget,
    std::function<Trials::Clock::time_point()> now = Trials::Clock::now);

}  // namespace hccl::exec
