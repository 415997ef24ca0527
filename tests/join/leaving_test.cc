// Failing and leaving: all ranks learn which rank lacks descriptors, has left or is dead; leaving
// is quick and leaves nothing behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <filesystem>
#include <functional>
#include <regex>
#include <set>
#include <thread>

#include "hccl/core/opening.h"
#include "tests/join/join_parts.h"
#include "tests/support/load.h"
#include "tests/support/processes.h"
#include "tests/support/siblings.h"
#include "tests/support/world.h"

namespace hccl::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// A limit that leaves this many descriptors, whichever are open.
rlimit limit_that_leaves(std::size_t descriptors) {
  std::vector<Fd> taken;
  for (std::size_t i = 0; i <= descriptors; ++i) taken.emplace_back(::open("/dev/null", O_RDONLY));
  return {static_cast<rlim_t>(taken.back().get()), 4096};
}

// A rank that has no descriptors left gets an error with the limit and the remedy; the other rank's
// error names that rank.
TEST(Failing, RunningOutOfDescriptorsIsNamed) {
  constexpr int kSize = 2;
  int failures = 0;
  for (const int scarce : {0, 1}) {
    for (std::size_t spare = 1; spare < 10; spare += 2) {
      Processes processes;
      Board& board = processes.board();
      for (int r = 0; r < kSize; ++r) {
        processes.start([&, r] {
          // Rank 0 needs four for the control thread and the root.
          const rlimit few = limit_that_leaves(spare + (r == 0 ? 4 : 0));
          if (r == scarce && ::setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
          Member member;
          board.first[static_cast<std::size_t>(r)].set(
              processes.enter(member, kSize, r, config_of(seconds(10))));
          Processes::leave(member);
          return 0;
        });
      }
      const auto& own = board.first[static_cast<std::size_t>(scarce)];
      const auto& other = board.first[static_cast<std::size_t>(1 - scarce)];
      ASSERT_TRUE(eventually([&] { return own.known.load() && other.known.load(); }));
      if (own.code == Code::kSuccess) continue;
      ++failures;
      EXPECT_NE(own.message().find("ulimit -n"), std::string::npos)
          << "rank " << scarce << ": " << own.message();
      const std::string who = "rank " + std::to_string(scarce);
      EXPECT_TRUE(other.message().find(who) != std::string::npos ||
                  other.message().find("absent: " + std::to_string(scarce)) != std::string::npos ||
                  other.message().find("the root") != std::string::npos)
          << spare << ": " << other.message();
    }
  }
  EXPECT_GT(failures, 2);
}

// The ranks named in a text.
std::set<std::string> ranks_in(const std::string& text) {
  std::set<std::string> ranks;
  const std::regex number("ranks? ([0-9]+)");
  for (std::sregex_iterator at(text.begin(), text.end(), number), end; at != end; ++at) {
    ranks.insert((*at)[1]);
  }
  return ranks;
}

// Each rank's error names the rank that lacks descriptors, its limit, and no other rank.
void expect_only_lack_of(int scarce, rlim_t limit, const Outcome& outcome, bool own) {
  const std::string text = outcome.message();
  EXPECT_EQ(outcome.code, Code::kSyscall) << text;
  if (!own) {
    EXPECT_EQ(outcome.culprit, scarce) << text;
  }
  const std::string words =
      "at most " + std::to_string(limit) + " descriptors; raise the limit (ulimit -n)";
  EXPECT_NE(text.find(words), std::string::npos) << text;
  for (const std::string& named : ranks_in(text)) EXPECT_EQ(named, std::to_string(scarce)) << text;
}

// Opens a world, and calls until a call fails. Then ends the process without leaving. Rank 0's
// process, which informs the others, ends last. Once all ranks are in the world, `scarce` gets a
// limit that leaves `spare` descriptors.
[[noreturn]] void call_until_error(Processes& processes, int size, int rank, int scarce,
                                   std::size_t spare,
                                   const std::function<Status(core::Communicator&)>& call) {
  Board& board = processes.board();
  Outcome& outcome = board.first[static_cast<std::size_t>(rank)];
  std::atomic<std::uint64_t>&arrived = board.progress[0], &limit = board.progress[1],
  &since = board.progress[2];
  Member member;
  const Status entered = processes.enter(member, size, rank, quiet_config("tcp"));
  if (!entered.ok()) {
    outcome.set(entered);
    ::_exit(1);
  }
  ++arrived;
  if (!eventually([&] { return arrived == static_cast<std::uint64_t>(size); })) ::_exit(1);
  if (rank == scarce) {
    const rlimit few = limit_that_leaves(spare);
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) ::_exit(1);
    since = static_cast<std::uint64_t>(now_ns());
    limit = few.rlim_cur;
  }
  if (!eventually([&] { return limit != 0; })) ::_exit(1);
  Status status;
  while (status.ok()) status = call(*member.world);
  outcome.set(status);
  if (rank == 0) eventually([&] { return board.finish.load(); });
  ::_exit(0);
}

void expect_all_hear_of_lack(int size, int scarce, std::size_t spare,
                             const std::function<Status(core::Communicator&)>& call) {
  SCOPED_TRACE("rank " + std::to_string(scarce) + ", " + std::to_string(spare) + " spare");
  const Load load;
  Processes processes;
  Board& board = processes.board();
  for (int r = 0; r < size; ++r) {
    processes.start([&, r]() -> int { call_until_error(processes, size, r, scarce, spare, call); });
  }
  for (int r = 0; r < size; ++r) {
    const Outcome& outcome = board.first[static_cast<std::size_t>(r)];
    ASSERT_TRUE(eventually([&] { return outcome.known.load(); })) << r;
    expect_only_lack_of(scarce, board.progress[1], outcome, r == scarce);
    const nanoseconds took(outcome.at_ns - static_cast<std::int64_t>(board.progress[2].load()));
    EXPECT_LE(took, load.allows(kSoon));
  }
  board.finish = true;
}

TEST(Failing, AllRanksHearWhichProcessLacksDescriptorsForLinks) {
  const auto alltoall = [](core::Communicator& world) {
    std::vector<float> in(16), out(16);
    return world.operations().run({Op::kAllToAll, in.data(), out.data(), 1});
  };
  for (const int scarce : {0, 5}) {
    for (const std::size_t spare : {0, 1, 6}) expect_all_hear_of_lack(16, scarce, spare, alltoall);
  }
}

// Rank 0 cannot accept a connection, or rank 1 cannot make one.
TEST(Failing, AllRanksHearWhichProcessLacksADescriptorForALink) {
  const auto from_rank_1 = [](core::Communicator& world) {
    std::vector<float> data(16);
    return world.operations().run(
        {.op = Op::kBroadcast, .in = data.data(), .out = data.data(), .count = 16, .root = 1});
  };
  for (const int scarce : {0, 1}) expect_all_hear_of_lack(3, scarce, 0, from_rank_1);
}

// Rank 0 dies before rank 1 fails for a reason of its own.
TEST(Failing, TheDeathOfAnotherRankDoesNotReplaceTheOwnReason) {
  for (const char* const transport : {"auto", "tcp", "shm"}) {
    SCOPED_TRACE(transport);
    const Config config = quiet_config(transport);
    Processes processes;
    Board& board = processes.board();
    processes.start([&] {
      Member member;
      if (!processes.join(member, 2, 0, config).ok()) return 1;
      const AbortFlag never;
      // The opening of a world begins with this agreement.
      const auto met = member.control->agree(core::identity(member.control->info().id, "world"), {},
                                             config.agreement(), "", Deadline::after(seconds(60)),
                                             never, "world");
      return met.ok() ? 0 : 1;  // keeps the node until rank 1 has the answer, too
    });
    processes.start([&] {
      Member member;
      if (!processes.join(member, 2, 1, config).ok()) return 1;
      const rlimit none = limit_that_leaves(0);
      if (::setrlimit(RLIMIT_NOFILE, &none) != 0) return 1;
      const Logger log = make_logger("off", "rank 1");
      board.first[1].set(
          core::Communicator::world(member.control, "world", config, log, testing::siblings())
              .status());
      return 0;
    });
    const Outcome& own = board.first[1];
    ASSERT_TRUE(eventually([&] { return own.known.load(); }));
    EXPECT_EQ(own.code, Code::kSyscall);
    EXPECT_NE(own.message().find("ulimit -n"), std::string::npos) << own.message();
  }
}

// A rank leaves quickly, however long the other ranks stay.
TEST(Leave, IsQuickInAnyOrder) {
  constexpr int kSize = 4;
  for (const std::array<int, kSize> order : {std::array{0, 1, 2, 3}, std::array{3, 2, 1, 0},
                                             std::array{1, 3, 0, 2}, std::array{0, 0, 0, 0}}) {
    Processes processes;
    Board& board = processes.board();
    std::atomic<std::uint64_t>* const begun = board.progress.data();
    std::atomic<std::uint64_t>* const allowed = begun + kSize;
    for (int r = 0; r < kSize; ++r) {
      processes.start([&, r] {
        const auto me = static_cast<std::size_t>(r);
        Member member;
        Status status = processes.enter(member, kSize, r, config_of(seconds(60)));
        std::vector<float> data(1000, 1.0F);
        if (status.ok()) status = member.world->operations().run(sum(data));
        std::this_thread::sleep_for(milliseconds(100) * order[me]);
        const Load load;
        begun[me] = static_cast<std::uint64_t>(now_ns());
        Processes::leave(member);
        board.first[me].set(status);
        allowed[me] = static_cast<std::uint64_t>(load.allows(seconds(1)).count());
        return 0;
      });
    }
    for (std::size_t r = 0; r < kSize; ++r) {
      ASSERT_TRUE(eventually([&] { return board.first[r].known.load(); }));
      EXPECT_EQ(board.first[r].code, Code::kSuccess) << board.first[r].message();
      EXPECT_EQ(processes.wait(static_cast<int>(r)), 0);
      const std::int64_t took = board.first[r].at_ns - static_cast<std::int64_t>(begun[r].load());
      EXPECT_LE(took, static_cast<std::int64_t>(allowed[r].load())) << "rank " << r;
    }
  }
}

std::size_t entries(const char* directory) {
  const std::filesystem::directory_iterator all(directory);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// The root fails to write to rank 1 before it reads that rank 1's program has ended.
TEST(Leave, LastWordsAreHeardFromARankThatTakesNoMoreBytes) {
  Meeting meeting;
  meeting.come(0, 2);
  auto apart = make_control();
  meeting.come_apart(1, 2, apart);
  expect_all_in(meeting, 2);
  const auto& first = *meeting.done()[0];
  Ear ear;
  first.control->add(&ear);
  const auto lines = ends_at_root(meeting.info);
  ASSERT_EQ(lines.size(), 1u);
  meeting.control()->hold();
  first.control->report(Uuid{1}, Status(Code::kPara, "calls differ"));
  std::thread([&] {  // a second lock of this level needs another thread
    meeting.done()[1]->control->ended("barrier #4");
    const linger reset{1, 0};
    EXPECT_EQ(::setsockopt(lines[0], SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    meeting.done()[1]->control.reset();
    apart.reset();
  })
      .join();
  meeting.control()->release();
  const Status why = ear.hears("rank 1 (127.0.0.1 pid " + std::to_string(::getpid()) + ")");
  EXPECT_TRUE(has(why, "has left: its program ended") && has(why, "after barrier #4"))
      << why.message();
  first.control->remove(&ear);
}

// All ranks of the world gather their numbers.
Status gather(join::World& world, std::uint8_t number) {
  const AbortFlag never;
  return world.exchange(Uuid{1, number}, "part", Deadline::after(seconds(60)), never).status();
}
void expect_all_gather(Meeting& meeting, std::uint8_t number) {
  std::vector<std::thread> ranks;
  for (const auto& each : meeting.done()) {
    ranks.emplace_back([&world = *each->control, number] {
      const Status status = gather(world, number);
      EXPECT_TRUE(status.ok()) << status.message();
    });
  }
  for (auto& each : ranks) each.join();
}

// Rank 0 already waits to open connections, and rank 2 waits later.
TEST(Leave, ARankThatReportsItsEndEndsTheOpening) {
  Meeting meeting;
  for (int r = 0; r < 3; ++r) meeting.come(r, 3);
  expect_all_in(meeting, 3);
  Ear ear;
  meeting.done()[2]->control->add(&ear);
  Status waits;
  std::thread early([&] { waits = gather(*meeting.done()[0]->control, 1); });
  const std::string words = "rank 1 ended the communicator while it opened connections";
  meeting.done()[1]->control->report(Uuid{1, 1}, Status(Code::kRemote, words, 1));
  early.join();
  EXPECT_EQ(waits.code(), Code::kRemote);
  EXPECT_EQ(waits.culprit(), 1);
  EXPECT_TRUE(has(waits, words)) << waits.message();
  EXPECT_EQ(ear.hears(words).culprit(), 1);
  const Status late = gather(*meeting.done()[2]->control, 1);
  EXPECT_TRUE(has(late, words)) << late.message();
  meeting.done()[2]->control->remove(&ear);
}

// Rank 1 will not come: it reported that, or left the world. The other ranks learn which ranks have
// come.
TEST(Leave, ThoseThatComeDoNotWaitForARankThatWillNot) {
  for (const bool leaves : {false, true}) {
    SCOPED_TRACE(leaves);
    Meeting meeting;
    for (int r = 0; r < 3; ++r) meeting.come(r, 3);
    expect_all_in(meeting, 3);
    const Uuid key{1, 1};
    const std::vector<int> all{2, 1, 0};
    std::array<Result<std::vector<int>>, 3> here{std::vector<int>(), std::vector<int>(),
                                                 std::vector<int>()};
    const auto come = [&](std::size_t rank) {
      const AbortFlag never;
      here[rank] = meeting.done()[rank]->control->present(key, all, Deadline::after(seconds(60)),
                                                          never, "messages");
    };
    join::World& goes = *meeting.done()[1]->control;
    if (leaves) {
      goes.leave();
    } else {
      goes.will_not_come(key, all);
    }
    meeting.done()[0]->control->summon(key);
    std::thread other(come, 2);
    come(0);
    other.join();
    for (const std::size_t rank : {0u, 2u}) {
      ASSERT_TRUE(here[rank].ok()) << here[rank].status().message();
      EXPECT_EQ(*here[rank], (std::vector<int>{2, 0}));
    }
    if (leaves) continue;
    come(1);  // all ranks must agree which ranks came
    EXPECT_EQ(here[1].status().code(), Code::kUnavail) << here[1].status().message();
  }
}

// The root's process may have no rank.
TEST(Leave, TheEndOfARootWithoutARankEndsNothing) {
  Meeting meeting;
  const auto apart = make_control();
  for (int r = 0; r < 3; ++r) meeting.come_apart(r, 3, apart);
  expect_all_in(meeting, 3);
  std::array<Ear, 3> ears;
  for (std::size_t r = 0; r < 3; ++r) meeting.done()[r]->control->add(&ears[r]);
  expect_all_gather(meeting, 1);
  meeting.end_root();
  expect_all_gather(meeting, 2);
  for (const Ear& each : ears) EXPECT_FALSE(each.heard()) << each.heard()->message();
  // A failure still reaches all ranks.
  meeting.done()[1]->control->report(Uuid{7}, Status(Code::kPara, "calls differ"));
  for (const Ear& each : ears) EXPECT_TRUE(has(each.hears("calls differ"), "calls"));
  for (std::size_t r = 0; r < 3; ++r) meeting.done()[r]->control->remove(&ears[r]);
}

// A rank does not count itself as dead, even if the other ranks do.
TEST(Leave, ARankDoesNotCallItselfDead) {
  Config config = config_of(seconds(60));
  config.peer_timeout = seconds(2);
  for (const std::size_t stopped : {0, 1, 2}) {
    SCOPED_TRACE("rank " + std::to_string(stopped));
    Meeting meeting(config);
    std::vector<std::shared_ptr<join::Control>> threads{meeting.control()};
    meeting.come(0, 3);
    for (const int rank : {1, 2}) meeting.come_apart(rank, 3, threads.emplace_back(make_control()));
    expect_all_in(meeting, 3);
    std::array<Ear, 3> ears;
    for (std::size_t r = 0; r < 3; ++r) meeting.done()[r]->control->add(&ears[r]);
    threads[stopped]->hold();
    const std::string name = "rank " + std::to_string(stopped);
    for (std::size_t r = 0; r < 3; ++r) {
      if (r == stopped) continue;
      const Status why = ears[r].hears();
      EXPECT_TRUE(has(why, name + " (127.0.0.1 pid ")) << why.message();
      EXPECT_EQ(why.culprit(), static_cast<int>(stopped));
    }
    EXPECT_FALSE(ears[stopped].heard());
    threads[stopped]->release();
    const Status own = ears[stopped].hears();
    EXPECT_TRUE(has(own, "the other ranks have not heard from " + name + " ")) << own.message();
    EXPECT_EQ(own.culprit(), Status::kNobody);
    EXPECT_TRUE(meeting.done()[stopped]->control->is_lost());
    for (std::size_t r = 0; r < 3; ++r) meeting.done()[r]->control->remove(&ears[r]);
  }
}

// The world goes on without its first root's process.
TEST(Leave, ARankThatHasLeftIsNotCalledDead) {
  Meeting meeting;
  meeting.come(0, 2);
  meeting.come_apart(1, 2, make_control());
  expect_all_in(meeting, 2);
  join::World& stays = *meeting.done()[1]->control;
  Ear old, young;
  stays.add(&old);
  meeting.done()[0]->control->leave();
  ASSERT_TRUE(eventually([&] { return stays.has_left(0); }));
  meeting.done()[0]->control.reset();
  meeting.end_root();
  const Status why = gather(stays, 1);
  EXPECT_EQ(why.code(), Code::kRemote);
  EXPECT_TRUE(has(why, "rank 0 (") && has(why, "has destroyed its communicator")) << why.message();
  EXPECT_FALSE(has(why, "died")) << why.message();
  stays.add(&young);
  for (const Ear* each : {&old, &young}) EXPECT_FALSE(each->heard("died"));
  EXPECT_FALSE(stays.is_lost());
  stays.remove(&old);
  stays.remove(&young);
}

TEST(Leave, FiftyCyclesLeaveNoDescriptorAndNoThread) {
  const auto cycle = [](int i) {
    Config config = config_of(seconds(60));
    config.transport = i % 2 == 0 ? "auto" : "tcp";
    World world(2, config);
    ASSERT_TRUE(world.ok());
    world.run([](core::Communicator& communicator) {
      std::vector<float> data(10, 1.0F);
      EXPECT_TRUE(communicator.operations().run(sum(data)).ok());
    });
  };
  cycle(0);
  cycle(1);
  const std::size_t descriptors = entries("/proc/self/fd");
  const std::size_t threads = entries("/proc/self/task");
  for (int i = 0; i < 50; ++i) cycle(i);
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  // The kernel may list a joined thread for another moment.
  EXPECT_TRUE(eventually([&] { return entries("/proc/self/task") <= threads; }));
}

}  // namespace
}  // namespace hccl::testing
