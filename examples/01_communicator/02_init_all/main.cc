// One call makes the communicators of all devices of this process; rank i is devices[i].
#include <sstream>
#include <thread>
#include <vector>

#include "../../common/check.h"

namespace {

constexpr uint32_t kRanks = 4;

void rank_main(int32_t device, HcclComm comm, std::ostream& out) {
  ACL_CHECK(aclrtSetDevice(device));
  aclrtStream stream = nullptr;
  ACL_CHECK(aclrtCreateStream(&stream));

  uint32_t rank = 0;
  HCCL_CHECK(HcclGetRankId(comm, &rank));
  int32_t value = 1 << rank;
  void* memory = nullptr;
  ACL_CHECK(aclrtMalloc(&memory, sizeof value, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMemcpy(memory, sizeof value, &value, sizeof value, ACL_MEMCPY_HOST_TO_DEVICE));

  HCCL_CHECK(HcclAllReduce(memory, memory, 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, comm, stream));
  ACL_CHECK(aclrtSynchronizeStream(stream));

  ACL_CHECK(aclrtMemcpy(&value, sizeof value, memory, sizeof value, ACL_MEMCPY_DEVICE_TO_HOST));
  out << "device " << device << " is rank " << rank << ", sum " << value << '\n';

  HCCL_CHECK(HcclCommDestroy(comm));
  ACL_CHECK(aclrtFree(memory));
  ACL_CHECK(aclrtDestroyStream(stream));
  ACL_CHECK(aclrtResetDevice(device));
}

}  // namespace

int main() {
  ACL_CHECK(aclInit(nullptr));
  uint32_t available = 0;
  ACL_CHECK(aclrtGetDeviceCount(&available));
  if (available < kRanks) {
    std::fprintf(stderr, "this example needs %u devices, there are %u\n", kRanks, available);
    return 1;
  }

  std::vector<int32_t> devices(kRanks);
  for (uint32_t rank = 0; rank < kRanks; ++rank) devices[rank] = kRanks - 1 - rank;
  std::vector<HcclComm> comms(kRanks);
  HCCL_CHECK(HcclCommInitAll(kRanks, devices.data(), comms.data()));

  std::vector<std::thread> threads;
  std::vector<std::ostringstream> lines(kRanks);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back(rank_main, devices[rank], comms[rank], std::ref(lines[rank]));
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::ostringstream& line : lines) std::fputs(line.str().c_str(), stdout);
  ACL_CHECK(aclFinalize());
}
