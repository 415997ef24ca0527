// An alltoall of unequal parts, in which each rank knows the whole matrix of counts. The parts are
// contiguous.
#include "../../common/ranks.h"

void alltoallvc(const example::Rank& rank) {
  ACL_CHECK(aclrtSetDevice(rank.device));
  HcclComm comm = nullptr;
  HCCL_CHECK(HcclCommInitRootInfo(rank.count, rank.root_info, rank.id, &comm));
  aclrtStream stream = nullptr;
  ACL_CHECK(aclrtCreateStream(&stream));

  // matrix[from * count + to]: the number of elements from one rank to another; equal on all ranks.
  std::vector<uint64_t> matrix(rank.count * rank.count);
  for (uint32_t from = 0; from < rank.count; ++from) {
    for (uint32_t to = 0; to < rank.count; ++to) matrix[from * rank.count + to] = (from + to) % 3;
  }
  std::vector<float> input;
  uint64_t received = 0;
  for (uint32_t peer = 0; peer < rank.count; ++peer) {
    input.insert(input.end(), matrix[rank.id * rank.count + peer], 10 * rank.id + peer);
    received += matrix[peer * rank.count + rank.id];
  }
  std::vector<float> output(received);
  const size_t send_bytes = input.size() * sizeof(float);
  const size_t recv_bytes = output.size() * sizeof(float);

  void* send = nullptr;
  void* recv = nullptr;
  ACL_CHECK(aclrtMalloc(&send, send_bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMalloc(&recv, recv_bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMemcpy(send, send_bytes, input.data(), send_bytes, ACL_MEMCPY_HOST_TO_DEVICE));

  HCCL_CHECK(HcclAlltoAllVC(send, matrix.data(), HCCL_DATA_TYPE_FP32, recv, HCCL_DATA_TYPE_FP32,
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

int main(int argc, char** argv) { return example::run(argc, argv, alltoallvc); }
