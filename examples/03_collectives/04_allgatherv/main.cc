// Rank r gives r + 1 numbers; every rank gets all numbers: an allgather of unequal parts.
#include "../../common/ranks.h"

void allgatherv(const example::Rank& rank) {
  ACL_CHECK(aclrtSetDevice(rank.device));
  HcclComm comm = nullptr;
  HCCL_CHECK(HcclCommInitRootInfo(rank.count, rank.root_info, rank.id, &comm));
  aclrtStream stream = nullptr;
  ACL_CHECK(aclrtCreateStream(&stream));

  // The number of elements from each rank, and the place where they begin; the same on all ranks.
  std::vector<uint64_t> counts, displacements;
  uint64_t total = 0;
  for (uint32_t r = 0; r < rank.count; ++r) {
    counts.push_back(r + 1);
    displacements.push_back(total);
    total += counts[r];
  }
  const std::vector<float> input(counts[rank.id], 10 * rank.id);
  std::vector<float> output(total);
  const size_t send_bytes = input.size() * sizeof(float);
  const size_t recv_bytes = output.size() * sizeof(float);

  void* send = nullptr;
  void* recv = nullptr;
  ACL_CHECK(aclrtMalloc(&send, send_bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMalloc(&recv, recv_bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMemcpy(send, send_bytes, input.data(), send_bytes, ACL_MEMCPY_HOST_TO_DEVICE));

  HCCL_CHECK(HcclAllGatherV(send, counts[rank.id], recv, counts.data(), displacements.data(),
                            HCCL_DATA_TYPE_FP32, comm, stream));
  ACL_CHECK(aclrtSynchronizeStream(stream));

  ACL_CHECK(aclrtMemcpy(output.data(), recv_bytes, recv, recv_bytes, ACL_MEMCPY_DEVICE_TO_HOST));
  rank.print("receives", output);

  HCCL_CHECK(HcclCommDestroy(comm));
  ACL_CHECK(aclrtFree(send));
  ACL_CHECK(aclrtFree(recv));
  ACL_CHECK(aclrtDestroyStream(stream));
  ACL_CHECK(aclrtResetDevice(rank.device));
}

int main(int argc, char** argv) { return example::run(argc, argv, allgatherv); }
