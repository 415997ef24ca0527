// A reduce-scatter of unequal parts: every rank gives r + 1 numbers for each rank r, and each rank
// gets the sums of its part.
#include "../../common/ranks.h"

void reduce_scatterv(const example::Rank& rank) {
  ACL_CHECK(aclrtSetDevice(rank.device));
  HcclComm comm = nullptr;
  HCCL_CHECK(HcclCommInitRootInfo(rank.count, rank.root_info, rank.id, &comm));
  aclrtStream stream = nullptr;
  ACL_CHECK(aclrtCreateStream(&stream));

  // The number of elements for each rank, and the place where they begin; the same on all ranks.
  std::vector<uint64_t> counts, displacements;
  uint64_t total = 0;
  for (uint32_t r = 0; r < rank.count; ++r) {
    counts.push_back(r + 1);
    displacements.push_back(total);
    total += counts[r];
  }
  std::vector<float> input(total);
  std::vector<float> output(counts[rank.id]);
  const size_t send_bytes = input.size() * sizeof(float);
  const size_t recv_bytes = output.size() * sizeof(float);
  for (size_t i = 0; i < input.size(); ++i) input[i] = i;

  void* send = nullptr;
  void* recv = nullptr;
  ACL_CHECK(aclrtMalloc(&send, send_bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMalloc(&recv, recv_bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMemcpy(send, send_bytes, input.data(), send_bytes, ACL_MEMCPY_HOST_TO_DEVICE));

  HCCL_CHECK(HcclReduceScatterV(send, counts.data(), displacements.data(), recv, counts[rank.id],
                                HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
  ACL_CHECK(aclrtSynchronizeStream(stream));

  ACL_CHECK(aclrtMemcpy(output.data(), recv_bytes, recv, recv_bytes, ACL_MEMCPY_DEVICE_TO_HOST));
  rank.print("receives", output);

  HCCL_CHECK(HcclCommDestroy(comm));
  ACL_CHECK(aclrtFree(send));
  ACL_CHECK(aclrtFree(recv));
  ACL_CHECK(aclrtDestroyStream(stream));
  ACL_CHECK(aclrtResetDevice(rank.device));
}

int main(int argc, char** argv) { return example::run(argc, argv, reduce_scatterv); }
