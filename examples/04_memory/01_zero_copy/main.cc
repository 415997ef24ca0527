// Buffers that all ranks can reach: the program reserves addresses, registers them with the
// communicator, and maps physical memory where it needs it. Operations on this memory make no
// copies.
#include "../../common/ranks.h"

void zero_copy(const example::Rank& rank) {
  ACL_CHECK(aclrtSetDevice(rank.device));
  HcclComm comm = nullptr;
  HCCL_CHECK(HcclCommInitRootInfo(rank.count, rank.root_info, rank.id, &comm));
  aclrtStream stream = nullptr;
  ACL_CHECK(aclrtCreateStream(&stream));

  aclrtPhysicalMemProp property = {};
  property.handleType = ACL_MEM_HANDLE_TYPE_NONE;
  property.allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED;
  property.memAttr = ACL_HBM_MEM_HUGE;
  property.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
  property.location.id = static_cast<uint32_t>(rank.device);
  size_t granularity = 0;
  ACL_CHECK(aclrtMemGetAllocationGranularity(&property, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM,
                                             &granularity));

  // Addresses for 16 blocks, without memory yet.
  const size_t range = 16 * granularity;
  void* base = nullptr;
  ACL_CHECK(aclrtReserveMemAddress(&base, range, 0, nullptr, 0));
  HCCL_CHECK(HcclCommSetMemoryRange(comm, base, range, 0, 0));

  // Memory for the first block.
  aclrtDrvMemHandle block = nullptr;
  ACL_CHECK(aclrtMallocPhysical(&block, granularity, &property, 0));
  ACL_CHECK(aclrtMapMem(base, granularity, 0, block, 0));
  HCCL_CHECK(HcclCommActivateCommMemory(comm, base, granularity, 0, block, 0));

  const uint64_t count = granularity / sizeof(int32_t);
  std::vector<int32_t> values(count, static_cast<int32_t>(rank.id));
  ACL_CHECK(aclrtMemcpy(base, granularity, values.data(), granularity, ACL_MEMCPY_HOST_TO_DEVICE));
  HCCL_CHECK(HcclAllReduce(base, base, count, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, comm, stream));
  ACL_CHECK(aclrtSynchronizeStream(stream));
  ACL_CHECK(aclrtMemcpy(values.data(), granularity, base, granularity, ACL_MEMCPY_DEVICE_TO_HOST));
  rank.print("has first and last", std::vector<int32_t>{values.front(), values.back()});

  // Releases everything in reverse order.
  HCCL_CHECK(HcclCommDeactivateCommMemory(comm, base));
  ACL_CHECK(aclrtUnmapMem(base));
  ACL_CHECK(aclrtFreePhysical(block));
  HCCL_CHECK(HcclCommUnsetMemoryRange(comm, base));
  HCCL_CHECK(HcclCommDestroy(comm));
  ACL_CHECK(aclrtReleaseMemAddress(base));
  ACL_CHECK(aclrtDestroyStream(stream));
  ACL_CHECK(aclrtResetDevice(rank.device));
}

int main(int argc, char** argv) { return example::run(argc, argv, zero_copy); }
