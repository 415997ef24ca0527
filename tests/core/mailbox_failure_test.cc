// A rank that is killed while others wait for messages with tags: the error of each of them names
// the rank.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/processes.h"

namespace hccl::testing {
namespace {

using core::Message;
using core::MessagePtr;
using std::chrono::seconds;

constexpr int kSize = 3, kVictim = 1;

Config quiet(const std::string& transport) {
  Config config;
  config.transport = transport;
  config.flight_recorder_dir = "off";
  config.log_level = "off";
  return config;
}

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
    const Config config = quiet(GetParam());
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

// The first message between two ranks fails. Its end is left on the board.
void first_message(Board& board, core::Communicator& among, int rank) {
  int number = rank;
  const int peer = 2 - rank;
  core::Mailbox& box = among.mailbox();
  const MessagePtr message = rank == 0 ? box.send(peer, 0, &number, sizeof number, {})
                                       : box.recv(peer, 0, &number, sizeof number, {});
  const Status waited = message->wait(Deadline::after(seconds(30)));
  board.first[static_cast<std::size_t>(rank)].set(waited.ok() ? message->status() : waited);
}

void expect_victim_named(Board& board, const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    const Outcome& outcome = board.first[static_cast<std::size_t>(rank)];
    EXPECT_EQ(outcome.code, Code::kRemote) << outcome.message();
    EXPECT_EQ(outcome.culprit, kVictim) << outcome.message();
    EXPECT_NE(outcome.message().find("rank 1"), std::string::npos) << outcome.message();
  }
}

// The first message opens connections between all ranks. A rank that has left opens none.
TEST_P(MailboxFailure, ARankThatHasLeftIsNamedByTheFirstMessage) {
  Processes processes;
  Board& board = processes.board();
  for (int rank = 0; rank < kSize; ++rank) {
    processes.start([&, rank] {
      Member member;
      if (!processes.enter(member, kSize, rank, quiet(GetParam())).ok()) return 1;
      if (rank != kVictim) {
        // One that still leaves may have opened its connections, and the message arrives.
        if (!eventually([&] { return board.progress[kVictim] != 0; })) return 2;
        first_message(board, *member.world, rank);
      }
      Processes::leave(member);
      ++board.progress[static_cast<std::size_t>(rank)];
      return 0;
    });
  }
  for (const int rank : {kVictim, 0, 2}) EXPECT_EQ(processes.wait(rank), 0) << rank;
  expect_victim_named(board, {0, 2});
  for (const int rank : {0, 2}) {  // no second transport was tried, which takes its own time
    const std::string text = board.first[static_cast<std::size_t>(rank)].message();
    EXPECT_EQ(text.find("transport"), std::string::npos) << text;
  }
}

// A rank that has destroyed a group stays in the world, where its messages go on.
TEST_P(MailboxFailure, ARankThatHasDestroyedAGroupIsNamedByTheFirstMessage) {
  Processes processes;
  Board& board = processes.board();
  for (int rank = 0; rank < kSize; ++rank) {
    processes.start([&, rank] {
      Member member;
      if (!processes.enter(member, kSize, rank, quiet(GetParam())).ok()) return 1;
      auto group = member.world->group("group", {0, 1, 2}, 0);
      if (!group.ok()) return 2;
      if (rank == kVictim) {
        group->reset();
        ++board.progress[kVictim];
      } else {
        if (!eventually([&] { return board.progress[kVictim] != 0; })) return 4;
        first_message(board, **group, rank);
      }
      int number = 0;
      core::Mailbox& box = member.world->mailbox();
      const MessagePtr sent = box.send((rank + 1) % kSize, 0, &rank, sizeof rank, {});
      const MessagePtr got = box.recv((rank + 2) % kSize, 0, &number, sizeof number, {});
      for (const MessagePtr& each : {sent, got}) {
        if (!each->wait(Deadline::after(seconds(30))).ok() || !each->status().ok()) return 5;
      }
      group = Status(Code::kUnavail, "");
      Processes::leave(member);
      return 0;
    });
  }
  for (const int rank : {kVictim, 0, 2}) EXPECT_EQ(processes.wait(rank), 0) << rank;
  expect_victim_named(board, {0, 2});
}

// The victim leaves the world, or destroys a group, while it opens connections: before or after the
// ranks have exchanged their addresses. Rank 2 gives an address and opens no connection.
TEST(MailboxOpening, ARankThatLeavesMeanwhileIsNamed) {
  for (const bool group : {false, true}) {
    for (const bool exchanged : {false, true}) {
      SCOPED_TRACE(std::to_string(group) + " " + std::to_string(exchanged));
      Processes processes;
      Board& board = processes.board();
      const auto body = [&](int rank) {
        Member member;
        if (!processes.enter(member, kSize, rank, quiet("tcp")).ok()) return 1;
        std::shared_ptr<core::Communicator> among = member.world;
        if (group) among = member.world->group("group", {0, 1, 2}, 0).value();
        if (rank == 0) {
          if (!eventually([&] { return board.progress[2] >= 1; })) return 4;
          first_message(board, *among, rank);
        } else if (rank == kVictim) {
          if (!eventually([&] { return board.progress[2] >= (exchanged ? 2 : 1); })) return 5;
          // Then the victim has mostly begun. If it has not, nothing is wrong either.
          if (!exchanged) std::this_thread::sleep_for(std::chrono::milliseconds(200));
          among.reset();
          if (!group) Processes::leave(member);
        } else {
          among->mailbox().end(Status(Code::kUnavail, "played by the test"));
          ++board.progress[2];
          if (!exchanged && !eventually([&] { return board.progress[kVictim] != 0; })) return 6;
          const std::string address =
              ByteWriter().put(std::uint16_t{9}).put_text("127.0.0.1").take();
          const AbortFlag never;
          static_cast<void>(member.control->exchange(
              core::identity(among->membership().id, "mailbox exchange 0"), kSize, 2,
              ByteWriter().put(std::int32_t{0}).put_text(address).take(),
              Deadline::after(seconds(60)), never));
          ++board.progress[2];
        }
        ++board.progress[static_cast<std::size_t>(rank)];
        if (!eventually([&] { return board.first[0].known.load(); })) return 7;
        among.reset();
        Processes::leave(member);
        return 0;
      };
      for (int rank = 0; rank < kSize; ++rank) processes.start([&, rank] { return body(rank); });
      for (const int rank : {kVictim, 0, 2}) EXPECT_EQ(processes.wait(rank), 0) << rank;
      expect_victim_named(board, {0});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, MailboxFailure, ::testing::Values("auto", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hccl::testing
