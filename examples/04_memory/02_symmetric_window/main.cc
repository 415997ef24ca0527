// A window: memory of the same size on every rank, registered once. Buffers anywhere inside it need
// no further preparation.
#include "../../common/ranks.h"

void symmetric_window(const example::Rank& rank) {
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
  size_t size = 0;
  ACL_CHECK(
      aclrtMemGetAllocationGranularity(&property, ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED, &size));
  void* base = nullptr;
  aclrtDrvMemHandle block = nullptr;
  ACL_CHECK(aclrtReserveMemAddress(&base, size, 0, nullptr, 0));
  ACL_CHECK(aclrtMallocPhysical(&block, size, &property, 0));
  ACL_CHECK(aclrtMapMem(base, size, 0, block, 0));

  HcclCommSymWindow window = nullptr;
  HCCL_CHECK(HcclCommSymWinRegister(comm, base, size, &window, 1));

  // Both buffers lie in the window.
  const uint64_t count = 2;
  const size_t bytes = count * sizeof(float);
  void* send = base;
  void* recv = static_cast<char*>(base) + bytes;
  const std::vector<float> input(count, 10 * rank.id);
  std::vector<float> output(count * rank.count);
  const size_t recv_bytes = output.size() * sizeof(float);
  ACL_CHECK(aclrtMemcpy(send, bytes, input.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));
  HCCL_CHECK(HcclAllGather(send, recv, count, HCCL_DATA_TYPE_FP32, comm, stream));
  ACL_CHECK(aclrtSynchronizeStream(stream));
  ACL_CHECK(aclrtMemcpy(output.data(), recv_bytes, recv, recv_bytes, ACL_MEMCPY_DEVICE_TO_HOST));
  rank.print("receives", output);

  // Finds the window of an address, and the offset in the window.
  HcclCommSymWindow found = nullptr;
  size_t offset = 0;
  HCCL_CHECK(HcclCommSymWinGet(comm, recv, recv_bytes, &found, &offset));
  rank.print("received in the window at byte", std::vector<size_t>{offset});

  HCCL_CHECK(HcclCommSymWinDeregister(window));
  HCCL_CHECK(HcclCommDestroy(comm));
  ACL_CHECK(aclrtUnmapMem(base));
  ACL_CHECK(aclrtFreePhysical(block));
  ACL_CHECK(aclrtReleaseMemAddress(base));
  ACL_CHECK(aclrtDestroyStream(stream));
  ACL_CHECK(aclrtResetDevice(rank.device));
}

int main(int argc, char** argv) { return example::run(argc, argv, symmetric_window); }
