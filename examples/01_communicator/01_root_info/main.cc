// All the steps of a program for HCCL, from aclInit to aclFinalize, with threads of one process as
// ranks: one rank makes the root info, all ranks join with it.
#include <sstream>
#include <thread>
#include <vector>

#include "../../common/check.h"

namespace {

constexpr uint32_t kRanks = 4;
constexpr int32_t kRootDevice = 0;

void rank_main(uint32_t rank, int32_t device, const HcclRootInfo* root_info, std::ostream& out) {
  // A thread needs a device to be a rank. The call returns when all ranks have joined.
  ACL_CHECK(aclrtSetDevice(device));
  HcclComm comm = nullptr;
  HCCL_CHECK(HcclCommInitRootInfo(kRanks, root_info, rank, &comm));
  aclrtStream stream = nullptr;
  ACL_CHECK(aclrtCreateStream(&stream));

  uint32_t size = 0;
  uint32_t id = 0;
  HCCL_CHECK(HcclGetRankSize(comm, &size));
  HCCL_CHECK(HcclGetRankId(comm, &id));

  // Collectives are fastest on device memory.
  float value = id;
  void* memory = nullptr;
  ACL_CHECK(aclrtMalloc(&memory, sizeof value, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMemcpy(memory, sizeof value, &value, sizeof value, ACL_MEMCPY_HOST_TO_DEVICE));

  // The call returns when the operation is in the stream. The synchronisation waits for its end.
  HCCL_CHECK(HcclAllReduce(memory, memory, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
  ACL_CHECK(aclrtSynchronizeStream(stream));

  ACL_CHECK(aclrtMemcpy(&value, sizeof value, memory, sizeof value, ACL_MEMCPY_DEVICE_TO_HOST));
  out << "rank " << id << " of " << size << ": the ranks add up to " << value << '\n';

  // Destroy first the communicator, then the memory and the stream of its operations.
  HCCL_CHECK(HcclCommDestroy(comm));
  ACL_CHECK(aclrtFree(memory));
  ACL_CHECK(aclrtDestroyStream(stream));
  ACL_CHECK(aclrtResetDevice(device));
}

}  // namespace

int main() {
  ACL_CHECK(aclInit(nullptr));
  uint32_t devices = 0;
  ACL_CHECK(aclrtGetDeviceCount(&devices));

  ACL_CHECK(aclrtSetDevice(kRootDevice));
  void* root_info_memory = nullptr;
  ACL_CHECK(aclrtMallocHost(&root_info_memory, sizeof(HcclRootInfo)));
  auto* root_info = static_cast<HcclRootInfo*>(root_info_memory);
  HCCL_CHECK(HcclGetRootInfo(root_info));

  std::vector<std::thread> threads;
  std::vector<std::ostringstream> lines(kRanks);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const auto device = static_cast<int32_t>(rank % devices);
    threads.emplace_back(rank_main, rank, device, root_info, std::ref(lines[rank]));
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::ostringstream& line : lines) std::fputs(line.str().c_str(), stdout);

  ACL_CHECK(aclrtFreeHost(root_info_memory));
  ACL_CHECK(aclrtResetDevice(kRootDevice));
  ACL_CHECK(aclFinalize());
}
