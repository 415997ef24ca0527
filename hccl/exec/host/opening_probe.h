// What the ranks of a host find out when they come together, as no table of costs knows it: the
// same machine may run them on cores that share a cache, or on cores far from each other.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "hccl/exec/host/host_path.h"
#include "hccl/exec/trials.h"
#include "hccl/kernels/kernels.h"

namespace hccl::exec::host {

/// Holds for some of the ranks, too.
struct Opening {
  /// How data is put into the rings. Past the caches where that is much faster: a line that another
  /// core has read costs a message to it before it is written anew, and it is read from that core's
  /// caches; from memory both may be quicker.
  kernels::Store ring_store = kernels::Store::kCached;
  bool attached = false;  ///< the ranks may copy from and to each other's memory (Way::kCma)
  /// Whether that is faster than what the other ways make of an alltoall, and of an allreduce, in
  /// memory that others do not reach; nothing where their ways would not take it anyway.
  std::optional<bool> cma_moves;
  std::optional<bool> cma_folds;

  /// Lets the path do accordingly. All of its ranks do so between the same runs.
  void apply(HostPath& path) const;
};

/// Collective: all ranks of the path (two at least) call it together, and all are told the same.
/// Tries what is open for some milliseconds; the path has it applied afterwards. cma: attaches the
/// path, and tries kCma where its ways would take it. A failure is that of an operation, after
/// which the path is of no more use.
Result<Opening> probe_opening(HostPath& path, bool cma,
                              std::function<Trials::Clock::time_point()> now = Trials::Clock::now);

}  // namespace hccl::exec::host
