// The root has a part for each rank, each rank gets its part.
#include "../../common/ranks.h"

void scatter(const example::Rank& rank) {
  ACL_CHECK(aclrtSetDevice(rank.device));
  HcclComm comm = nullptr;
  HCCL_CHECK(HcclCommInitRootInfo(rank.count, rank.root_info, rank.id, &comm));
  aclrtStream stream = nullptr;
  ACL_CHECK(aclrtCreateStream(&stream));

  const uint32_t root = 0;
  const uint64_t count = 2;
  const size_t bytes = count * sizeof(float);

  void* send = nullptr;  // only the root sends data
  if (rank.id == root) {
    std::vector<float> input(count * rank.count);
    for (size_t i = 0; i < input.size(); ++i) input[i] = i;
    const size_t send_bytes = bytes * rank.count;
    ACL_CHECK(aclrtMalloc(&send, send_bytes, ACL_MEM_MALLOC_HUGE_ONLY));
    ACL_CHECK(aclrtMemcpy(send, send_bytes, input.data(), send_bytes, ACL_MEMCPY_HOST_TO_DEVICE));
  }
  void* recv = nullptr;
  ACL_CHECK(aclrtMalloc(&recv, bytes, ACL_MEM_MALLOC_HUGE_ONLY));

  HCCL_CHECK(HcclScatter(send, recv, count, HCCL_DATA_TYPE_FP32, root, comm, stream));
  ACL_CHECK(aclrtSynchronizeStream(stream));

  std::vector<float> output(count);
  ACL_CHECK(aclrtMemcpy(output.data(), bytes, recv, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
  rank.print("receives", output);

  HCCL_CHECK(HcclCommDestroy(comm));
  if (send != nullptr) ACL_CHECK(aclrtFree(send));
  ACL_CHECK(aclrtFree(recv));
  ACL_CHECK(aclrtDestroyStream(stream));
  ACL_CHECK(aclrtResetDevice(rank.device));
}

int main(int argc, char** argv) { return example::run(argc, argv, scatter); }
