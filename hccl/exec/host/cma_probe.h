// Whether the kernel's copies pay on this machine, when nothing was measured before.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "hccl/exec/host/host_path.h"
#include "hccl/exec/trials.h"

namespace hccl::exec::host {

/// What is known of Way::kCma among the ranks of a host; of some of them, too.
struct CmaGains {
  bool attached = false;  ///< the ranks may copy from and to each other's memory
  /// Whether it is faster than what the other ways make of an alltoall, and of an allreduce, in
  /// memory that others do not reach; nothing where their ways would not take it anyway.
  std::optional<bool> moves;
  std::optional<bool> folds;

  /// The same ways, without kCma where it does not pay; of what folds, if that was not tried, where
  /// nothing else does either.
  Ways of(Ways ways) const;
};

/// Collective: all ranks of the path (two at least) call it together, and all are told the same.
/// Attaches the path and, where its ways would take kCma, tries that for some milliseconds. A
/// failure is that of an operation, after which the path is of no more use.
Result<CmaGains> measure_cma(HostPath& path,
                             std::function<Trials::Clock::time_point()> now = Trials::Clock::now);

}  // namespace hccl::exec::host
