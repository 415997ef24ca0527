// The checks of the operations' arguments. hccl.h, hccl_framework.h and hcom.h share the checks,
// because the three interfaces differ only in how they name the communicator. A check returns the
// call that entry.h then runs.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "hccl/api/call_group.h"
#include "hccl/hccl.h"
#include "hccl/hccl_framework.h"

namespace hccl::api {

using core::Communicator;
using exec::Transfer;

// `scale` is null if there are no factors.
Result<Call> all_reduce(const Communicator& comm, void* in, void* out, std::uint64_t count,
                        HcclDataType type, HcclReduceOp op, const HcclScale* scale);
Result<Call> broadcast(const Communicator& comm, void* buffer, std::uint64_t count,
                       HcclDataType type, std::uint32_t root);
Result<Call> reduce_scatter(const Communicator& comm, void* in, void* out, std::uint64_t count,
                            HcclDataType type, HcclReduceOp op, const HcclScale* scale);
Result<Call> all_gather(const Communicator& comm, void* in, void* out, std::uint64_t count,
                        HcclDataType type);
Result<Call> reduce(const Communicator& comm, void* in, void* out, std::uint64_t count,
                    HcclDataType type, HcclReduceOp op, const HcclScale* scale, std::uint32_t root);
Result<Call> scatter(const Communicator& comm, void* in, void* out, std::uint64_t count,
                     HcclDataType type, std::uint32_t root);
Result<Call> all_to_all(const Communicator& comm, const void* in, std::uint64_t in_count,
                        HcclDataType in_type, void* out, std::uint64_t out_count,
                        HcclDataType out_type);
inline Result<Call> barrier(const Communicator&) { return Call{}; }

// The arrays contain a 64-bit number for each rank; displacements are in elements. See hccl.h.
Result<CallWithBlocks> reduce_scatter_v(const Communicator& comm, void* in, const void* in_counts,
                                        const void* in_displs, void* out, std::uint64_t out_count,
                                        HcclDataType type, HcclReduceOp op);
Result<CallWithBlocks> all_gather_v(const Communicator& comm, const void* in,
                                    std::uint64_t in_count, void* out, const void* out_counts,
                                    const void* out_displs, HcclDataType type);
Result<CallWithBlocks> all_to_all_v(const Communicator& comm, const void* in, const void* in_counts,
                                    const void* in_displs, HcclDataType in_type, void* out,
                                    const void* out_counts, const void* out_displs,
                                    HcclDataType out_type);
Result<CallWithBlocks> all_to_all_vc(const Communicator& comm, const void* in, const void* matrix,
                                     HcclDataType in_type, void* out, HcclDataType out_type);

/// The srTag of HcomSend and HcomReceive; no value for HcclSend and HcclRecv.
using SrTag = std::optional<std::uint32_t>;
Result<std::array<Transfer, 1>> send(const Communicator& comm, void* buffer, std::uint64_t count,
                                     HcclDataType type, std::uint32_t peer, SrTag tag);
Result<std::array<Transfer, 1>> recv(const Communicator& comm, void* buffer, std::uint64_t count,
                                     HcclDataType type, std::uint32_t peer, SrTag tag);
Result<std::vector<Transfer>> batch_send_recv(const Communicator& comm,
                                              const HcclSendRecvItem* items,
                                              std::uint32_t item_num);

/// Returns the messages of a refused send, receive or batch, with peer and direction only. If the
/// call names no other rank as its peer, all other ranks count as its peers. A collective has no
/// messages.
using Messages = std::optional<std::vector<Transfer>>;
Messages messages_of(const Communicator& comm, decltype(&send) check, void* buffer,
                     std::uint64_t count, HcclDataType type, std::uint32_t peer, SrTag tag);
Messages messages_of(const Communicator& comm, decltype(&batch_send_recv) check,
                     HcclSendRecvItem* items, std::uint32_t item_num);
template <class... Others>
Messages messages_of(const Communicator&, const Others&...) {
  return {};
}

}  // namespace hccl::api
