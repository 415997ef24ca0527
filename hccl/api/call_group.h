// Runs a checked call on its communicator: now, queued in a stream, or collected between
// HcclGroupStart and HcclGroupEnd.
#pragma once

#include <vector>

#include "hccl/acl/stream.h"
#include "hccl/api/groups.h"
#include "hccl/base/call.h"
#include "hccl/exec/transfer.h"

namespace hccl::api {

/// One call that runs later, with everything it needs. A collective or, if there are transfers, a
/// batch of sends and receives.
struct Job {
  CommunicatorPtr comm;
  aclrtStream stream = nullptr;
  Call call;
  std::vector<Block> in_blocks;  // the spans of `call` point here
  std::vector<Block> out_blocks;
  std::vector<exec::Transfer> transfers;

  /// Runs it on the caller's thread at its place in the communicator's order.
  Status run(const core::OpQueue::Ticket& place);
};

/// Whether the calling thread has a group of calls open.
bool in_call_group();

/// Adds a call to the calling thread's open group. kPara: calls of another kind are in it, or a
/// send or receive on another stream than those before it on this communicator.
Status collect(Job job);
/// A call was refused: its group of calls, if there is one, does not run and ends with this
/// failure.
[[gnu::cold]] void refuse_call_group(const Status& why, const char* function) noexcept;

/// Queues the job in its stream, and takes its place in the communicator's order now.
Status enqueue(Job job);

}  // namespace hccl::api
