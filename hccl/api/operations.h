// The operations on a communicator that is known to be alive: check the arguments, call core.
// hccl.h and hcom.h share these functions; they differ only in how they name the communicator. A
// null stream runs the operation now on the caller's thread; with a created one the arguments are
// checked and the operation's place in the communicator's order is taken now, and it runs when the
// stream comes to it. Inside HcclGroupStart and HcclGroupEnd it waits for the end.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "hccl/api/state.h"
#include "hccl/hccl.h"
#include "hccl/hccl_framework.h"

namespace hccl::api {

Status all_reduce(const CommunicatorPtr& comm, void* in, void* out, std::uint64_t count,
                  HcclDataType type, HcclReduceOp op, aclrtStream stream);
Status broadcast(const CommunicatorPtr& comm, void* buffer, std::uint64_t count, HcclDataType type,
                 std::uint32_t root, aclrtStream stream);
Status reduce_scatter(const CommunicatorPtr& comm, void* in, void* out, std::uint64_t count,
                      HcclDataType type, HcclReduceOp op, aclrtStream stream);
Status all_gather(const CommunicatorPtr& comm, void* in, void* out, std::uint64_t count,
                  HcclDataType type, aclrtStream stream);
Status reduce(const CommunicatorPtr& comm, void* in, void* out, std::uint64_t count,
              HcclDataType type, HcclReduceOp op, std::uint32_t root, aclrtStream stream);
Status scatter(const CommunicatorPtr& comm, void* in, void* out, std::uint64_t count,
               HcclDataType type, std::uint32_t root, aclrtStream stream);
Status all_to_all(const CommunicatorPtr& comm, const void* in, std::uint64_t in_count,
                  HcclDataType in_type, void* out, std::uint64_t out_count, HcclDataType out_type,
                  aclrtStream stream);
Status barrier(const CommunicatorPtr& comm, aclrtStream stream);

// With factors; null: none.
Status all_reduce_scaled(const CommunicatorPtr& comm, void* in, void* out, std::uint64_t count,
                         HcclDataType type, HcclReduceOp op, const HcclScale* scale,
                         aclrtStream stream);
Status reduce_scatter_scaled(const CommunicatorPtr& comm, void* in, void* out, std::uint64_t count,
                             HcclDataType type, HcclReduceOp op, const HcclScale* scale,
                             aclrtStream stream);
Status reduce_scaled(const CommunicatorPtr& comm, void* in, void* out, std::uint64_t count,
                     HcclDataType type, HcclReduceOp op, const HcclScale* scale, std::uint32_t root,
                     aclrtStream stream);

// Arrays hold a 64-bit number a rank; displacements are elements. See hccl.h.
Status reduce_scatter_v(const CommunicatorPtr& comm, void* in, const void* in_counts,
                        const void* in_displs, void* out, std::uint64_t out_count,
                        HcclDataType type, HcclReduceOp op, aclrtStream stream);
Status all_gather_v(const CommunicatorPtr& comm, const void* in, std::uint64_t in_count, void* out,
                    const void* out_counts, const void* out_displs, HcclDataType type,
                    aclrtStream stream);
Status all_to_all_v(const CommunicatorPtr& comm, const void* in, const void* in_counts,
                    const void* in_displs, HcclDataType in_type, void* out, const void* out_counts,
                    const void* out_displs, HcclDataType out_type, aclrtStream stream);
Status all_to_all_vc(const CommunicatorPtr& comm, const void* in, const void* matrix,
                     HcclDataType in_type, void* out, HcclDataType out_type, aclrtStream stream);

Status send(const CommunicatorPtr& comm, void* buffer, std::uint64_t count, HcclDataType type,
            std::uint32_t peer, aclrtStream stream);
Status recv(const CommunicatorPtr& comm, void* buffer, std::uint64_t count, HcclDataType type,
            std::uint32_t peer, aclrtStream stream);
Status batch_send_recv(const CommunicatorPtr& comm, const HcclSendRecvItem* items,
                       std::uint32_t item_num, aclrtStream stream);

/// The messages that a refused send, receive or batch was for, as far as it can be told: those to
/// or from all ranks where the peer is no other one. Nothing for a collective.
using Messages = std::optional<std::vector<exec::Transfer>>;
Messages messages_of(const core::Communicator& comm, decltype(&send) operation, void* buffer,
                     std::uint64_t count, HcclDataType type, std::uint32_t peer,
                     aclrtStream stream);
Messages messages_of(const core::Communicator& comm, decltype(&batch_send_recv) operation,
                     HcclSendRecvItem* items, std::uint32_t item_num, aclrtStream stream);
template <class... Others>
Messages messages_of(const core::Communicator&, const Others&...) {
  return {};
}

/// Runs a checked collective, as described above.
Status issue(const CommunicatorPtr& comm, const Call& call, aclrtStream stream);
/// The same with blocks, which need not outlive the call.
Status issue(const CommunicatorPtr& comm, Call call, std::vector<Block> in_blocks,
             std::vector<Block> out_blocks, aclrtStream stream);

}  // namespace hccl::api
