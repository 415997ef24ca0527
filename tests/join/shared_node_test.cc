// Ranks that are threads of a few processes: the ranks of a process share its node in the control
// tree, and each rank joins, gathers, leaves and dies for itself.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <map>

#include "tests/join/join_parts.h"
#include "tests/support/threads.h"

namespace hccl::testing {
namespace {

using std::chrono::seconds;

// Ranks 0 to `size` - 1 are threads, which belong to the processes in turn.
class Threads {
 public:
  explicit Threads(int processes) {
    for (int i = 0; i < processes; ++i) {
      controls_.push_back(make_control());
      nodes_.push_back(i == 0 ? start_root(controls_[0], info, config_)
                              : new_node(controls_.back(), info));
    }
  }
  /// All ranks join at the same time; returns their results by rank.
  std::vector<Status> join(int size) {
    worlds.resize(static_cast<std::size_t>(size));
    ears = std::vector<Ear>(static_cast<std::size_t>(size));
    std::vector<Status> all(static_cast<std::size_t>(size));
    on_threads(size, [&](int rank) {
      all[static_cast<std::size_t>(rank)] = come(rank, rank, size, config_);
    });
    return all;
  }
  Status come(int thread, int rank, int size, const Config& config) {
    const auto at = static_cast<std::size_t>(thread);
    const auto& node = nodes_[at % nodes_.size()];
    auto world = join::World::join(node, size, rank, config, make_logger("off", "rank"));
    if (!world.ok()) return world.status();
    worlds[at] = *world;
    worlds[at]->add(&ears[at]);
    return {};
  }
  /// These ranks, except `absent`, gather their numbers; returns their results by rank.
  std::map<int, Status> gather(std::uint8_t number, const std::vector<int>& ranks,
                               const std::vector<int>& absent = {}) {
    std::map<int, Status> all;
    Mutex mutex;
    on_threads(static_cast<int>(ranks.size()), [&](int index) {
      const int rank = ranks[static_cast<std::size_t>(index)];
      const bool comes = std::ranges::find(absent, rank) == absent.end();
      const Status why = comes ? gathers(number, ranks, index) : Status();
      const MutexLock lock(mutex);
      if (comes) all[rank] = why;
    });
    return all;
  }
  /// All ranks of the process end without leaving.
  void end_process(std::size_t process) {
    for (std::size_t i = process; i < worlds.size(); i += nodes_.size()) end(i);
    nodes_[process].reset();
  }
  void end(std::size_t at) {
    worlds[at]->remove(&ears[at]);
    worlds[at].reset();
  }
  ~Threads() {
    for (std::size_t i = 0; i < worlds.size(); ++i) {
      if (worlds[i]) worlds[i]->remove(&ears[i]);
    }
  }

  join::RootInfo info = new_root_info();
  std::vector<Ear> ears;
  std::vector<std::shared_ptr<join::World>> worlds;

 private:
  Status gathers(std::uint8_t number, const std::vector<int>& ranks, int index) {
    const AbortFlag never;
    const std::size_t at = static_cast<std::size_t>(ranks[static_cast<std::size_t>(index)]);
    HCCL_ASSIGN_OR_RETURN(auto parts,
                          worlds[at]->exchange(Uuid{1, number}, std::to_string(at),
                                               Deadline::after(seconds(30)), never, "test", ranks));
    for (const int rank : ranks) {
      const std::string& part = parts[static_cast<std::uint32_t>(rank)];
      if (part != std::to_string(rank)) return {Code::kInternal, part};
    }
    return {};
  }

  Config config_ = config_of(seconds(60));
  std::vector<std::shared_ptr<join::Control>> controls_;
  std::vector<std::shared_ptr<join::Node>> nodes_;
};

void expect_good(const std::vector<Status>& all) {
  for (const Status& each : all) EXPECT_TRUE(each.ok()) << each.message();
}
void expect_good(const std::map<int, Status>& all) {
  for (const auto& [rank, each] : all) EXPECT_TRUE(each.ok()) << rank << ": " << each.message();
}

void expect_dead(const Ear& ear, int rank) {
  const std::string name = "rank " + std::to_string(rank) + " (";
  EXPECT_TRUE(has(ear.hears(name), "died or was cut off"));
}

TEST(SharedNode, TwelveRanksOfThreeProcessesNeedTwoConnections) {
  Threads threads(3);
  expect_good(threads.join(12));
  EXPECT_EQ(ends_at_root(threads.info).size(), 2U);
  for (std::uint8_t number = 0; number < 5; ++number) {
    expect_good(threads.gather(number, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
    expect_good(threads.gather(static_cast<std::uint8_t>(100 + number), {2, 5, 7, 8}));
  }
  for (Ear& each : threads.ears) EXPECT_FALSE(each.heard());
  for (const auto& each : threads.worlds) each->leave();
}

// Holds even if the root dies, the only node to which the rank's own process reported the leave.
TEST(SharedNode, ARankThatLeavesAloneIsNamedToThoseThatWaitForIt) {
  for (const bool root_dies : {false, true}) {
    Threads threads(3);
    expect_good(threads.join(9));
    threads.worlds[4]->leave();
    EXPECT_TRUE(eventually([&] { return threads.worlds[8]->has_left(4); }));
    if (root_dies) threads.end_process(0);
    const auto all = threads.gather(1, {1, 2, 4, 7, 8}, {4});
    EXPECT_EQ(all.size(), 4U);
    for (const auto& [rank, why] : all) {
      EXPECT_EQ(why.code(), Code::kRemote);
      EXPECT_TRUE(has(why, "rank 4 (") && has(why, "has destroyed")) << rank << why.message();
    }
    expect_good(threads.gather(2, {1, 2, 5, 7, 8}));
    for (const std::size_t rank : {1, 2, 7, 8}) {
      if (root_dies) expect_dead(threads.ears[rank], 0);
      const auto failed = threads.ears[rank].heard("rank 4 (");
      EXPECT_TRUE(failed && !has(*failed, "died"));
    }
  }
}

TEST(SharedNode, ARankThatEndsWithoutLeavingHasDiedAndTheOthersGoOn) {
  Threads threads(2);
  expect_good(threads.join(6));
  threads.end(3);  // not in the root's process
  for (const std::size_t rank : {0, 1, 2, 4, 5}) expect_dead(threads.ears[rank], 3);
  threads.end(2);
  for (const std::size_t rank : {0, 1, 4, 5}) expect_dead(threads.ears[rank], 2);
  for (const auto& [rank, why] : threads.gather(1, {0, 1, 3}, {3})) {
    EXPECT_EQ(why.culprit(), 3) << rank << ": " << why.message();
  }
  expect_good(threads.gather(2, {0, 1, 4, 5}));
  on_threads(4, [&](int index) {
    const std::array<std::size_t, 4> ranks{0, 1, 4, 5};
    const auto left = threads.worlds[ranks[static_cast<std::size_t>(index)]]->survivors(
        Uuid{2}, {0, 1, 2, 3, 4, 5}, "part", Deadline::after(seconds(30)), "test");
    ASSERT_TRUE(left.ok()) << left.status().message();
    EXPECT_EQ(left->members, (std::vector<int>{0, 1, 4, 5}));
  });
  for (const std::size_t rank : {0, 1, 4, 5}) threads.worlds[rank]->leave();
}

// All ranks get the error of one thread's wrong call.
TEST(SharedNode, ThreadsThatClaimOneRankOrDisagreeEndTheWorld) {
  for (const bool disagree : {false, true}) {
    Threads threads(2);
    threads.worlds.resize(4);
    threads.ears = std::vector<Ear>(4);
    std::array<Status, 4> all;
    on_threads(4, [&](int thread) {  // threads 1 and 3 are of one process
      const bool second = thread == 3;
      const int rank = second && !disagree ? 1 : thread;
      all[static_cast<std::size_t>(thread)] =
          threads.come(thread, rank, second && disagree ? 5 : 4, config_of(seconds(60)));
    });
    for (const Status& each : all) {
      EXPECT_TRUE(has(each, "EI0016")) << each.message();
      EXPECT_EQ(has(each, "two threads of one process join as rank 1"), !disagree);
    }
  }
}

// The world may be complete before the second thread's claim arrives.
TEST(SharedNode, OfTwoThreadsThatClaimOneRankAtMostOneJoins) {
  for (int round = 0; round < 30; ++round) {
    Threads threads(round % 3 == 2 ? 2 : 1);
    threads.worlds.resize(4);
    threads.ears = std::vector<Ear>(4);
    std::atomic<int> second{0}, others{0};
    on_threads(4, [&](int thread) {  // threads 1 and 3 are of one process
      const int rank = thread == 3 ? 1 : thread;
      const bool in = threads.come(thread, rank, 3, config_of(seconds(60))).ok();
      (rank == 1 ? second : others) += in ? 1 : 0;
    });
    EXPECT_LE(second, 1);
    EXPECT_TRUE(others == 2 || (others == 0 && second == 0)) << others << " and " << second;
    // The process ended after the root had sent the roster.
    if (others == 2 && second == 0) expect_dead(threads.ears[0], 1);
  }
}

TEST(SharedNode, AThreadThatComesTooLateIsRefusedAlone) {
  Threads threads(2);
  expect_good(threads.join(4));
  for (const int process : {0, 1}) {
    threads.worlds.resize(6);
    const Status late = threads.come(4 + process, 1, 4, config_of(seconds(60)));
    EXPECT_EQ(late.code(), Code::kUnavail) << late.message();
    EXPECT_TRUE(has(late, "came when joining was over")) << late.message();
  }
  expect_good(threads.gather(1, {0, 1, 2, 3}));
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_FALSE(threads.ears[rank].heard());
    threads.worlds[rank]->leave();
  }
}

}  // namespace
}  // namespace hccl::testing
