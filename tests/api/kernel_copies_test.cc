// When the ranks join, the kernel may copy between them; later it refuses copies to one rank. The
// operation then fails on all ranks with the same text, and later operations do without the
// kernel's copies.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "hccl/hccl_comm.h"
#include "tests/support/api_processes.h"

namespace hccl::testing {
namespace {

constexpr int kSize = 3;
constexpr int kLoser = 1;
constexpr std::size_t kCount = 300'000;  // elements of a rank's block

// For all threads of the process, because a group may open on a thread of the library.
bool refuse_copies() {
  const auto number = static_cast<std::uint32_t>(offsetof(seccomp_data, nr));
  std::array filter = {
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

/// An operation on private memory; returns false if it succeeds with wrong values.
using Operation = std::function<bool(HcclComm comm, int rank, HcclResult& result)>;

bool sum(HcclComm comm, int rank, HcclResult& result) {
  std::vector<std::int32_t> data(kCount, rank + 1);
  result = HcclAllReduce(data.data(), data.data(), kCount, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM,
                         comm, nullptr);
  return result != HCCL_SUCCESS || data == std::vector<std::int32_t>(kCount, 6);
}

bool gather(HcclComm comm, int rank, HcclResult& result) {
  std::vector<std::int32_t> mine(kCount, rank + 1);
  std::vector<std::int32_t> all(kSize * kCount);
  result = HcclAllGather(mine.data(), all.data(), kCount, HCCL_DATA_TYPE_INT32, comm, nullptr);
  for (std::size_t i = 0; i < all.size() && result == HCCL_SUCCESS; ++i) {
    if (all[i] != static_cast<std::int32_t>(i / kCount) + 1) return false;
  }
  return true;
}

bool scatter(HcclComm comm, int rank, HcclResult& result) {
  std::vector<std::int32_t> all(kSize * kCount);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i / kCount);
  std::vector<std::int32_t> mine(kCount, -1);
  result = HcclScatter(all.data(), mine.data(), kCount, HCCL_DATA_TYPE_INT32, 0, comm, nullptr);
  return result != HCCL_SUCCESS || mine == std::vector<std::int32_t>(kCount, rank);
}

int run_rank(Board& board, int rank, const Operation& operation) {
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);  // lets other ranks copy, not only a parent
  HcclComm comm = nullptr;
  if (join_public(board, kSize, rank, &comm) != HCCL_SUCCESS) return 1;
  HcclResult result = HCCL_E_INTERNAL;
  for (int i = 0; i < 3; ++i) {
    if (!operation(comm, rank, result) || result != HCCL_SUCCESS) return 2;
  }
  if (rank == kLoser && !refuse_copies()) return 3;
  operation(comm, rank, result);
  board.first[static_cast<std::size_t>(rank)].set(
      Status(static_cast<Code>(result), result == HCCL_SUCCESS ? "" : HcclGetLastErrorText()));
  for (int i = 0; i < 5; ++i) {
    for (const Operation& each : {Operation(sum), Operation(gather), Operation(scatter)}) {
      if (!each(comm, rank, result) || result != HCCL_SUCCESS) return 4;
    }
  }
  if (HcclGetCommAsyncError(comm, &result) != HCCL_SUCCESS || result != HCCL_SUCCESS) return 5;
  // A new communicator finds out when it is made that the kernel refuses copies.
  std::array<std::uint32_t, kSize> ranks{0, 1, 2};
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  HcclComm group = nullptr;
  if (HcclCreateSubCommConfig(&comm, kSize, ranks.data(), 1, static_cast<std::uint32_t>(rank),
                              &config, &group) != HCCL_SUCCESS) {
    return 6;
  }
  if (!sum(group, rank, result) || result != HCCL_SUCCESS) return 7;
  HcclCommDestroy(group);
  return HcclCommDestroy(comm) == HCCL_SUCCESS ? 0 : 8;
}

void loses(const Operation& operation) {
  Processes ranks;
  std::vector<int> started;
  for (int rank = 0; rank < kSize; ++rank) {
    started.push_back(ranks.start([&, rank] { return run_rank(ranks.board(), rank, operation); }));
  }
  for (int rank = 0; rank < kSize; ++rank) {
    EXPECT_EQ(ranks.wait(started[static_cast<std::size_t>(rank)]), 0) << "rank " << rank;
  }
  const std::string text = ranks.board().first[0].message();
  EXPECT_NE(text.find("the kernel no longer lets rank 1 copy"), std::string::npos) << text;
  for (std::size_t rank = 0; rank < kSize; ++rank) {
    EXPECT_EQ(ranks.board().first[rank].code, Code::kSyscall);
    EXPECT_EQ(ranks.board().first[rank].message(), text);
  }
}

// Run with HCCL_ALGO=level0:cma.
TEST(KernelCopies, ThatAreRefusedLaterFailOneAllreduce) { loses(sum); }
TEST(KernelCopies, ThatAreRefusedLaterFailOneAllgather) { loses(gather); }
TEST(KernelCopies, ThatAreRefusedLaterFailOneScatter) { loses(scatter); }

}  // namespace
}  // namespace hccl::testing
