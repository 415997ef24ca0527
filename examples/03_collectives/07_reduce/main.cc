// Every rank gives a row of numbers, the root gets the sums.
#include "../../common/ranks.h"

void reduce(const example::Rank& rank) {
  ACL_CHECK(aclrtSetDevice(rank.device));
  HcclComm comm = nullptr;
  HCCL_CHECK(HcclCommInitRootInfo(rank.count, rank.root_info, rank.id, &comm));
  aclrtStream stream = nullptr;
  ACL_CHECK(aclrtCreateStream(&stream));

  const uint32_t root = 0;
  const uint64_t count = 4;
  const size_t bytes = count * sizeof(float);
  std::vector<float> values(count);
  for (uint64_t i = 0; i < count; ++i) values[i] = 10 * rank.id + i;

  void* send = nullptr;
  void* recv = nullptr;
  ACL_CHECK(aclrtMalloc(&send, bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMalloc(&recv, bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMemcpy(send, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));

  HCCL_CHECK(
      HcclReduce(send, recv, count, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, root, comm, stream));
  ACL_CHECK(aclrtSynchronizeStream(stream));

  if (rank.id == root) {
    ACL_CHECK(aclrtMemcpy(values.data(), bytes, recv, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    rank.print("receives", values);
  } else {
    rank.print("gave", values);
  }

  HCCL_CHECK(HcclCommDestroy(comm));
  ACL_CHECK(aclrtFree(send));
  ACL_CHECK(aclrtFree(recv));
  ACL_CHECK(aclrtDestroyStream(stream));
  ACL_CHECK(aclrtResetDevice(rank.device));
}

int main(int argc, char** argv) { return example::run(argc, argv, reduce); }
