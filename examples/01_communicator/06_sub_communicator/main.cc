// The even ranks and the odd ranks of a communicator each get a communicator of their own.
#include "../../common/ranks.h"

void sub_communicator(const example::Rank& rank) {
  ACL_CHECK(aclrtSetDevice(rank.device));
  HcclComm world = nullptr;
  HCCL_CHECK(HcclCommInitRootInfo(rank.count, rank.root_info, rank.id, &world));
  aclrtStream stream = nullptr;
  ACL_CHECK(aclrtCreateStream(&stream));

  // The ranks with the same parity as this rank, in the order of their new numbers.
  std::vector<uint32_t> members;
  for (uint32_t r = rank.id % 2; r < rank.count; r += 2) members.push_back(r);
  const uint64_t sub_id = rank.id % 2;
  const uint32_t sub_rank = rank.id / 2;
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  HcclComm sub = nullptr;
  HCCL_CHECK(HcclCreateSubCommConfig(&world, static_cast<uint32_t>(members.size()), members.data(),
                                     sub_id, sub_rank, &config, &sub));

  float value = rank.id;
  void* memory = nullptr;
  ACL_CHECK(aclrtMalloc(&memory, sizeof value, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMemcpy(memory, sizeof value, &value, sizeof value, ACL_MEMCPY_HOST_TO_DEVICE));

  HCCL_CHECK(HcclAllReduce(memory, memory, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, sub, stream));
  ACL_CHECK(aclrtSynchronizeStream(stream));

  ACL_CHECK(aclrtMemcpy(&value, sizeof value, memory, sizeof value, ACL_MEMCPY_DEVICE_TO_HOST));
  rank.out << "rank " << rank.id << " is rank " << sub_rank << " of the "
           << (sub_id == 0 ? "even" : "odd") << " ones, which add up to " << value << '\n';

  HCCL_CHECK(HcclCommDestroy(sub));
  HCCL_CHECK(HcclCommDestroy(world));
  ACL_CHECK(aclrtFree(memory));
  ACL_CHECK(aclrtDestroyStream(stream));
  ACL_CHECK(aclrtResetDevice(rank.device));
}

int main(int argc, char** argv) { return example::run(argc, argv, sub_communicator); }
