// A rank that is killed while others wait for messages with tags: all of them are told who.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/processes.h"

namespace hccl::testing {
namespace {

using core::Message;
using core::MessagePtr;
using std::chrono::seconds;

constexpr int kSize = 3, kVictim = 1;

// Exchanges a message with every rank, and then waits for one of `source` that never comes.
int live(Processes& processes, int rank, const Config& config, int source) {
  Board& board = processes.board();
  const auto me = static_cast<std::size_t>(rank);
  Member member;
  if (!processes.enter(member, kSize, rank, config).ok()) return 1;
  core::Mailbox& box = member.world->mailbox();
  std::vector<int> out(kSize, rank), in(kSize, -1);
  std::vector<MessagePtr> messages;
  for (int peer = 0; peer < kSize; ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    messages.push_back(box.send(peer, 0, &out[at], sizeof(int), {}));
    messages.push_back(box.recv(peer, 0, &in[at], sizeof(int), {}));
  }
  for (const MessagePtr& each : messages) {
    if (!each->wait(Deadline::after(seconds(30))).ok() || !each->status().ok()) return 2;
  }
  std::vector<std::byte> large(1 << 20);
  const MessagePtr waits = box.recv(source, 1, large.data(), large.size(), {});
  ++board.progress[me];
  if (!waits->wait(Deadline::after(seconds(30))).ok()) return 3;
  board.first[me].set(waits->status());
  Processes::leave(member);
  return 0;
}

class MailboxFailure : public ::testing::TestWithParam<const char*> {};

TEST_P(MailboxFailure, AKilledRankIsNamedToAllWhoWait) {
  for (const int source : {kVictim, 2, Message::kAnyRank}) {
    SCOPED_TRACE("waiting for " + std::to_string(source));
    Processes processes;
    Board& board = processes.board();
    Config config;
    config.transport = GetParam();
    config.flight_recorder_dir = "off";
    config.log_level = "off";
    for (int r = 0; r < kSize; ++r) {
      processes.start([&, r] { return live(processes, r, config, source); });
    }
    ASSERT_TRUE(eventually([&] {
      return board.progress[0] != 0 && board.progress[1] != 0 && board.progress[2] != 0;
    }));
    const std::int64_t killed = now_ns();
    processes.kill(kVictim);
    Lateness lateness;
    EXPECT_TRUE(
        lateness.watch([&] { return board.first[0].known && board.first[2].known; }, seconds(60)));
    for (const int r : {0, 2}) {
      EXPECT_EQ(processes.wait(r), 0);
      const Outcome& outcome = board.first[static_cast<std::size_t>(r)];
      EXPECT_EQ(outcome.code, Code::kRemote) << outcome.message();
      EXPECT_EQ(outcome.culprit, kVictim) << outcome.message();
      EXPECT_NE(outcome.message().find("rank 1"), std::string::npos) << outcome.message();
      EXPECT_LT(outcome.at_ns - killed, (seconds(2) + 4 * lateness.worst()).count());
    }
  }
}

// The first message opens connections between all ranks. A rank that has left opens none.
TEST_P(MailboxFailure, ARankThatHasLeftIsNamedByTheFirstMessage) {
  Processes processes;
  Board& board = processes.board();
  Config config;
  config.transport = GetParam();
  config.flight_recorder_dir = "off";
  config.log_level = "off";
  for (int rank = 0; rank < kSize; ++rank) {
    processes.start([&, rank] {
      Member member;
      if (!processes.enter(member, kSize, rank, config).ok()) return 1;
      if (rank != kVictim) {
        // One that still leaves may have opened its connections, and the message arrives.
        if (!eventually([&] { return board.progress[kVictim] != 0; })) return 2;
        int number = rank;
        const int peer = 2 - rank;
        core::Mailbox& box = member.world->mailbox();
        const MessagePtr message = rank == 0 ? box.send(peer, 0, &number, sizeof number, {})
                                             : box.recv(peer, 0, &number, sizeof number, {});
        if (!message->wait(Deadline::after(seconds(30))).ok()) return 3;
        board.first[static_cast<std::size_t>(rank)].set(message->status());
      }
      Processes::leave(member);
      ++board.progress[static_cast<std::size_t>(rank)];
      return 0;
    });
  }
  for (const int rank : {kVictim, 0, 2}) EXPECT_EQ(processes.wait(rank), 0) << rank;
  for (const int rank : {0, 2}) {
    const Outcome& outcome = board.first[static_cast<std::size_t>(rank)];
    EXPECT_EQ(outcome.culprit, kVictim) << outcome.message();
    EXPECT_NE(outcome.message().find("rank 1"), std::string::npos) << outcome.message();
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, MailboxFailure, ::testing::Values("auto", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hccl::testing
