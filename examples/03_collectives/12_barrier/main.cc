// No rank passes the barrier before every rank has reached it.
#include <atomic>

#include "../../common/ranks.h"

std::atomic<int> arrived{0};

void barrier(const example::Rank& rank) {
  ACL_CHECK(aclrtSetDevice(rank.device));
  HcclComm comm = nullptr;
  HCCL_CHECK(HcclCommInitRootInfo(rank.count, rank.root_info, rank.id, &comm));
  aclrtStream stream = nullptr;
  ACL_CHECK(aclrtCreateStream(&stream));

  ++arrived;
  HCCL_CHECK(HcclBarrier(comm, stream));
  ACL_CHECK(aclrtSynchronizeStream(stream));
  rank.print("passes the barrier; ranks that came to it:", std::vector<int>{arrived});

  HCCL_CHECK(HcclCommDestroy(comm));
  ACL_CHECK(aclrtDestroyStream(stream));
  ACL_CHECK(aclrtResetDevice(rank.device));
}

int main(int argc, char** argv) { return example::run(argc, argv, barrier); }
