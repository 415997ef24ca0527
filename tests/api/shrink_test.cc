// HcclCommShrink: a program goes on after ranks have died, wherever they are in the control tree
// and whenever they die. HCCL_TRANSPORT chooses the transport; HCCL_TEST_SHRINKS is the number of
// rounds in which ranks die at random moments.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "hccl/hccl_framework.h"
#include "tests/support/api_processes.h"
#include "tests/support/api_world.h"

namespace hccl::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Computes the set of ranks of `comm` as bits, by an allreduce to which each rank adds its own
/// bit.
HcclResult meet(HcclComm comm, int rank, std::int64_t& ranks) {
  ranks = std::int64_t{1} << rank;
  return HcclAllReduce(&ranks, &ranks, 1, HCCL_DATA_TYPE_INT64, HCCL_REDUCE_SUM, comm, nullptr);
}

std::string last_error() { return HcclGetLastErrorText(); }

HcclComm shrink(HcclComm comm, std::vector<std::uint32_t> excluded = {}) {
  HcclComm smaller = nullptr;
  EXPECT_EQ(HcclCommShrink(comm, excluded.data(), static_cast<std::uint32_t>(excluded.size()),
                           nullptr, &smaller),
            HCCL_SUCCESS)
      << last_error();
  return smaller;
}

void destroy(HcclComm comm) { EXPECT_EQ(HcclCommDestroy(comm), HCCL_SUCCESS) << last_error(); }

// ---- ranks that are processes, and die ----

struct Fate {
  int size;
  int rank;
};

/// Calls until the test is over, and shrinks after each loss. Then puts the last set of ranks on
/// the board, with an error if something is wrong.
int survive(Board& board, Fate fate) {
  const auto me = static_cast<std::size_t>(fate.rank);
  const auto end = [&](HcclResult code, const std::string& text) {
    board.first[me].set(Status(static_cast<Code>(code), text));
    return 0;
  };
  HcclComm comm = nullptr;
  if (const auto made = join_public(board, fate.size, fate.rank, &comm); made != HCCL_SUCCESS) {
    return end(made, last_error());
  }
  std::int64_t ranks = 0;
  bool last = false;
  while (!last) {
    // All ranks end after the same round: rank 0 of the communicator announces it.
    std::uint32_t place = 0;
    HcclGetRankId(comm, &place);
    std::int64_t over = place == 0 && board.finish ? 1 : 0;
    HcclResult result = meet(comm, fate.rank, ranks);
    if (result == HCCL_SUCCESS) {
      result = HcclBroadcast(&over, 1, HCCL_DATA_TYPE_INT64, 0, comm, nullptr);
    }
    if (result == HCCL_SUCCESS) {
      board.progress[me] = static_cast<std::uint64_t>(ranks);
      last = over != 0;
      continue;
    }
    if (result != HCCL_E_REMOTE) return end(result, "an operation: " + last_error());
    HcclComm smaller = nullptr;
    const std::int64_t began = now_ns();
    result = HcclCommShrink(comm, nullptr, 0, nullptr, &smaller);
    if (result != HCCL_SUCCESS) return end(result, "shrinking: " + last_error());
    board.later[me].at_ns = std::max(board.later[me].at_ns, now_ns() - began);
    // Destroys the larger communicator at once: the smaller one does not need it.
    if (HcclCommDestroy(comm) != HCCL_SUCCESS) return end(HCCL_E_INTERNAL, last_error());
    comm = smaller;
  }
  const HcclResult gone = HcclCommDestroy(comm);
  return end(gone, gone == HCCL_SUCCESS ? "" : last_error());
}

class Loss {
 public:
  explicit Loss(int size) : size_(size) {
    for (int r = 0; r < size; ++r) {
      processes_.start([this, r] { return survive(processes_.board(), {size_, r}); });
    }
    expect_together();
  }
  void kill(int rank) {
    processes_.kill(rank);
    alive_ &= ~(std::uint64_t{1} << rank);
  }
  /// Expects that all living ranks, and no others, are in one communicator.
  void expect_together() {
    const auto together = [&] {
      for (int r = 0; r < size_; ++r) {
        if (lives(r) && processes_.board().progress[static_cast<std::size_t>(r)] != alive_) {
          return false;
        }
      }
      return true;
    };
    EXPECT_TRUE(eventually(together, seconds(30))) << state();
  }
  void expect_end() {
    processes_.board().finish = true;
    std::int64_t longest = 0;
    for (int r = 0; r < size_; ++r) {
      if (!lives(r)) continue;
      EXPECT_EQ(processes_.wait(r), 0) << "rank " << r;
      const Outcome& end = processes_.board().first[static_cast<std::size_t>(r)];
      EXPECT_TRUE(end.known) << "rank " << r;
      EXPECT_EQ(end.code, Code::kSuccess) << "rank " << r << ": " << end.message();
      longest = std::max(longest, processes_.board().later[static_cast<std::size_t>(r)].at_ns);
    }
    std::cout << "  the slowest call of HcclCommShrink: " << static_cast<double>(longest) / 1e6
              << " ms\n";
  }
  bool lives(int rank) const { return (alive_ >> rank & 1) != 0; }

 private:
  std::string state() {
    std::string text;
    for (int r = 0; r < size_; ++r) {
      const auto i = static_cast<std::size_t>(r);
      text += "rank " + std::to_string(r) + (lives(r) ? "" : " (killed)") + ": ranks " +
              std::to_string(processes_.board().progress[i]) + ", " +
              processes_.board().first[i].message() + "\n";
    }
    return text;
  }
  const int size_;
  Processes processes_;
  std::uint64_t alive_ = (std::uint64_t{1} << size_) - 1;
};

TEST(Shrink, GoesOnWithoutTheRootARelayOrALeaf) {
  for (const int victim : {0, 1, 11}) {
    SCOPED_TRACE("victim " + std::to_string(victim));
    Loss loss(12);  // more ranks than a node has children: some are relays
    loss.kill(victim);
    loss.expect_together();
    loss.expect_end();
  }
}

TEST(Shrink, GoesOnUntilOneRankIsLeft) {
  Loss loss(5);
  for (const int victim : {0, 3, 1, 4}) {
    loss.kill(victim);
    loss.expect_together();
  }
  loss.expect_end();
}

TEST(Shrink, GoesOnWheneverRanksDie) {
  const char* const wanted = std::getenv("HCCL_TEST_SHRINKS");
  const int times = wanted == nullptr ? 10 : std::atoi(wanted);
  std::mt19937_64 random(11);
  for (int time = 0; time < times; ++time) {
    SCOPED_TRACE("time " + std::to_string(time));
    const int size = 3 + static_cast<int>(random() % 4);
    Loss loss(size);
    for (auto deaths = 1 + random() % static_cast<unsigned>(size - 1); deaths > 0; --deaths) {
      int victim = 0;
      do victim = static_cast<int>(random() % static_cast<unsigned>(size));
      while (!loss.lives(victim));
      loss.kill(victim);
      // Sometimes the other ranks are still in HcclCommShrink, or in the first operation after it.
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 30000));
    }
    loss.expect_together();
    loss.expect_end();
  }
}

/// One of two ranks is stopped for ever. The other one notices the silence, and shrinks.
void expect_after_stop(int stopped, HcclResult expected) {
  SCOPED_TRACE("stopped " + std::to_string(stopped));
  Processes processes;
  Board& board = processes.board();
  for (int r = 0; r < 2; ++r) {
    processes.start([&, r] {
      HcclComm comm = nullptr, smaller = nullptr;
      HcclResult result = join_public(board, 2, r, &comm);
      for (std::int64_t ranks = 0; result == HCCL_SUCCESS; ++board.progress[r]) {
        result = meet(comm, r, ranks);
      }
      result = HcclCommShrink(comm, nullptr, 0, nullptr, &smaller);
      board.first[r].set(Status(static_cast<Code>(result), last_error()));
      return 0;
    });
  }
  const auto other = static_cast<std::size_t>(1 - stopped);
  ASSERT_TRUE(eventually([&] { return board.progress[0] > 3 && board.progress[1] > 3; }));
  processes.kill(stopped, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return board.first[other].known.load(); }, seconds(30)));
  const Outcome& end = board.first[other];
  EXPECT_EQ(static_cast<HcclResult>(end.code), expected) << end.message();
  if (expected != HCCL_SUCCESS) {
    EXPECT_NE(end.message().find("ranks " + std::to_string(1 - stopped) + " may not go on without"),
              std::string::npos)
        << end.message();
  }
}

TEST(Shrink, OfTwoPartsThatAreCutOffOneGoesOn) {
  ::setenv("HCCL_PEER_TIMEOUT", "5", 1);
  expect_after_stop(1, HCCL_SUCCESS);
  expect_after_stop(0, HCCL_E_UNAVAIL);
  ::unsetenv("HCCL_PEER_TIMEOUT");
}

// ---- ranks that are threads ----

void expect_ranks(HcclComm comm, int rank, const std::vector<int>& expected) {
  std::uint32_t size = 0, place = 0;
  EXPECT_EQ(HcclGetRankSize(comm, &size), HCCL_SUCCESS);
  EXPECT_EQ(HcclGetRankId(comm, &place), HCCL_SUCCESS);
  ASSERT_EQ(size, expected.size());
  EXPECT_EQ(expected[place], rank);
  std::vector<std::uint32_t> world(size);
  EXPECT_EQ(HcclCommGetWorldRanks(comm, world.data()), HCCL_SUCCESS);
  EXPECT_TRUE(std::ranges::equal(world, expected));
  std::int64_t ranks = 0, all = 0;
  EXPECT_EQ(meet(comm, rank, ranks), HCCL_SUCCESS) << last_error();
  for (const int each : expected) all |= std::int64_t{1} << each;
  EXPECT_EQ(ranks, all);
}

TEST(Shrink, AnAbortedParentMayEndFirst) {
  ApiWorld world(3);
  ASSERT_EQ(HcclCommAbort(world.comm(1), "a mistake"), HCCL_SUCCESS);
  world.on_all([&](int rank) {
    const HcclComm smaller = shrink(world.comm(rank));
    destroy(std::exchange(world.comm(rank), nullptr));
    expect_ranks(smaller, rank, {0, 1, 2});
    char name[COMM_NAME_MAX_LENGTH] = {};
    EXPECT_EQ(HcclGetCommName(smaller, name), HCCL_SUCCESS);
    EXPECT_NE(std::string(name).find("_shrunk"), std::string::npos) << name;
    destroy(smaller);
  });
}

TEST(Shrink, LeavesOutRanksThatLive) {
  ApiWorld world(4);
  world.on_all([&](int rank) {
    if (rank == 1) return;
    const HcclComm smaller = shrink(world.comm(rank), {1});
    expect_ranks(smaller, rank, {0, 2, 3});
    if (rank != 0) {
      const HcclComm least = shrink(smaller, {0});  // rank 0 of the smaller communicator
      expect_ranks(least, rank, {2, 3});
      destroy(least);
    }
    destroy(smaller);
  });
  world.expect_usable();
}

TEST(Shrink, TheSmallerOneMayHaveGroupsAndAGroupMayShrink) {
  ApiWorld world(4);
  world.on_all([&](int rank) {
    if (rank == 3) return;
    const HcclComm smaller = shrink(world.comm(rank), {3});
    if (rank != 0) {
      const std::uint32_t members[] = {2, 1};
      HcclComm group = nullptr;
      ASSERT_EQ(HcclCommCreateGroup(smaller, 2, members, "pair", 0, &group), HCCL_SUCCESS)
          << last_error();
      expect_ranks(group, rank, {2, 1});
      if (rank == 2) {
        const HcclComm one = shrink(group, {1});
        expect_ranks(one, 2, {2});
        destroy(one);
      }
      destroy(group);
    }
    destroy(smaller);
  });
}

TEST(Shrink, ARefusedCallIsToldToTheOthers) {
  ApiWorld world(3);
  world.on_all([&](int rank) {
    HcclComm smaller = nullptr;
    const std::uint32_t outside[] = {7}, twice[] = {2, 2}, self[] = {0};
    const auto call = [&](const std::uint32_t* list, std::uint32_t number) {
      return HcclCommShrink(world.comm(rank), list, number, nullptr, &smaller);
    };
    if (rank == 0) {
      EXPECT_EQ(call(outside, 1), HCCL_E_PARA);
      EXPECT_NE(last_error().find("excludeIds[0] is 7"), std::string::npos) << last_error();
      EXPECT_EQ(call(twice, 2), HCCL_E_PARA);
      EXPECT_NE(last_error().find("excludeIds[1] is 2, for the second time"), std::string::npos);
      EXPECT_EQ(call(nullptr, 1), HCCL_E_PTR);
      EXPECT_EQ(HcclCommShrink(world.comm(rank), nullptr, 0, nullptr, nullptr), HCCL_E_PTR);
      EXPECT_EQ(call(self, 1), HCCL_E_PARA);
      EXPECT_NE(last_error().find("excludeIds has 0, the caller"), std::string::npos);
    } else {
      EXPECT_EQ(call(nullptr, 0), HCCL_E_PARA);
      EXPECT_NE(last_error().find("a call of rank 0 was refused: HcclCommShrink: excludeIds"),
                std::string::npos)
          << last_error();
    }
  });
}

TEST(Shrink, DifferentListsAreAnErrorOnAll) {
  ApiWorld world(3);
  world.on_all([&](int rank) {
    if (rank == 2) return;
    const std::uint32_t last = 2;
    HcclComm smaller = nullptr;
    EXPECT_EQ(HcclCommShrink(world.comm(rank), &last, rank == 0 ? 1 : 0, nullptr, &smaller),
              HCCL_E_PARA);
    EXPECT_NE(last_error().find("the ranks' calls differ"), std::string::npos) << last_error();
  });
  world.expect_usable();
}

}  // namespace
}  // namespace hccl::testing
