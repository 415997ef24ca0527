// Every rank sends r + 1 numbers to rank r: an alltoall of unequal parts, in which each rank knows
// only its own counts.
#include "../../common/ranks.h"

void alltoallv(const example::Rank& rank) {
  ACL_CHECK(aclrtSetDevice(rank.device));
  HcclComm comm = nullptr;
  HCCL_CHECK(HcclCommInitRootInfo(rank.count, rank.root_info, rank.id, &comm));
  aclrtStream stream = nullptr;
  ACL_CHECK(aclrtCreateStream(&stream));

  std::vector<uint64_t> send_counts, send_displacements, recv_counts, recv_displacements;
  std::vector<float> input;
  uint64_t received = 0;
  for (uint32_t peer = 0; peer < rank.count; ++peer) {
    send_counts.push_back(peer + 1);
    send_displacements.push_back(input.size());
    input.insert(input.end(), peer + 1, 10 * rank.id + peer);
    recv_counts.push_back(rank.id + 1);
    recv_displacements.push_back(received);
    received += rank.id + 1;
  }
  std::vector<float> output(received);
  const size_t send_bytes = input.size() * sizeof(float);
  const size_t recv_bytes = output.size() * sizeof(float);

  void* send = nullptr;
  void* recv = nullptr;
  ACL_CHECK(aclrtMalloc(&send, send_bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMalloc(&recv, recv_bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMemcpy(send, send_bytes, input.data(), send_bytes, ACL_MEMCPY_HOST_TO_DEVICE));

  HCCL_CHECK(HcclAlltoAllV(send, send_counts.data(), send_displacements.data(), HCCL_DATA_TYPE_FP32,
                           recv, recv_counts.data(), recv_displacements.data(), HCCL_DATA_TYPE_FP32,
                           comm, stream));
  ACL_CHECK(aclrtSynchronizeStream(stream));

  ACL_CHECK(aclrtMemcpy(output.data(), recv_bytes, recv, recv_bytes, ACL_MEMCPY_DEVICE_TO_HOST));
  rank.print("receives", output);

  HCCL_CHECK(HcclCommDestroy(comm));
  ACL_CHECK(aclrtFree(send));
  ACL_CHECK(aclrtFree(recv));
  ACL_CHECK(aclrtDestroyStream(stream));
  ACL_CHECK(aclrtResetDevice(rank.device));
}

int main(int argc, char** argv) { return example::run(argc, argv, alltoallv); }
