// Processes that join with a rank table: a file that lists all ranks with their hosts and devices.
//   rank_table TABLE RANK
#include "../../common/check.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s rank_table.json rank\n", argv[0]);
    return 2;
  }
  const char* table = argv[1];
  const auto rank = static_cast<uint32_t>(std::atoi(argv[2]));

  // In this table rank r has device r.
  const auto device = static_cast<int32_t>(rank);
  ACL_CHECK(aclInit(nullptr));
  ACL_CHECK(aclrtSetDevice(device));
  HcclComm comm = nullptr;
  HCCL_CHECK(HcclCommInitClusterInfo(table, rank, &comm));
  aclrtStream stream = nullptr;
  ACL_CHECK(aclrtCreateStream(&stream));

  uint32_t size = 0;
  HCCL_CHECK(HcclGetRankSize(comm, &size));
  float value = rank;
  void* memory = nullptr;
  ACL_CHECK(aclrtMalloc(&memory, sizeof value, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMemcpy(memory, sizeof value, &value, sizeof value, ACL_MEMCPY_HOST_TO_DEVICE));

  HCCL_CHECK(HcclAllReduce(memory, memory, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
  ACL_CHECK(aclrtSynchronizeStream(stream));

  ACL_CHECK(aclrtMemcpy(&value, sizeof value, memory, sizeof value, ACL_MEMCPY_DEVICE_TO_HOST));
  std::printf("rank %u of %u: the ranks add up to %g\n", rank, size, value);

  HCCL_CHECK(HcclCommDestroy(comm));
  ACL_CHECK(aclrtFree(memory));
  ACL_CHECK(aclrtDestroyStream(stream));
  ACL_CHECK(aclrtResetDevice(device));
  ACL_CHECK(aclFinalize());
}
