// Failures: each survivor gets an error that names the failed rank, within a second, and gets it
// again later; and nothing is left behind. Ranks are processes here, so that they can die.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/support/config.h"
#include "tests/support/folder.h"
#include "tests/support/processes.h"

namespace hccl::testing {
namespace {

using std::chrono::seconds;

constexpr int kSize = 4;
// The promised time. A test adds the machine's own lateness once for each thread that must wake in
// a row.
constexpr seconds kNotice{1};
constexpr int kWakeUps = 4;

Config config_for(const std::string& transport, const std::string& folder) {
  Config config = quiet_config(transport);
  config.flight_recorder_dir = folder;
  return config;
}

Call allreduce(const std::vector<float>& in, std::vector<float>& out) {
  return {Op::kAllReduce, in.data(), out.data(), in.size()};
}

// Long and short allreduces, a broadcast and an alltoall in turn; checks their results.
class Work {
 public:
  Work(core::Communicator& world) : world_(world) {}  // NOLINT(google-explicit-constructor)

  Status next() {
    const int turn = turn_++ % 4;
    if (turn == 3) {
      Call call = allreduce(long_in_, long_out_);
      call.op = Op::kAllToAll;
      call.count = long_in_.size() / static_cast<std::size_t>(world_.size());
      const Status status = world_.operations().run(call);
      return status.ok() ? checked(long_out_, 1) : status;
    }
    if (turn == 2) {
      Call call{.op = Op::kBroadcast,
                .in = broadcast_.data(),
                .out = broadcast_.data(),
                .count = broadcast_.size(),
                .root = turn_ % world_.size()};
      if (world_.rank() == call.root) broadcast_.assign(broadcast_.size(), 5);
      const Status status = world_.operations().run(call);
      return status.ok() ? checked(broadcast_, 5) : status;
    }
    std::vector<float>& in = turn == 0 ? long_in_ : short_in_;
    std::vector<float>& out = turn == 0 ? long_out_ : short_out_;
    const Status status = world_.operations().run(allreduce(in, out));
    return status.ok() ? checked(out, static_cast<float>(world_.size())) : status;
  }

 private:
  static Status checked(const std::vector<float>& data, float expected) {
    const bool right =
        std::all_of(data.begin(), data.end(), [&](float x) { return x == expected; });
    return right ? Status() : Status(Code::kInternal, "a wrong result");
  }

  core::Communicator& world_;
  int turn_ = 0;
  std::vector<float> long_in_ = std::vector<float>(3 << 18, 1);
  std::vector<float> long_out_ = std::vector<float>(3 << 18);
  std::vector<float> short_in_ = std::vector<float>(7, 1);
  std::vector<float> short_out_ = std::vector<float>(7);
  std::vector<float> broadcast_ = std::vector<float>(1 << 14);
};

// The life of a rank: it calls until a call fails, calls once more, and leaves.
int live(Processes& processes, int rank, const Config& config) {
  Board& board = processes.board();
  Member member;
  Status status = processes.enter(member, kSize, rank, config);
  if (status.ok()) {
    Work work(*member.world);
    while (status.ok() && !board.finish) {
      status = work.next();
      if (status.ok()) ++board.progress[static_cast<std::size_t>(rank)];
    }
    board.first[static_cast<std::size_t>(rank)].set(status);
    board.later[static_cast<std::size_t>(rank)].set(work.next());
  } else {
    board.first[static_cast<std::size_t>(rank)].set(status);
  }
  Processes::leave(member);
  return 0;
}

bool all_at_work(const Board& board) {
  return std::all_of(board.progress.begin(), board.progress.begin() + kSize,
                     [](const auto& done) { return done >= 4; });
}

// Starts all ranks, and returns whether they work.
bool start_all(Processes& processes, const Config& config) {
  for (int r = 0; r < kSize; ++r) {
    processes.start([&, r] { return live(processes, r, config); });
  }
  return eventually([&] { return all_at_work(processes.board()); });
}

bool all_know(const Board& board, int victim) {
  for (int r = 0; r < kSize; ++r) {
    if (r != victim && !board.later[static_cast<std::size_t>(r)].known) return false;
  }
  return true;
}

// Checks the file that one rank wrote: JSON, whose last operation is the one that failed.
void expect_dump(const Folder& folder, const std::string& name, Code code) {
  const auto dump = nlohmann::json::parse(folder.read(name), nullptr, false);
  ASSERT_FALSE(dump.is_discarded()) << name << " is no JSON";
  EXPECT_EQ(dump["failure"]["code"], static_cast<int>(code));
  ASSERT_FALSE(dump["operations"].empty());
  const auto& last = dump["operations"].back();
  EXPECT_EQ(last["result"], static_cast<int>(code)) << last;
  const std::string call = last["call"];
  EXPECT_TRUE(call.starts_with("allreduce #") || call.starts_with("broadcast #") ||
              call.starts_with("alltoall #"))
      << call;
}

void expect_survivors_know(Processes& processes, const Folder& folder, int victim,
                           std::int64_t since, std::chrono::nanoseconds bound) {
  const Board& board = processes.board();
  const std::vector<std::string> files = folder.files();
  EXPECT_EQ(files.size(), kSize - 1u);
  for (int r = 0; r < kSize; ++r) {
    if (r == victim) continue;
    const Outcome& first = board.first[static_cast<std::size_t>(r)];
    const Outcome& later = board.later[static_cast<std::size_t>(r)];
    SCOPED_TRACE("rank " + std::to_string(r) + ": " + first.message());
    EXPECT_EQ(first.code, Code::kRemote);
    EXPECT_EQ(first.culprit, victim);
    EXPECT_NE(first.message().find("rank " + std::to_string(victim) + " "), std::string::npos);
    EXPECT_LE(first.at_ns - since, bound.count());
    EXPECT_EQ(later.code, Code::kRemote);
    EXPECT_EQ(later.culprit, victim);
    const auto dump = std::find_if(files.begin(), files.end(), [&](const std::string& name) {
      return name.find("-rank" + std::to_string(r) + "-") != std::string::npos;
    });
    ASSERT_NE(dump, files.end());
    expect_dump(folder, *dump, Code::kRemote);
    EXPECT_EQ(processes.wait(r), 0) << "ended badly";
  }
}

class Failure : public ::testing::TestWithParam<std::string> {
 protected:
  void TearDown() override {
    int status = 0;
    EXPECT_EQ(::waitpid(-1, &status, WNOHANG), -1) << "a child is left";
    EXPECT_EQ(errno, ECHILD);
  }
};

TEST_P(Failure, KilledRankIsNamedByAllSurvivorsWithinASecond) {
  std::mt19937 random(20240607);  // NOLINT(cert-msc51-cpp): the same moments every time
  std::int64_t worst = 0;
  for (const int victim : {0, 1, 3, 0, 2, 3, 0, 1}) {
    SCOPED_TRACE("victim " + std::to_string(victim));
    Folder folder;
    Processes processes;
    const Config config = config_for(GetParam(), folder.path());
    Board& board = processes.board();
    ASSERT_TRUE(start_all(processes, config)) << board.first[0].message();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    const std::int64_t killed = now_ns();
    processes.kill(victim);
    Lateness lateness;
    ASSERT_TRUE(lateness.watch([&] { return all_know(board, victim); }, seconds(60)));
    for (int r = 0; r < kSize; ++r) {
      if (r != victim)
        worst = std::max(worst, board.first[static_cast<std::size_t>(r)].at_ns - killed);
    }
    expect_survivors_know(processes, folder, victim, killed, kNotice + kWakeUps * lateness.worst());
    EXPECT_TRUE(WIFSIGNALED(processes.wait(victim)));
  }
  std::cout << "  worst time from SIGKILL to the error on a survivor (" << GetParam()
            << "): " << static_cast<double>(worst) / 1e6 << " ms\n";
}

// A stopped process keeps its connections open, and its kernel acknowledges packets: only its
// silence shows that it is stopped.
TEST_P(Failure, StoppedRankIsNamedAtThePeerTimeout) {
  for (const int victim : {0, 2}) {
    SCOPED_TRACE("victim " + std::to_string(victim));
    Folder folder;
    Processes processes;
    Config config = config_for(GetParam(), folder.path());
    config.peer_timeout = seconds(2);
    Board& board = processes.board();
    ASSERT_TRUE(start_all(processes, config)) << board.first[0].message();
    const std::int64_t stopped = now_ns();
    processes.kill(victim, SIGSTOP);
    Lateness lateness;
    ASSERT_TRUE(lateness.watch([&] { return all_know(board, victim); }, seconds(60)));
    expect_survivors_know(processes, folder, victim, stopped,
                          config.peer_timeout + kNotice + kWakeUps * lateness.worst());
    for (int r = 0; r < kSize; ++r) {
      if (r == victim) continue;
      const std::string text = board.first[static_cast<std::size_t>(r)].message();
      EXPECT_NE(text.find("no sign of life"), std::string::npos) << text;
    }
    processes.kill(victim, SIGKILL);
    processes.wait(victim);
  }
}

// The other ranks wait in an operation, and the successor of a stopped root takes its place.
TEST_P(Failure, ARankThatIsStoppedForLessThanThePeerTimeoutGoesOn) {
  for (const int stopped : {0, 2}) {
    SCOPED_TRACE("stopped " + std::to_string(stopped));
    Folder folder;
    Processes processes;
    const Config config = config_for(GetParam(), folder.path());
    Board& board = processes.board();
    ASSERT_TRUE(start_all(processes, config)) << board.first[0].message();
    processes.kill(stopped, SIGSTOP);
    std::this_thread::sleep_for(seconds(4));
    const std::uint64_t before = board.progress[1];
    processes.kill(stopped, SIGCONT);
    EXPECT_TRUE(eventually([&] { return board.progress[1] > before + 8 || board.first[1].known; }));
    for (int r = 0; r < kSize; ++r) {
      const Outcome& first = board.first[static_cast<std::size_t>(r)];
      EXPECT_FALSE(first.known) << first.message();
    }
  }
}

TEST_P(Failure, ExitWithoutDestroyIsNamedToo) {
  for (const int victim : {0, 2}) {
    SCOPED_TRACE("victim " + std::to_string(victim));
    Folder folder;
    Processes processes;
    const Config config = config_for(GetParam(), folder.path());
    Board& board = processes.board();
    for (int r = 0; r < kSize; ++r) {
      processes.start([&, r] {
        if (r != victim) return live(processes, r, config);
        Member member;
        if (!processes.enter(member, kSize, r, config).ok()) return 1;
        Work work(*member.world);
        for (int i = 0; i < 6 && work.next().ok(); ++i)
          ++board.progress[static_cast<std::size_t>(r)];
        std::exit(0);
      });
    }
    Lateness lateness;
    ASSERT_TRUE(lateness.watch([&] { return all_know(board, victim); }, seconds(60)));
    EXPECT_EQ(processes.wait(victim), 0) << "exit is not held up";
    expect_survivors_know(processes, folder, victim, now_ns(), seconds(0));
  }
}

TEST_P(Failure, RankThatNeverCallsIsNamedAtTheTimeout) {
  for (const int silent : {0, 2}) {
    SCOPED_TRACE("silent " + std::to_string(silent));
    Folder folder;
    Processes processes;
    const Config config = config_for(GetParam(), folder.path());
    Board& board = processes.board();
    std::array<std::int64_t, kSize> begun{};
    for (int r = 0; r < kSize; ++r) {
      processes.start([&, r] {
        const auto me = static_cast<std::size_t>(r);
        Member member;
        if (!processes.enter(member, kSize, r, config).ok()) return 1;
        Work work(*member.world);
        for (int i = 0; i < 4; ++i) {
          if (!work.next().ok()) return 2;
        }
        member.world->settings().timeout = seconds(2);
        if (r == silent) {
          eventually([&] { return all_know(board, silent); });
        } else {
          begun[me] = now_ns();
          board.first[me].set(work.next());
          board.progress[me] = static_cast<std::uint64_t>(board.first[me].at_ns - begun[me]);
        }
        board.later[me].set(work.next());
        Processes::leave(member);
        return 0;
      });
    }
    Lateness lateness;
    ASSERT_TRUE(lateness.watch([&] { return all_know(board, silent); }, seconds(60)));
    for (int r = 0; r < kSize; ++r) EXPECT_EQ(processes.wait(r), 0);
    std::uint64_t longest = 0;  // longest wait: the rank that called first times out first, for all
    for (int r = 0; r < kSize; ++r) {
      const auto me = static_cast<std::size_t>(r);
      EXPECT_EQ(board.later[me].code, Code::kTimeout) << "rank " << r;
      if (r == silent) continue;
      const Outcome& first = board.first[me];
      SCOPED_TRACE("rank " + std::to_string(r) + ": " + first.message());
      EXPECT_EQ(first.code, Code::kTimeout);
      EXPECT_EQ(first.culprit, silent);
      EXPECT_NE(first.message().find("allreduce #5"), std::string::npos);
      EXPECT_NE(first.message().find("did not call it (world ranks): " + std::to_string(silent)),
                std::string::npos);
      longest = std::max(longest, board.progress[me].load());
      EXPECT_LE(std::chrono::nanoseconds(board.progress[me].load()),
                seconds(6) + kWakeUps * lateness.worst());
    }
    EXPECT_GE(longest, 1'500'000'000u);
  }
}

// All ranks stop, as if the machine or its container is suspended. When the root's process runs
// again as the first one, it has received nothing from any rank for longer than the peer timeout.
// The time in which the root did not run must not count.
TEST(Suspended, RanksThatWereStoppedTogetherGoOn) {
  Folder folder;
  Processes processes;
  Config config = config_for("auto", folder.path());
  config.peer_timeout = seconds(2);
  Board& board = processes.board();
  ASSERT_TRUE(start_all(processes, config)) << board.first[0].message();
  for (int r = 0; r < kSize; ++r) processes.kill(r, SIGSTOP);
  std::this_thread::sleep_for(seconds(3));
  const std::uint64_t before = board.progress[1];
  for (int r = 0; r < kSize; ++r) {
    processes.kill(r, SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(eventually([&] { return board.progress[1] > before + 8 || board.first[1].known; }));
  for (int r = 0; r < kSize; ++r) {
    const Outcome& first = board.first[static_cast<std::size_t>(r)];
    EXPECT_FALSE(first.known) << first.message();
  }
}

// Connected TCP sockets of this process, by their local and remote ports.
struct Connected {
  int fd = -1;
  std::uint16_t own = 0, other = 0;
};
std::vector<Connected> connections() {
  std::vector<Connected> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    Connected each{.fd = std::stoi(entry.path().filename())};
    sockaddr_in own{}, other{};
    socklen_t length = sizeof own, other_length = sizeof other;
    if (::getsockname(each.fd, reinterpret_cast<sockaddr*>(&own), &length) != 0 ||
        own.sin_family != AF_INET ||
        ::getpeername(each.fd, reinterpret_cast<sockaddr*>(&other), &other_length) != 0) {
      continue;
    }
    each.own = own.sin_port;
    each.other = other.sin_port;
    all.push_back(each);
  }
  return all;
}

// The connection between two living ranks ends, as by `ss -K`. It belongs to the world, or to a
// group of ranks 1 to 3.
class Reset : public ::testing::TestWithParam<bool> {};

TEST_P(Reset, ABrokenConnectionIsNamedAlikeByAll) {
  const bool in_group = GetParam();
  Folder folder;
  Processes processes;
  const Config config = config_for("tcp", folder.path());
  Board& board = processes.board();
  // The local and remote ports of rank 2's links in the communicator.
  std::atomic<std::uint64_t>* const ports = &board.progress[8];
  std::atomic<std::uint64_t>& ports_known = board.progress[7];
  std::atomic<std::uint64_t>& at_work = board.progress[6];
  for (int r = 0; r < kSize; ++r) {
    processes.start([&, r] {
      const auto me = static_cast<std::size_t>(r);
      Member member;
      std::vector<Connected> before = connections();
      if (!processes.enter(member, kSize, r, config).ok()) return 1;
      std::shared_ptr<core::Communicator> group;
      if (in_group && r != 0) {
        before = connections();
        auto made = member.world->group("some", {1, 2, 3}, 0);
        if (!made.ok()) return 2;
        group = *made;
      }
      core::Communicator& tried = in_group && r != 0 ? *group : *member.world;
      Work work(tried);
      if (!(in_group && r == 0)) {
        for (int i = 0; i < 4; ++i) {  // the alltoall connects rank 1 with rank 2
          if (!work.next().ok()) return 3;
        }
        ++at_work;
      }
      if (r == 2) {
        std::size_t number = 0;
        for (const Connected& each : connections()) {
          const bool old = std::any_of(before.begin(), before.end(), [&](const Connected& it) {
            return it.own == each.own && it.other == each.other;
          });
          if (!old) ports[number++] = (std::uint64_t{each.own} << 16) | each.other;
        }
        ports_known = number;
      }
      if (r == 1) {
        // Waits until all ranks have finished their first operations: otherwise these would fail.
        const auto all = static_cast<std::uint64_t>(in_group ? kSize - 1 : kSize);
        if (!eventually([&] { return ports_known != 0 && at_work == all; })) return 4;
        for (const Connected& each : connections()) {
          const std::uint64_t theirs = (std::uint64_t{each.other} << 16) | each.own;
          const bool to_rank_2 =
              std::any_of(ports, ports + ports_known, [&](const auto& it) { return it == theirs; });
          if (to_rank_2) ::shutdown(each.fd, SHUT_RDWR);
        }
      }
      if (in_group && r == 0) {
        eventually([&] { return all_know(board, 0); });
      } else {
        Status status;
        while (status.ok()) status = work.next();
        board.first[me].set(status);
        board.later[me].set(work.next());
        eventually([&] { return all_know(board, in_group ? 0 : -1); });
      }
      // A failure of the group leaves the world usable.
      const Status world = in_group ? Work(*member.world).next() : Status();
      group.reset();
      Processes::leave(member);
      return world.ok() ? 0 : 5;
    });
  }
  ASSERT_TRUE(eventually([&] { return all_know(board, in_group ? 0 : -1); }));
  const Outcome& expected = board.later[1];
  for (int r = in_group ? 1 : 0; r < kSize; ++r) {
    SCOPED_TRACE("rank " + std::to_string(r));
    const auto me = static_cast<std::size_t>(r);
    EXPECT_EQ(board.first[me].code, Code::kRemote) << board.first[me].message();
    EXPECT_EQ(board.first[me].culprit, expected.culprit);
    EXPECT_EQ(board.later[me].code, Code::kRemote);
    EXPECT_EQ(board.later[me].message(), expected.message());
    for (const char* const words : {"rank 1 (", "rank 2 (", "neither of them has died"}) {
      EXPECT_NE(board.first[me].message().find(words), std::string::npos)
          << board.first[me].message();
    }
  }
  EXPECT_TRUE(expected.culprit == 1 || expected.culprit == 2) << expected.culprit;
  for (int r = 0; r < kSize; ++r) EXPECT_EQ(processes.wait(r), 0) << "rank " << r;
}

INSTANTIATE_TEST_SUITE_P(In, Reset, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "group" : "world");
});

INSTANTIATE_TEST_SUITE_P(Transports, Failure, ::testing::Values("auto", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hccl::testing
