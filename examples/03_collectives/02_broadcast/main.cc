// The root has a row of numbers; afterwards every rank has that row.
#include "../../common/ranks.h"

void broadcast(const example::Rank& rank) {
  ACL_CHECK(aclrtSetDevice(rank.device));
  HcclComm comm = nullptr;
  HCCL_CHECK(HcclCommInitRootInfo(rank.count, rank.root_info, rank.id, &comm));
  aclrtStream stream = nullptr;
  ACL_CHECK(aclrtCreateStream(&stream));

  const uint32_t root = 0;
  const uint64_t count = 4;
  const size_t bytes = count * sizeof(float);
  std::vector<float> values(count, -1);
  if (rank.id == root) values = {10, 20, 30, 40};

  void* buffer = nullptr;
  ACL_CHECK(aclrtMalloc(&buffer, bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMemcpy(buffer, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));

  HCCL_CHECK(HcclBroadcast(buffer, count, HCCL_DATA_TYPE_FP32, root, comm, stream));
  ACL_CHECK(aclrtSynchronizeStream(stream));

  ACL_CHECK(aclrtMemcpy(values.data(), bytes, buffer, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
  rank.print("has", values);

  HCCL_CHECK(HcclCommDestroy(comm));
  ACL_CHECK(aclrtFree(buffer));
  ACL_CHECK(aclrtDestroyStream(stream));
  ACL_CHECK(aclrtResetDevice(rank.device));
}

int main(int argc, char** argv) { return example::run(argc, argv, broadcast); }
