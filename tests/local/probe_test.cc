// Measuring: the ranks measure the same, whatever their clocks say, and stop when the time is up.
// The clocks are made up, so that nothing here depends on the machine.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <mutex>
#include <thread>

#include "hccl/exec/host/opening_probe.h"
#include "hccl/exec/host/ways_probe.h"
#include "hccl/exec/trials.h"
#include "tests/support/host_ranks.h"

namespace hccl::exec {
namespace {

using Clock = Trials::Clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using testing::HostRanks;

// Ranks that are threads, with a clock each: it moves when its rank works, by as much as it is
// told.
class Ranks {
 public:
  explicit Ranks(int size) : size_(size), barrier_(size), times_(static_cast<std::size_t>(size)) {}

  /// body(rank, clock, ranks) on a thread a rank.
  template <class Body>
  void run(Body body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([&, rank] {
        auto& time = times_[static_cast<std::size_t>(rank)];
        body(rank, time,
             Trials::Ranks{[&] {
                             barrier_.arrive_and_wait();
                             return Status();
                           },
                           [&](std::span<double> numbers) {
                             largest(numbers);
                             return Status();
                           },
                           [&] { return Clock::time_point(time); }});
      });
    }
    for (auto& thread : threads) thread.join();
  }

 private:
  void largest(std::span<double> numbers) {
    {
      const std::lock_guard lock(mutex_);
      merged_.resize(std::max(merged_.size(), numbers.size()), 0);
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        merged_[i] = std::max(merged_[i], numbers[i]);
      }
    }
    barrier_.arrive_and_wait();
    std::copy_n(merged_.begin(), numbers.size(), numbers.begin());
    barrier_.arrive_and_wait();
    {
      const std::lock_guard lock(mutex_);
      merged_.clear();
    }
    barrier_.arrive_and_wait();
  }

  int size_;
  std::barrier<> barrier_;
  std::vector<nanoseconds> times_;
  std::mutex mutex_;
  std::vector<double> merged_;
};

TEST(Trials, GivesTheMedianRoundOfTheSlowestRank) {
  Ranks ranks(3);
  ranks.run([](int rank, nanoseconds& time, Trials::Ranks how) {
    Trials trials(milliseconds(1000), std::move(how));
    int round = 0;
    const auto result = trials.time(
        0, [] {},
        [&] {
          // The first one is warming up; one of the others is disturbed.
          const int ms = round == 0 ? 3 : round == 2 ? 50 : 1;
          time += milliseconds(ms) + nanoseconds(rank);
          ++round;
          return Status();
        });
    ASSERT_TRUE(result.ok() && result->has_value());
    EXPECT_EQ(**result, 1e6 + 2);
    EXPECT_GE(round, 4);
  });
}

TEST(Trials, StopsForAllWhenOneRankIsLate) {
  Ranks ranks(4);
  std::array<int, 4> runs{};
  ranks.run([&](int rank, nanoseconds& time, Trials::Ranks how) {
    Trials trials(milliseconds(100), std::move(how));
    int& mine = runs[static_cast<std::size_t>(rank)];
    for (int trial = 0; trial < 1000; ++trial) {
      const auto result = trials.time(
          1e6, [] {},
          [&] {
            ++mine;
            if (rank == 2) time += milliseconds(7);  // the others' clocks stand still
            return Status();
          });
      ASSERT_TRUE(result.ok());
      if (!result->has_value()) break;
      EXPECT_EQ(**result, 7e6);
    }
    // Past the budget by what was under way at most.
    EXPECT_GE(trials.spent(), 50e6);
    EXPECT_LE(trials.spent(), 120e6);
  });
  for (const int each : runs) EXPECT_EQ(each, runs[0]);
  EXPECT_LE(runs[0], 17);
}

TEST(Trials, LeavesOutWhatIsExpectedNotToFit) {
  Ranks ranks(2);
  ranks.run([](int, nanoseconds&, Trials::Ranks how) {
    Trials trials(milliseconds(100), std::move(how));
    bool called = false;
    const auto result = trials.time(
        60e6, [&] { called = true; },
        [&] {
          called = true;
          return Status();
        });
    ASSERT_TRUE(result.ok());
    EXPECT_FALSE(result->has_value());
    EXPECT_FALSE(called);
  });
}

TEST(Trials, AFailureEndsThem) {
  Ranks ranks(2);
  ranks.run([](int, nanoseconds&, Trials::Ranks how) {
    Trials trials(milliseconds(100), std::move(how));
    const auto result = trials.time(
        0, [] {}, [] { return Status(Code::kRemote, "gone"); });
    EXPECT_EQ(result.status().code(), Code::kRemote);
  });
}

// ---- the host path ----

HostRanks with_defaults(int size, bool device_memory) {
  return {size,
          host::Ways::for_host(size, true),
          true,
          kernels::StoreRule::of_this_machine(size),
          testing::patient(),
          device_memory};
}

// A clock that ticks a little with each look, unlike any other.
std::function<Clock::time_point()> ticking(int rank, nanoseconds tick) {
  auto time = std::make_shared<nanoseconds>(0);
  return [=] {
    *time += tick * (1 + rank);
    return Clock::time_point(*time);
  };
}

TEST(WaysProbe, AllRanksGetTheSameSamplesOfEveryWay) {
  for (const bool heap : {true, false}) {
    constexpr int kSize = 3;
    HostRanks ranks = with_defaults(kSize, heap);
    std::array<std::vector<host::WaySample>, kSize> samples;
    ranks.run([&](int rank, host::HostPath& path) {
      const host::Ways defaults = path.ways();
      ASSERT_TRUE(*path.attach());
      auto measured = measure_ways(path, ranks.heap(), defaults, milliseconds(600),
                                   ticking(rank, nanoseconds(100)));
      ASSERT_TRUE(measured.ok()) << measured.status().message();
      samples[static_cast<std::size_t>(rank)] = std::move(*measured);
      EXPECT_EQ(path.ways(), defaults);
    });
    EXPECT_EQ(samples[1], samples[0]);
    EXPECT_EQ(samples[2], samples[0]);
    std::set<std::pair<host::Way, bool>> seen;
    for (const auto& each : samples[0]) {
      seen.emplace(each.way, each.reachable);
      EXPECT_GT(each.ns, 0u);
    }
    using host::Way;
    for (const Way way : {Way::kRing, Way::kStage, Way::kChain, Way::kCma}) {
      EXPECT_TRUE(seen.contains({way, false})) << words(way);
    }
    // Without device memory nobody can pull or push, and nobody says so.
    EXPECT_EQ(seen.contains({Way::kPull, true}), heap);
    EXPECT_EQ(seen.contains({Way::kPush, true}), heap);
  }
}

// The kernel's copies are taken where they are quicker, and nowhere else.
TEST(OpeningProbe, TellsAllRanksWhetherCopiesPay) {
  for (const bool quicker : {true, false}) {
    constexpr int kSize = 3;
    HostRanks ranks = with_defaults(kSize, false);
    ranks.run([&](int rank, host::HostPath& path) {
      host::Ways ways = path.ways();
      ways.cma_folds_from = 1;
      path.set_ways(ways);
      auto time = std::make_shared<nanoseconds>(0);
      const auto now = [=, &path] {
        const bool cma = path.way() == host::Way::kCma;
        return Clock::time_point(*time += nanoseconds(cma == quicker ? 100 : 1000 + rank));
      };
      const auto found = probe_opening(path, true, now);
      ASSERT_TRUE(found.ok()) << found.status().message();
      EXPECT_TRUE(found->attached);
      EXPECT_EQ(found->cma_moves, quicker);
      EXPECT_EQ(found->cma_folds, quicker);
      EXPECT_EQ(path.ways().cma_moves_from != 0, quicker);
      EXPECT_EQ(path.ways().cma_folds_from != 0, quicker);
      EXPECT_EQ(path.ways().ring_most, ways.ring_most);
    });
  }
}

// So are stores past the caches.
TEST(OpeningProbe, TellsAllRanksHowToWriteRings) {
  using kernels::Store;
  for (const bool quicker : {true, false}) {
    HostRanks ranks = with_defaults(3, false);
    ranks.run([&](int rank, host::HostPath& path) {
      auto time = std::make_shared<nanoseconds>(0);
      const auto now = [=, &path] {
        const bool past = path.ring_store() == Store::kStream;
        return Clock::time_point(*time += nanoseconds(past == quicker ? 100 : 1000 + rank));
      };
      const auto found = probe_opening(path, false, now);
      ASSERT_TRUE(found.ok()) << found.status().message();
      EXPECT_FALSE(found->attached);
      EXPECT_EQ(found->ring_store, quicker ? Store::kStream : Store::kCached);
      EXPECT_EQ(path.ring_store(), found->ring_store);
    });
  }
}

TEST(WaysProbe, EndsSoonAfterItsBudget) {
  HostRanks ranks = with_defaults(2, true);
  std::array<nanoseconds, 2> ends{};
  ranks.run([&](int rank, host::HostPath& path) {
    auto time = std::make_shared<nanoseconds>(0);
    // Every look at the clock takes 5 ms: the machine is very slow.
    const auto now = [=] { return Clock::time_point(*time += milliseconds(5)); };
    const auto measured = measure_ways(path, ranks.heap(), path.ways(), milliseconds(600), now);
    ASSERT_TRUE(measured.ok());
    EXPECT_FALSE(measured->empty());
    ends[static_cast<std::size_t>(rank)] = *time;
    // What little was measured gives numbers that can be used.
    EXPECT_TRUE(fit(path.ways(), *measured).check().ok());
  });
  for (const nanoseconds end : ends) EXPECT_LE(end, milliseconds(900));
}

}  // namespace
}  // namespace hccl::exec
