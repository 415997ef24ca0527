// The operations on a communicator that is known to be alive: check the arguments, call core.
// hccl.h and hcom.h both end here; they differ only in how they name the communicator.
#pragma once

#include "hccl/api/state.h"
#include "hccl/hccl.h"

namespace hccl::api {

Status all_reduce(core::Communicator& comm, void* in, void* out, std::uint64_t count,
                  HcclDataType type, HcclReduceOp op, aclrtStream stream);
Status broadcast(core::Communicator& comm, void* buffer, std::uint64_t count, HcclDataType type,
                 std::uint32_t root, aclrtStream stream);
Status reduce_scatter(core::Communicator& comm, void* in, void* out, std::uint64_t count,
                      HcclDataType type, HcclReduceOp op, aclrtStream stream);
Status all_gather(core::Communicator& comm, void* in, void* out, std::uint64_t count,
                  HcclDataType type, aclrtStream stream);
Status reduce(core::Communicator& comm, void* in, void* out, std::uint64_t count, HcclDataType type,
              HcclReduceOp op, std::uint32_t root, aclrtStream stream);
Status scatter(core::Communicator& comm, void* in, void* out, std::uint64_t count,
               HcclDataType type, std::uint32_t root, aclrtStream stream);
Status all_to_all(core::Communicator& comm, const void* in, std::uint64_t in_count,
                  HcclDataType in_type, void* out, std::uint64_t out_count, HcclDataType out_type,
                  aclrtStream stream);
Status send(core::Communicator& comm, void* buffer, std::uint64_t count, HcclDataType type,
            std::uint32_t peer, aclrtStream stream);
Status recv(core::Communicator& comm, void* buffer, std::uint64_t count, HcclDataType type,
            std::uint32_t peer, aclrtStream stream);
Status barrier(core::Communicator& comm, aclrtStream stream);

}  // namespace hccl::api
