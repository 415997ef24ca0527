// Worlds whose ranks are nodes of a control tree: processes gather, fail, leave and die.
#include "hccl/join/world.h"

#include <gtest/gtest.h>

#include <iostream>

#include "hccl/base/random.h"
#include "tests/support/config.h"
#include "tests/support/processes.h"

namespace hccl::testing::world_test {
namespace {

using join::Control;
using join::Node;
using join::World;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// The promise is 100 ms for a death that the kernel reports. A loaded machine may need more.
constexpr seconds kNotice{1};
const Uuid kScope{7};

// Writes the first failure that a rank gets to the board.
class Ear final : public join::FailureListener {
 public:
  explicit Ear(Outcome& outcome) : outcome_(outcome) {}
  void on_failure(const Uuid&, const Status& why) override {
    if (!outcome_.known) outcome_.set(why);
  }
  void on_summons(const Uuid&) override {}

 private:
  Outcome& outcome_;
};

// One rank in its process.
struct Member {
  std::shared_ptr<Control> control;
  std::shared_ptr<Node> node;
  std::shared_ptr<World> world;

  Status join(Board& board, int size, int rank, const Config& config) {
    const Logger log = make_logger(config.log_level, "rank " + std::to_string(rank));
    control = std::make_shared<Control>();
    if (rank == 0) {
      join::RootInfo info;
      HCCL_RETURN_IF_ERROR(random_bytes(info.secret.data(), info.secret.size()));
      HCCL_RETURN_IF_ERROR(random_bytes(info.id.data(), info.id.size()));
      info.address = "127.0.0.1";
      HCCL_ASSIGN_OR_RETURN(node, Node::root(control, info, config, log));
      info.encode(board.info);
      board.open = true;
    }
    if (!eventually([&] { return board.open.load(); })) return {Code::kTimeout, "no root info"};
    HCCL_ASSIGN_OR_RETURN(const auto info, join::RootInfo::decode(board.info));
    if (rank != 0) node = std::make_shared<Node>(control, info);
    HCCL_ASSIGN_OR_RETURN(world, World::join(node, size, rank, config, log));
    return {};
  }
  /// All ranks except `absent` gather their numbers. Returns whether the result is right on each
  /// rank.
  Status gather(std::uint8_t number, const std::vector<int>& absent = {},
                Deadline deadline = Deadline::after(seconds(20))) const {
    std::vector<int> present;
    for (int rank = 0; rank < world->size(); ++rank) {
      if (std::ranges::find(absent, rank) == absent.end()) present.push_back(rank);
    }
    AbortFlag never;
    HCCL_ASSIGN_OR_RETURN(
        auto parts, world->exchange(Uuid{1, number}, std::to_string(world->rank()), deadline, never,
                                    "test", present));
    for (const int rank : present) {
      const std::string& part = parts[static_cast<std::uint32_t>(rank)];
      if (part != std::to_string(rank)) return {Code::kInternal, "part " + part};
    }
    return {};
  }
  void leave() {
    world->leave();
    world.reset();
    node.reset();
  }
};

// `size` ranks join and gather. Then each runs `rest` and ends its process with the result as exit
// status.
class Worlds : public Processes {
 public:
  using Rest = std::function<int(Member&, Ear&)>;
  void start_all(int size, const Config& config, const Rest& rest) {
    for (int rank = 0; rank < size; ++rank) {
      start([=, this] {
        Outcome& outcome = board().first[static_cast<std::size_t>(rank)];
        Ear ear(outcome);
        Member member;  // ends before the listener
        const Status status = member.join(board(), size, rank, config);
        if (!status.ok()) return outcome.set(status), 2;
        member.world->add(&ear);
        const Status met = member.gather(0);
        if (!met.ok()) return outcome.set(met), 3;
        ++board().progress[static_cast<std::size_t>(rank)];
        return rest(member, ear);
      });
    }
  }
  bool all_ready(int size, std::uint64_t progress = 1) {
    return eventually([&] {
      for (int rank = 0; rank < size; ++rank) {
        if (board().progress[static_cast<std::size_t>(rank)] < progress) return false;
      }
      return true;
    });
  }
  // Waits until every rank except those in `gone` got a failure. Returns how long the last one
  // took.
  nanoseconds heard_by_all(int size, const std::vector<int>& gone, std::int64_t since) {
    nanoseconds last{0};
    for (int rank = 0; rank < size; ++rank) {
      if (std::ranges::find(gone, rank) != gone.end()) continue;
      Outcome& outcome = board().first[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(eventually([&] { return outcome.known.load(); }, seconds(20))) << "rank " << rank;
      last = std::max(last, nanoseconds(outcome.at_ns - since));
    }
    return last;
  }
};

Config quiet(seconds patience = seconds(20)) { return quiet_config("auto", patience); }

int wait_for_the_end(Board& board) {
  return eventually([&] { return board.finish.load(); }) ? 0 : 4;
}

TEST(World, RanksGatherInOrderAndLeave) {
  for (const int size : {1, 2, 5, 40}) {
    Worlds worlds;
    worlds.start_all(size, quiet(), [](Member& member, Ear& ear) {
      for (std::uint8_t number = 1; number < 10; ++number) {
        if (!member.gather(number).ok()) return 5;
      }
      member.world->remove(&ear);
      member.leave();
      return 0;
    });
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(worlds.wait(rank), 0)
          << "rank " << rank << " of " << size << ": "
          << worlds.board().first[static_cast<std::size_t>(rank)].message();
    }
  }
}

// Rank 0's process is the root as well; with 12 ranks some nodes are two below it.
TEST(World, EveryRankHearsWhichRankDied) {
  constexpr int kSize = 12;
  for (const int victim : {0, 1, 5, kSize - 1}) {
    Worlds worlds;
    worlds.start_all(kSize, quiet(),
                     [&](Member&, Ear&) { return wait_for_the_end(worlds.board()); });
    ASSERT_TRUE(worlds.all_ready(kSize));
    const std::int64_t then = now_ns();
    worlds.kill(victim);
    const nanoseconds last = worlds.heard_by_all(kSize, {victim}, then);
    std::cout << "rank " << victim << " died: all heard it after "
              << std::chrono::duration_cast<milliseconds>(last).count() << " ms\n";
    EXPECT_LT(last, kNotice);
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank == victim) continue;
      const Outcome& outcome = worlds.board().first[static_cast<std::size_t>(rank)];
      EXPECT_EQ(outcome.culprit, victim) << "rank " << rank << ": " << outcome.message();
    }
    worlds.board().finish = true;
    for (int rank = 0; rank < kSize; ++rank) {
      EXPECT_EQ(worlds.wait(rank) == 0, rank != victim) << "rank " << rank;
    }
  }
}

TEST(World, GoesOnAfterRankZeroHasLeft) {
  constexpr int kSize = 6;
  constexpr int kVictim = 3;
  Worlds worlds;
  Board& board = worlds.board();
  worlds.start_all(kSize, quiet(), [&](Member& member, Ear&) {
    const int rank = member.world->rank();
    if (rank == 0) return member.leave(), 0;
    if (!eventually([&] { return member.world->has_left(0); })) return 5;
    const std::int64_t then = now_ns();
    const Status met = member.gather(1, {0});
    if (!met.ok()) return board.first[static_cast<std::size_t>(rank)].set(met), 6;
    if (rank == 1) {
      std::cout << "a group opens after " << static_cast<double>(now_ns() - then) / 1e6 << " ms\n";
    }
    ++board.progress[static_cast<std::size_t>(rank)];
    return wait_for_the_end(board);
  });
  board.progress[0] = 1;
  ASSERT_EQ(worlds.wait(0), 0);
  board.progress[0] = 2;
  ASSERT_TRUE(worlds.all_ready(kSize, 2)) << board.first[1].message();
  const std::int64_t then = now_ns();
  worlds.kill(kVictim);
  const nanoseconds last = worlds.heard_by_all(kSize, {0, kVictim}, then);
  std::cout << "the next death: all heard it after "
            << std::chrono::duration_cast<milliseconds>(last).count() << " ms\n";
  EXPECT_LT(last, kNotice);
  for (const int rank : {1, 2, 4, 5}) {
    EXPECT_EQ(board.first[static_cast<std::size_t>(rank)].culprit, kVictim)
        << board.first[static_cast<std::size_t>(rank)].message();
  }
  board.finish = true;
}

TEST(World, OneCulpritForAllReports) {
  constexpr int kSize = 10;
  Worlds worlds;
  worlds.start_all(kSize, quiet(), [&](Member& member, Ear&) {
    const int rank = member.world->rank();
    if (rank >= 4) {
      member.world->report(kScope,
                           Status(Code::kRemote, "rank " + std::to_string(rank) + " says", rank));
    }
    return wait_for_the_end(worlds.board());
  });
  ASSERT_TRUE(worlds.all_ready(kSize));
  worlds.heard_by_all(kSize, {}, now_ns());
  for (int rank = 0; rank < kSize; ++rank) {
    EXPECT_EQ(worlds.board().first[static_cast<std::size_t>(rank)].message(),
              worlds.board().first[0].message());
  }
  worlds.board().finish = true;
}

TEST(World, AnAbsentRankIsNamed) {
  constexpr int kSize = 3;
  Worlds worlds;
  for (const int rank : {0, 2}) {
    worlds.start([&, rank] {
      Member member;
      worlds.board().first[static_cast<std::size_t>(rank)].set(
          member.join(worlds.board(), kSize, rank, quiet(seconds(2))));
      return 0;
    });
  }
  worlds.heard_by_all(kSize, {1}, now_ns());
  for (const std::size_t rank : {0, 2}) {
    const std::string text = worlds.board().first[rank].message();
    EXPECT_NE(text.find("1"), std::string::npos) << text;
    EXPECT_EQ(worlds.board().first[rank].code, Code::kTimeout) << text;
  }
}

}  // namespace
}  // namespace hccl::testing::world_test
