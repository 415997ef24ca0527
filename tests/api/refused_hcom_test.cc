// The same as refused_test.cc for operations on groups by name. A process has one world, so the two
// ranks are processes, forked from a test that never calls the library itself.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "hccl/hcom.h"
#include "tests/api/refused_calls.h"
#include "tests/support/calls.h"
#include "tests/support/threads.h"

namespace hccl::testing::refused_hcom_test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kAtOnce = 8;

const std::string kLongTag(256, 't');

std::vector<Refusals> functions() {
  using wrongs::kTooMany;
  using A = Arguments;
  const auto refused = [](Wrong own) {
    return std::vector<Wrong>{
        {[](Arguments& a) { a.tag = nullptr; }, "tag is null"},
        {[](Arguments& a) { a.tag = kLongTag.c_str(); }, "tag must have 1 to 255 bytes"},
        own};
  };
  const Wrong count = wrongs::count(" is 2147483648");
  const Wrong blocks = {[](Arguments& a) { a.number[0] = a.other_number[0] = kTooMany; },
                        "[0] is 2147483648"};
  const Wrong matrix = {[](Arguments& a) { a.matrix[0] = kTooMany; }, "[0] is 2147483648"};
  const Function send = [](A& a) {
    return HcomSend(a.tag, a.send, a.count, a.type, a.peer, 0, a.group, a.stream);
  };
  const Function receive = [](A& a) {
    return HcomReceive(a.tag, a.recv, a.count, a.type, a.peer, 0, a.group, a.stream);
  };
  return {
      {"HcomAllReduce", "allreduce",
       [](A& a) {
         return HcomAllReduce(a.tag, a.send, a.recv, a.count, a.type, a.op, a.group, a.stream);
       },
       refused(count)},
      {"HcomBroadcast", "broadcast",
       [](A& a) {
         return HcomBroadcast(a.tag, a.send, a.count, a.type, a.root, a.group, a.stream);
       },
       refused(wrongs::kRoot)},
      {"HcomReduceScatter", "reduce_scatter",
       [](A& a) {
         return HcomReduceScatter(a.tag, a.send, a.recv, a.count, a.type, a.op, a.group, a.stream);
       },
       refused(count)},
      {"HcomAllGather", "allgather",
       [](A& a) {
         return HcomAllGather(a.tag, a.send, a.recv, a.count, a.type, a.group, a.stream);
       },
       refused(count)},
      {"HcomReduce", "reduce",
       [](A& a) {
         return HcomReduce(a.tag, a.send, a.recv, a.count, a.type, a.op, a.root, a.group, a.stream);
       },
       refused(wrongs::kRoot)},
      {"HcomReduceScatterV", "reduce_scatter_v",
       [](A& a) {
         return HcomReduceScatterV(a.tag, a.send, a.counts, a.displs, a.recv, a.recv_count, a.type,
                                   a.op, a.group, a.stream);
       },
       refused(blocks)},
      {"HcomAllGatherV", "allgather_v",
       [](A& a) {
         return HcomAllGatherV(a.tag, a.send, a.count, a.recv, a.recv_counts, a.recv_displs, a.type,
                               a.group, a.stream);
       },
       refused(blocks)},
      {"HcomAlltoAllV", "alltoall_v",
       [](A& a) {
         return HcomAlltoAllV(a.send, a.counts, a.displs, a.type, a.recv, a.recv_counts,
                              a.recv_displs, a.recv_type, a.group, a.stream, a.tag);
       },
       refused(blocks)},
      {"HcomAlltoAllVC", "alltoall_v",
       [](A& a) {
         return HcomAlltoAllVC(a.send, a.square, a.type, a.recv, a.recv_type, a.group, a.stream,
                               a.tag);
       },
       refused(matrix)},
      {"HcomAllToAll", "alltoall",
       [](A& a) {
         return HcomAllToAll(a.send, a.count, a.type, a.recv, a.recv_count, a.recv_type, a.group,
                             a.stream, a.tag);
       },
       refused(count)},
      {"HcomSend", "recv", send, refused(count), receive},
      {"HcomReceive", "send", receive, refused(count), send},
  };
}

// Makes the two calls in a new group.
void expect_known(int rank, const Refusals& function, const Wrong& wrong,
                  const std::string& group) {
  SCOPED_TRACE(std::string(function.name) + ": " + wrong.words);
  std::uint32_t both[] = {0, 1};
  OK(HcomCreateGroup(group.c_str(), 2, both));
  Arguments arguments(nullptr, rank);
  arguments.group = group.c_str();
  if (rank == 1) {
    expect_refused(function, wrong, arguments);
    // Rank 1 gets the error, too.
    HcclComm comm = nullptr;
    OK(HcomGetCommHandleByGroup(group.c_str(), &comm));
    HcclResult error = HCCL_SUCCESS;
    const auto begin = Clock::now();
    while (error == HCCL_SUCCESS && Clock::now() - begin < std::chrono::minutes(1)) {
      std::this_thread::sleep_for(milliseconds(10));
      OK(HcclGetCommAsyncError(comm, &error));
    }
    EXPECT_NE(error, HCCL_SUCCESS);
  } else {
    expect_told(function, wrong, arguments);
  }
  OK(HcomDestroyGroup(group.c_str()));
}

// Rank 1 asks for a group with a wrong argument; rank 0 waits for rank 1 in the right call.
struct WrongGroup {
  std::uint32_t number, first, second;
  const char* words;
};
constexpr std::uint32_t kNoRank = 0xFFFFFFFF;
const WrongGroup kWrongGroups[] = {
    {2, kNoRank, 1, "rankIds is null"},
    {2, 1, 1, "rankIds has 1 twice"},
    {2, 1, 2, "rankIds has 2, the world has 2 ranks"},
};

void expect_told_of_group(int rank, const WrongGroup& wrong, const std::string& group) {
  SCOPED_TRACE(wrong.words);
  std::uint32_t both[] = {0, 1}, others[] = {wrong.first, wrong.second};
  const Load load;
  const auto begin = Clock::now();
  if (rank == 1) {
    SAYS(HcomCreateGroup(group.c_str(), wrong.number, wrong.first == kNoRank ? nullptr : others),
         wrong.first == kNoRank ? HCCL_E_PTR : HCCL_E_PARA, wrong.words);
    return;
  }
  SAYS(HcomCreateGroup(group.c_str(), 2, both), HCCL_E_PARA, wrong.words);
  EXPECT_LT(Clock::now() - begin, load.allows(kTold));
  SAYS(HcomDestroyGroup(group.c_str()), HCCL_E_NOT_FOUND, group);
}

void rank_of_two(int rank, int from, int to) {
  HcclRootInfo info;
  if (rank == 0) {
    OK(HcclGetRootInfo(&info));
    ASSERT_EQ(::write(to, &info, sizeof info), static_cast<ssize_t>(sizeof info));
  } else {
    ASSERT_EQ(::read(from, &info, sizeof info), static_cast<ssize_t>(sizeof info));
  }
  HcclComm world = nullptr;
  OK(HcclCommInitRootInfo(2, &info, static_cast<std::uint32_t>(rank), &world));
  OK(HcomInitByComm(world));
  struct Case {
    const Refusals* function;
    const Wrong* wrong;
  };
  const std::vector<Refusals> all = functions();
  std::vector<Case> cases;
  for (const Refusals& function : all) {
    for (const Wrong& wrong : function.wrong) cases.push_back({&function, &wrong});
  }
  // Both ranks take the cases in the same order, so the first unfinished case always runs on both.
  std::atomic<std::size_t> next = 0;
  on_threads(kAtOnce, [&](int) {
    for (std::size_t i = next++; i < cases.size(); i = next++) {
      expect_known(rank, *cases[i].function, *cases[i].wrong, "group" + std::to_string(i));
    }
  });
  for (const WrongGroup& wrong : kWrongGroups) {
    expect_told_of_group(rank, wrong, "wrong" + std::to_string(&wrong - kWrongGroups));
    OK(HcclBarrier(world, nullptr));
  }
  std::uint32_t both[] = {0, 1};
  OK(HcomCreateGroup("right", 2, both));
  OK(HcomDestroyGroup("right"));
  OK(HcomDestroy());
  OK(HcclCommDestroy(world));
}

TEST(RefusedHcom, TheOtherHearsOfItWithinASecond) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.push_back(::fork());
    if (children.back() == 0) {
      ::setenv("HCCL_EXEC_TIMEOUT", "20", 1);  // ends a rank that hangs
      rank_of_two(rank, ends[0], ends[1]);
      std::exit(::testing::Test::HasFailure() ? 1 : 0);
    }
  }
  for (const pid_t child : children) {
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace hccl::testing::refused_hcom_test
