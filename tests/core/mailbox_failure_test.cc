// A rank that is killed while others wait for messages with tags: the error of each of them names
// the rank.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
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

// Exchanges a message with every rank, then waits for a message from `source` that never comes.
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

// Ranks 0 and 2 exchange messages, and each then fails to exchange one with the victim. The errors
// are put on the board. Returns whether the messages between ranks 0 and 2 were right.
bool without_victim(Board& board, core::Communicator& among, int rank) {
  core::Mailbox& box = among.mailbox();
  const int peer = 2 - rank;
  std::vector<int> sent(100'000, rank), got(sent.size(), -1);
  const std::size_t bytes = sent.size() * sizeof(int);
  const MessagePtr early = box.recv(kVictim, 1, got.data(), sizeof(int), {});
  const MessagePtr all[] = {box.send(peer, 0, sent.data(), bytes, {}),
                            box.recv(peer, 0, got.data(), bytes, {})};
  for (const MessagePtr& each : all) {
    if (!each->wait(Deadline::after(seconds(30))).ok() || !each->status().ok()) return false;
  }
  if (got != std::vector<int>(got.size(), peer)) return false;
  const MessagePtr late = box.send(kVictim, 1, sent.data(), sizeof(int), {});
  const auto at = static_cast<std::size_t>(rank);
  for (const auto& [message, outcome] :
       {std::pair(early, &board.first[at]), {late, &board.later[at]}}) {
    const Status waited = message->wait(Deadline::after(seconds(30)));
    outcome->set(waited.ok() ? message->status() : waited);
  }
  return true;
}

void expect_named(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, Code::kRemote) << outcome.message();
  EXPECT_EQ(outcome.culprit, kVictim) << outcome.message();
  EXPECT_NE(outcome.message().find("rank 1"), std::string::npos) << outcome.message();
}

void expect_victim_named(Board& board) {
  for (const std::size_t rank : {0u, 2u}) {
    expect_named(board.first[rank]);
    expect_named(board.later[rank]);
  }
}

TEST_P(MailboxFailure, ARankThatHasLeftConcernsNoOtherRanks) {
  Processes processes;
  Board& board = processes.board();
  for (int rank = 0; rank < kSize; ++rank) {
    processes.start([&, rank] {
      Member member;
      if (!processes.enter(member, kSize, rank, quiet(GetParam())).ok()) return 1;
      if (rank != kVictim) {
        if (!eventually([&] { return board.progress[kVictim] != 0; })) return 2;
        if (!without_victim(board, *member.world, rank)) return 3;
      }
      Processes::leave(member);
      ++board.progress[static_cast<std::size_t>(rank)];
      return 0;
    });
  }
  for (const int rank : {kVictim, 0, 2}) EXPECT_EQ(processes.wait(rank), 0) << rank;
  expect_victim_named(board);
}

// Not only the first receive from any rank fails, but also those that are posted later.
TEST_P(MailboxFailure, AReceiveFromAnyRankEndsIfAllOthersHaveLeft) {
  Processes processes;
  Board& board = processes.board();
  for (int rank = 0; rank < kSize; ++rank) {
    processes.start([&, rank] {
      Member member;
      if (!processes.enter(member, kSize, rank, quiet(GetParam())).ok()) return 1;
      const auto left = [&] { return board.progress[1] != 0 && board.progress[2] != 0; };
      if (rank == 0 && !eventually(left)) return 2;
      for (int i = 0; rank == 0 && i < 3; ++i) {
        int number = 0;
        const MessagePtr message =
            member.world->mailbox().recv(Message::kAnyRank, 0, &number, sizeof number, {});
        if (!message->wait(Deadline::after(seconds(30))).ok()) return 3;
        if (message->status().code() != Code::kRemote) return 4;
      }
      Processes::leave(member);
      ++board.progress[static_cast<std::size_t>(rank)];
      return 0;
    });
  }
  for (const int rank : {1, 2, 0}) EXPECT_EQ(processes.wait(rank), 0) << rank;
}

// A rank that has destroyed a group stays in the world, where it still exchanges messages.
TEST_P(MailboxFailure, ARankThatHasDestroyedAGroupConcernsNoOtherRanks) {
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
        if (!without_victim(board, **group, rank)) return 3;
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
  expect_victim_named(board);
}

// Rank 0 waits for a rank, or for any rank, with which it has exchanged no message.
TEST_P(MailboxFailure, AReceiveNoticesThatItsPeerDestroysAGroup) {
  for (const int source : {kVictim, Message::kAnyRank}) {
    Processes processes;
    Board& board = processes.board();
    for (int rank = 0; rank < kSize; ++rank) {
      processes.start([&, rank] {
        Member member;
        if (!processes.enter(member, kSize, rank, quiet(GetParam())).ok()) return 1;
        auto group = member.world->group("group", {0, 1, 2}, 0);
        if (!group.ok()) return 2;
        int number = 0;
        core::Mailbox& box = (*group)->mailbox();
        const MessagePtr message = rank == 0 ? box.recv(source, 0, &number, sizeof number, {})
                                   : rank == kVictim
                                       ? box.send(2, 1, &number, sizeof number, {})
                                       : box.recv(kVictim, 1, &number, sizeof number, {});
        if (rank == 0) ++board.progress[0];
        if (!message->wait(Deadline::after(seconds(30))).ok()) return 3;
        if (rank == 0) {
          board.first[0].set(message->status());
        } else if (!message->status().ok() || !eventually([&] { return board.progress[0] != 0; })) {
          return 4;
        }
        group = Status(Code::kUnavail, "");
        if (!eventually([&] { return board.first[0].known.load(); })) return 5;
        Processes::leave(member);
        return 0;
      });
    }
    for (int rank = 0; rank < kSize; ++rank) EXPECT_EQ(processes.wait(rank), 0) << rank;
    EXPECT_EQ(board.first[0].code, Code::kRemote) << board.first[0].message();
    const int culprit = board.first[0].culprit;
    EXPECT_TRUE(culprit == kVictim || (source == Message::kAnyRank && culprit == 2))
        << board.first[0].message();
  }
}

// A rank leaves the world just as others send their first messages. It may still take part in
// opening connections; then a message can be sent to it.
TEST_P(MailboxFailure, ARankThatLeavesAsOthersBeginConcernsNoOtherRanks) {
  for (const int after : {0, 1, 3}) {
    Processes processes;
    Board& board = processes.board();
    for (int rank = 0; rank < kSize; ++rank) {
      processes.start([&, rank] {
        Member member;
        if (!processes.enter(member, kSize, rank, quiet(GetParam())).ok()) return 1;
        const auto me = static_cast<std::size_t>(rank);
        ++board.progress[me];
        if (!eventually([&] {
              return board.progress[0] != 0 && board.progress[1] != 0 && board.progress[2] != 0;
            })) {
          return 2;
        }
        if (rank == kVictim) {
          std::this_thread::sleep_for(std::chrono::milliseconds(after));
        } else if (!without_victim(board, *member.world, rank)) {
          return 3;
        }
        Processes::leave(member);
        return 0;
      });
    }
    for (const int rank : {kVictim, 0, 2}) EXPECT_EQ(processes.wait(rank), 0) << rank;
    for (const std::size_t rank : {0u, 2u}) expect_named(board.first[rank]);
  }
}

// Exchanges the first message between ranks 0 and 2, and puts its result on the board.
void first_message(Board& board, core::Communicator& among) {
  int number = 0;
  const MessagePtr message = among.mailbox().send(2, 0, &number, sizeof number, {});
  const Status waited = message->wait(Deadline::after(seconds(30)));
  board.first[0].set(waited.ok() ? message->status() : waited);
}

// The victim leaves the world, or destroys a group, while it waits for rank 2 to open the mesh.
TEST(MailboxOpening, ARankThatLeavesMeanwhileIsNamed) {
  for (const bool group : {false, true}) {
    SCOPED_TRACE(group);
    Processes processes;
    Board& board = processes.board();
    const auto body = [&](int rank) {
      Member member;
      if (!processes.enter(member, kSize, rank, quiet("tcp")).ok()) return 1;
      std::shared_ptr<core::Communicator> among = member.world;
      if (group) among = member.world->group("group", {0, 1, 2}, 0).value();
      if (rank == 2) {
        among->mailbox().end(Status(Code::kUnavail, "played by the test"));
        ++board.progress[2];
      } else if (!eventually([&] { return board.progress[2] != 0; })) {
        return 2;
      }
      if (rank == 0) first_message(board, *among);
      if (rank == kVictim) {
        among->mailbox().start();
        among.reset();
        if (!group) Processes::leave(member);
      }
      if (!eventually([&] { return board.first[0].known.load(); })) return 3;
      among.reset();
      Processes::leave(member);
      return 0;
    };
    for (int rank = 0; rank < kSize; ++rank) processes.start([&, rank] { return body(rank); });
    for (const int rank : {kVictim, 0, 2}) EXPECT_EQ(processes.wait(rank), 0) << rank;
    expect_named(board.first[0]);
    const std::string text = board.first[0].message();
    EXPECT_NE(text.find("ended the communicator while it opened"), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, MailboxFailure, ::testing::Values("auto", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hccl::testing
