// Runs a checked call later: queues it in a stream, or collects it between HcclGroupStart and
// HcclGroupEnd.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "hccl/acl/stream.h"
#include "hccl/api/groups.h"
#include "hccl/base/call.h"
#include "hccl/exec/transfer.h"

namespace hccl::api {

/// A call that owns the blocks to which its spans point.
class CallWithBlocks : public Call {
 public:
  explicit CallWithBlocks(const Call& call, std::vector<Block> input = {},
                          std::vector<Block> output = {})
      : Call(call), input_(std::move(input)), output_(std::move(output)) {
    in_blocks = input_;
    out_blocks = output_;
  }
  CallWithBlocks(const CallWithBlocks& other)
      : CallWithBlocks(other, other.input_, other.output_) {}
  CallWithBlocks(CallWithBlocks&&) = default;  // the blocks keep their addresses
  CallWithBlocks& operator=(CallWithBlocks&&) = default;

 private:
  std::vector<Block> input_;
  std::vector<Block> output_;
};

struct CallGroup;

/// Data of a thread that each of its operations reads.
struct ThreadCalls {
  CallGroup* open = nullptr;  ///< the thread's open group of calls
  std::uint32_t tag = 0;      ///< set by HcclSetCallTag
};
const ThreadCalls& thread_calls();

/// Whether the calling thread has a group of calls open.
inline bool in_call_group() { return thread_calls().open != nullptr; }
/// A forked child calls this to forget the open group, which belongs to the parent.
void leave_call_group_of_parent() noexcept;

/// Adds a checked collective, or a batch of sends and receives, to the calling thread's open group.
/// Without an open group, queues the call in its stream and gives the call its place in the
/// communicator's order now. kPara: the group has calls of another kind, or has sends or receives
/// of this communicator on another stream.
Status run_later(const CommunicatorPtr& comm, aclrtStream stream, CallWithBlocks call);
Status run_later(const CommunicatorPtr& comm, aclrtStream stream,
                 std::span<const exec::Transfer> transfers);
inline Status run_later(const CommunicatorPtr& comm, aclrtStream stream, const Call& call) {
  return run_later(comm, stream, CallWithBlocks(call));
}

/// Runs `join`, which makes a communicator, now or at the end of the calling thread's open group.
/// The joins of a group run at once, each on its own thread. `function` is the name in error texts.
/// kPara: the group has operations.
Status join_later(const char* function, std::function<Status()> join);

/// Handles a refused call: if a group of calls is open, the group does not run and ends with this
/// failure.
[[gnu::cold]] void refuse_call_group(const Status& why, const char* function) noexcept;

}  // namespace hccl::api
