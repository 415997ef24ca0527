// Every rank gives two numbers; every rank gets the numbers of all ranks, in rank order.
#include "../../common/ranks.h"

void allgather(const example::Rank& rank) {
  ACL_CHECK(aclrtSetDevice(rank.device));
  HcclComm comm = nullptr;
  HCCL_CHECK(HcclCommInitRootInfo(rank.count, rank.root_info, rank.id, &comm));
  aclrtStream stream = nullptr;
  ACL_CHECK(aclrtCreateStream(&stream));

  const uint64_t count = 2;
  const float first = 10 * rank.id;
  const std::vector<float> input = {first, first + 1};
  std::vector<float> output(count * rank.count);
  const size_t send_bytes = input.size() * sizeof(float);
  const size_t recv_bytes = output.size() * sizeof(float);

  void* send = nullptr;
  void* recv = nullptr;
  ACL_CHECK(aclrtMalloc(&send, send_bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMalloc(&recv, recv_bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMemcpy(send, send_bytes, input.data(), send_bytes, ACL_MEMCPY_HOST_TO_DEVICE));

  HCCL_CHECK(HcclAllGather(send, recv, count, HCCL_DATA_TYPE_FP32, comm, stream));
  ACL_CHECK(aclrtSynchronizeStream(stream));

  ACL_CHECK(aclrtMemcpy(output.data(), recv_bytes, recv, recv_bytes, ACL_MEMCPY_DEVICE_TO_HOST));
  rank.print("receives", output);

  HCCL_CHECK(HcclCommDestroy(comm));
  ACL_CHECK(aclrtFree(send));
  ACL_CHECK(aclrtFree(recv));
  ACL_CHECK(aclrtDestroyStream(stream));
  ACL_CHECK(aclrtResetDevice(rank.device));
}

int main(int argc, char** argv) { return example::run(argc, argv, allgather); }
