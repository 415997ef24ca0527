// While ranks wait, they log the awaited ranks and the operation after two seconds, long before a
// time-out. Ranks are processes, each with a file as its standard error.
#include "hccl/core/suspicion.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <sstream>

#include "tests/support/config.h"
#include "tests/support/folder.h"
#include "tests/support/one_message.h"
#include "tests/support/processes.h"

namespace hccl::testing {
namespace {

using std::chrono::seconds;

constexpr int kRanks = 3;
// Indices on the board that no rank uses.
constexpr std::size_t kPhase = 16;

class Suspicion : public ::testing::TestWithParam<std::string> {
 protected:
  static std::string log_of(int rank) { return "rank-" + std::to_string(rank); }

  /// Starts the ranks; body(rank, world) gives a status that ends up on the board.
  void start(const std::function<Status(int, core::Communicator&)>& body) {
    Config config = quiet_config(GetParam());
    config.log_level = "warn";
    for (int r = 0; r < kRanks; ++r) {
      processes_.start([&, r] {
        const int log = ::open((folder_ / log_of(r)).c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
        if (log < 0 || ::dup2(log, STDERR_FILENO) < 0) return 1;
        Member member;
        Status status = processes_.enter(member, kRanks, r, config);
        if (status.ok()) status = body(r, *member.world);
        board().first[static_cast<std::size_t>(r)].set(status);
        Processes::leave(member);
        return status.ok() ? 0 : 2;
      });
    }
  }
  Board& board() { return processes_.board(); }
  /// How many lines of the rank's log contain these words.
  int said(int rank, const std::string& words) const {
    int times = 0;
    std::istringstream lines(folder_.read(log_of(rank)));
    for (std::string line; std::getline(lines, line);) {
      times += line.find(words) != std::string::npos ? 1 : 0;
    }
    return times;
  }
  bool nobody_is_done() {
    return std::none_of(board().first.begin(), board().first.begin() + kRanks,
                        [](const Outcome& each) { return each.known.load(); });
  }
  void expect_all_end_well() {
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_EQ(processes_.wait(r), 0) << board().first[static_cast<std::size_t>(r)].message();
    }
  }

  Folder folder_;
  Processes processes_;
};

// Nothing has failed yet; once the rank runs again, operations go on with right results.
TEST_P(Suspicion, AStoppedRankIsSuspectedLongBeforeThePeerTimeout) {
  start([&](int rank, core::Communicator& world) {
    std::vector<float> in(1 << 12, 1), out(1 << 12);
    for (float all = 1; all != 0;) {
      float more = rank == 1 && !board().finish ? 1 : 0;
      HCCL_RETURN_IF_ERROR(world.operations().run({Op::kAllReduce, &more, &all, 1}));
      HCCL_RETURN_IF_ERROR(
          world.operations().run({Op::kAllReduce, in.data(), out.data(), in.size()}));
      if (std::count(out.begin(), out.end(), 3.0f) != static_cast<int>(out.size())) {
        return Status(Code::kInternal, "a wrong sum");
      }
      ++board().progress[static_cast<std::size_t>(rank)];
    }
    return Status();
  });
  ASSERT_TRUE(eventually([&] { return board().progress[0] > 4; })) << board().first[0].message();
  processes_.kill(2, SIGSTOP);
  // With messages, rank 0 may wait for rank 1, or rank 1 for rank 0, which waits for the stopped
  // rank.
  const bool all_say = eventually([&] {
    return said(0, "in allreduce #") > 0 && said(1, "in allreduce #") > 0 &&
           said(0, "for rank 2 in allreduce #") + said(1, "for rank 2 in allreduce #") > 0;
  });
  EXPECT_TRUE(nobody_is_done());
  processes_.kill(2, SIGCONT);
  EXPECT_TRUE(all_say) << folder_.read(log_of(0)) << folder_.read(log_of(1));
  board().finish = true;
  expect_all_end_well();
  EXPECT_EQ(said(2, "waits for"), 0);
}

// Rank 2 comes only after the others have logged that they wait.
TEST_P(Suspicion, LateMessagesAndGroupsAreNamed) {
  start([&](int rank, core::Communicator& world) {
    float value = 1;
    if (rank == 2) {
      eventually([&] { return board().progress[kPhase] == 1; });
      HCCL_RETURN_IF_ERROR(send_one(world, 0, &value, 1, DataType::kFp32));
      HCCL_RETURN_IF_ERROR(
          world.mailbox().send(1, 5, &value, sizeof value, {})->wait(Deadline::never()));
      eventually([&] { return board().progress[kPhase] == 2; });
    } else if (rank == 0) {
      HCCL_RETURN_IF_ERROR(recv_one(world, 2, &value, 1, DataType::kFp32));
    } else {
      HCCL_RETURN_IF_ERROR(
          world.mailbox().recv(2, 5, &value, sizeof value, {})->wait(Deadline::never()));
    }
    return world.group("late", {0, 1, 2}, 0).status();
  });
  const auto messages = [&] {
    return said(0, "world: rank 0 waits for rank 2 in recv #1 (count 1, fp32)") == 1 &&
           said(1, "world: rank 1 waits for rank 2 in the message with tag 5 from rank 2") == 1;
  };
  EXPECT_TRUE(eventually(messages)) << folder_.read(log_of(0)) << folder_.read(log_of(1));
  board().progress[kPhase] = 1;
  const auto groups = [&] {
    return said(0, "late: rank 0 waits for rank 2 in opening it") == 1 &&
           said(1, "late: rank 1 waits for rank 2 in opening it") == 1;
  };
  EXPECT_TRUE(eventually(groups)) << folder_.read(log_of(0)) << folder_.read(log_of(1));
  EXPECT_TRUE(nobody_is_done());
  board().progress[kPhase] = 2;
  expect_all_end_well();
  EXPECT_EQ(said(2, "waits for"), 0) << folder_.read(log_of(2));
}

// Simulates an hour of reports of one wait, twice a second, on a clock of the test.
TEST(SuspicionLine, ComesAfterTwoSecondsAndEveryHalfMinute) {
  std::string text;
  core::Suspicion suspicion(
      std::make_shared<const Log>(LogLevel::kInfo,
                                  [&](LogLevel, std::string_view line) { text += line; }),
      "world", 0);
  Deadline::Clock::time_point now{std::chrono::hours(5)};
  // The times at which the waits of a call are logged, in seconds since the call began.
  const auto told = [&](const std::string& call, std::vector<int> late, int wait) {
    std::vector<double> when;
    const auto begin = now;
    while (now - begin < seconds(wait)) {
      now += kReportInterval;
      suspicion.report({.call = call, .late = late}, now);
      if (text.empty()) continue;
      const std::chrono::duration<double> since = now - begin;
      when.push_back(since.count());
      EXPECT_NE(text.find("world: rank 0 waits for rank 2 in " + call + ", for " +
                          std::to_string(static_cast<int>(since.count())) + " s so far"),
                std::string::npos)
          << text;
      text.clear();
    }
    return when;
  };
  std::vector<double> hour = {2};
  while (hour.back() + 30 <= 3600) hour.push_back(hour.back() + 30);
  EXPECT_EQ(told("allreduce #1", {2}, 3600), hour);
  EXPECT_EQ(told("allreduce #2", {2}, 1), std::vector<double>());
  EXPECT_EQ(told("allreduce #3", {2}, 40), (std::vector<double>{2, 32}));
}

TEST(SuspicionLine, NamesAFewOfManyRanks) {
  std::string text;
  core::Suspicion suspicion(
      std::make_shared<const Log>(LogLevel::kInfo,
                                  [&](LogLevel, std::string_view line) { text += line; }),
      "world", 0);
  std::vector<int> late(300);
  std::iota(late.begin(), late.end(), 100);
  const Deadline::Clock::time_point begin{std::chrono::hours(5)};
  for (int i = 0; i < 6; ++i) {
    suspicion.report({.call = "barrier #1", .late = late}, begin + i * kReportInterval);
  }
  EXPECT_NE(text.find("waits for ranks 100, 101, "), std::string::npos) << text;
  EXPECT_NE(text.find("115, … (300 in all) in barrier #1"), std::string::npos) << text;
  EXPECT_LT(text.size(), 250u) << text;
}

INSTANTIATE_TEST_SUITE_P(Transports, Suspicion, ::testing::Values("auto", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hccl::testing
