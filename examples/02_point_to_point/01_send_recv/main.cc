// The ranks form a ring: each sends to the next rank and receives from the previous one. A send
// waits for its receive, so neighbours take turns.
#include "../../common/ranks.h"

void send_recv(const example::Rank& rank) {
  ACL_CHECK(aclrtSetDevice(rank.device));
  HcclComm comm = nullptr;
  HCCL_CHECK(HcclCommInitRootInfo(rank.count, rank.root_info, rank.id, &comm));
  aclrtStream stream = nullptr;
  ACL_CHECK(aclrtCreateStream(&stream));

  const uint32_t next = (rank.id + 1) % rank.count;
  const uint32_t previous = (rank.id + rank.count - 1) % rank.count;
  const uint64_t count = 2;
  const size_t bytes = count * sizeof(float);
  std::vector<float> values(count, 10 * rank.id);

  void* send = nullptr;
  void* recv = nullptr;
  ACL_CHECK(aclrtMalloc(&send, bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMalloc(&recv, bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMemcpy(send, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));

  // Even ranks send first, odd ranks receive first.
  if (rank.id % 2 == 0) {
    HCCL_CHECK(HcclSend(send, count, HCCL_DATA_TYPE_FP32, next, comm, stream));
    HCCL_CHECK(HcclRecv(recv, count, HCCL_DATA_TYPE_FP32, previous, comm, stream));
  } else {
    HCCL_CHECK(HcclRecv(recv, count, HCCL_DATA_TYPE_FP32, previous, comm, stream));
    HCCL_CHECK(HcclSend(send, count, HCCL_DATA_TYPE_FP32, next, comm, stream));
  }
  ACL_CHECK(aclrtSynchronizeStream(stream));

  ACL_CHECK(aclrtMemcpy(values.data(), bytes, recv, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
  rank.print("receives from rank " + std::to_string(previous) + ":", values);

  HCCL_CHECK(HcclCommDestroy(comm));
  ACL_CHECK(aclrtFree(send));
  ACL_CHECK(aclrtFree(recv));
  ACL_CHECK(aclrtDestroyStream(stream));
  ACL_CHECK(aclrtResetDevice(rank.device));
}

int main(int argc, char** argv) { return example::run(argc, argv, send_recv); }
