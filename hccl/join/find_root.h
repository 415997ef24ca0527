// How a rank finds the root: it tries the ports of the root info until a process answers with the
// proof that it holds the job's secret.
#pragma once

#include <string>

#include "hccl/base/deadline.h"
#include "hccl/base/log.h"
#include "hccl/join/line.h"
#include "hccl/join/root_info.h"

namespace hccl::join {

/// Returns a line after both ends have proved that they hold the secret. kTimeout if no root
/// answers; kTcpConnect if another program answers at the only port. `from`: the local address to
/// bind to, or empty. If a root of another secret or job answers, the log gets a warning after a
/// second, and the error says so, too.
Result<Line> find_root(const RootInfo& info, const std::string& from, Deadline deadline,
                       const Logger& log);

}  // namespace hccl::join
