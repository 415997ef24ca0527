// HCCL_TUNE_FILE as users see it: costs are measured once, stored, reused, and the same on all
// ranks, whichever files the ranks can read.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <iterator>
#include <mutex>
#include <set>

#include "hccl/join/host.h"
#include "hccl/select/cost_file.h"
#include "tests/support/folder.h"
#include "tests/support/world.h"

namespace hccl::testing {
namespace {

using core::Communicator;
using select::CostEntry;

Config config_for(const std::string& transport, const std::string& file) {
  Config config;
  config.transport = transport;
  config.tune_file = file;
  config.log_level = "info";
  return config;
}

class TuneFile : public ::testing::Test {
 protected:
  /// Makes a world, sums a vector of `count` on all its ranks, and returns the log.
  static std::string sum(const std::vector<Config>& configs, std::size_t count,
                         std::set<std::string>* algorithms = nullptr) {
    ::testing::internal::CaptureStderr();
    {
      World world(configs);
      EXPECT_TRUE(world.ok());
      std::mutex mutex;
      world.run([&](Communicator& c) {
        std::vector<float> data(count, static_cast<float>(c.rank() + 1));
        const Status status = c.operations().run({Op::kAllReduce, data.data(), data.data(), count,
                                                  DataType::kFp32, ReduceOp::kSum, 0, 0});
        EXPECT_TRUE(status.ok()) << status.message();
        const float expected = static_cast<float>(c.size() * (c.size() + 1)) / 2;
        EXPECT_EQ(data.front(), expected);
        EXPECT_EQ(data.back(), expected);
        const std::lock_guard lock(mutex);
        if (algorithms != nullptr)
          algorithms->insert(c.operations().selection().algorithm(Op::kAllReduce));
      });
    }
    return ::testing::internal::GetCapturedStderr();
  }
  static std::vector<Config> each(int size, const Config& config) {
    return std::vector<Config>(static_cast<std::size_t>(size), config);
  }

  /// Costs for `size` ranks over tcp on this machine. Each further message of a step costs
  /// `more_ns`: if that is much, ranks exchange messages with few others; if it is nothing, with
  /// all.
  static CostEntry costs(int size, std::uint64_t more_ns) {
    CostEntry entry;
    entry.key = {HCCL_TEST_VERSION, join::cpu_model(), "tcp", 1, static_cast<std::uint32_t>(size),
                 shared(size)};
    entry.messages.emplace();
    entry.messages->steps = {{64, 10'000, more_ns}, {4 << 20, 2'000'000, more_ns + 1'000'000}};
    return entry;
  }
  /// The name of the allreduce of few messages, for this many ranks of this machine.
  static std::string few_messages(int size) {
    return shared(size) ? "paired_doubling" : "recursive_doubling";
  }
  static bool shared(int size) {
    const std::vector<std::string> masks(1, join::core_mask());
    return size > join::count_cores(masks);
  }
  Folder folder_;
};

bool says(const std::string& log, const std::string& part) {
  return log.find(part) != std::string::npos;
}

int times(const std::string& log, const std::string& part) {
  int found = 0;
  for (auto at = log.find(part); at != std::string::npos; at = log.find(part, at + 1)) ++found;
  return found;
}

TEST_F(TuneFile, IsMeasuredOnceAndKept) {
  for (const std::string transport : {"tcp", "auto"}) {
    const std::string file = folder_ / (transport + ".json");
    const std::string first = sum(each(3, config_for(transport, file)), 1000);
    EXPECT_EQ(times(first, "kept in " + file), 1) << first;
    EXPECT_EQ(times(first, "from " + file + " (measured now)"), 3) << first;
    const std::string kept = folder_.read(transport + ".json");
    const auto table = select::read_costs(file);
    ASSERT_TRUE(table.ok() && table->has_value()) << table.status().message();
    ASSERT_EQ((*table)->entries.size(), 1u);
    const CostEntry& entry = (*table)->entries.front();
    EXPECT_EQ(entry.messages.has_value(), transport == "tcp");
    EXPECT_EQ(entry.local.has_value(), transport == "auto");
    EXPECT_EQ(entry.key.ranks_per_host, 3u);

    const std::string second = sum(each(3, config_for(transport, file)), 1000);
    EXPECT_EQ(times(second, "from " + file + " (measured before)"), 3) << second;
    EXPECT_FALSE(says(second, "kept in")) << second;
    EXPECT_EQ(folder_.read(transport + ".json"), kept);

    // Another number of ranks adds an entry with a key of its own.
    const std::string other = sum(each(2, config_for(transport, file)), 1000);
    EXPECT_TRUE(says(other, "(measured now)")) << other;
    EXPECT_EQ(select::read_costs(file).value()->entries.size(), 2u);
  }
}

TEST_F(TuneFile, WithoutItNothingIsMeasured) {
  const std::string log = sum(each(2, config_for("tcp", "")), 1000);
  EXPECT_EQ(times(log, "; default table"), 2) << log;
  EXPECT_FALSE(says(log, "measured")) << log;
}

TEST_F(TuneFile, TheTableDecides) {
  const std::string file = folder_ / "table";
  for (const auto& [more_ns, expected] :
       {std::pair(100'000, few_messages(4)), std::pair(10, std::string("one_shot"))}) {
    ASSERT_TRUE(select::keep_costs(file, costs(4, more_ns)).ok());
    std::set<std::string> taken;
    const std::string log = sum(each(4, config_for("tcp", file)), 16, &taken);
    EXPECT_EQ(taken, std::set<std::string>{expected}) << log;
    EXPECT_TRUE(says(log, "allreduce of 64 bytes by " + expected)) << log;
    EXPECT_TRUE(says(log, "predicted ")) << log;
  }
}

TEST_F(TuneFile, OfRankZeroCountsForAll) {
  // Ranks have files with different tables; one rank has no file, and one cannot read its own.
  ASSERT_TRUE(select::keep_costs(folder_ / "a", costs(4, 100'000)).ok());
  ASSERT_TRUE(select::keep_costs(folder_ / "b", costs(4, 10)).ok());
  folder_.write("c", "no table");
  for (const auto& [files, expected] :
       {std::pair(std::vector<std::string>{folder_ / "a", folder_ / "b", folder_ / "c", ""},
                  std::set<std::string>{few_messages(4)}),
        std::pair(std::vector<std::string>{folder_ / "b", folder_ / "a", "", folder_ / "c"},
                  std::set<std::string>{"one_shot"}),
        // Rank 0 names no file, so the rules apply.
        std::pair(std::vector<std::string>{"", folder_ / "b", folder_ / "b", folder_ / "b"},
                  std::set<std::string>{few_messages(4)})}) {
    std::vector<Config> configs;
    for (const std::string& file : files) configs.push_back(config_for("tcp", file));
    std::set<std::string> taken;
    const std::string log = sum(configs, 16, &taken);
    EXPECT_EQ(taken, expected) << log;
    EXPECT_FALSE(says(log, "warn")) << log;
  }
}

TEST_F(TuneFile, OneThatIsNoTableIsAWarningAndStays) {
  const std::string file = folder_.write("letter", "Dear all");
  const std::string log = sum(each(3, config_for("tcp", file)), 16);
  EXPECT_EQ(times(log, "HCCL_TUNE_FILE: " + file + ": not a cost table"), 1) << log;
  EXPECT_EQ(times(log, "; default table"), 3) << log;
  const std::string alone = sum(each(1, config_for("tcp", file)), 16);
  EXPECT_EQ(times(alone, "HCCL_TUNE_FILE: " + file + ": not a cost table"), 1) << alone;
  EXPECT_EQ(folder_.read("letter"), "Dear all");
}

TEST_F(TuneFile, OneThatCannotBeWrittenIsAWarningAndIsUsed) {
  const std::string file = folder_ / "no/such/folder";
  const std::string log = sum(each(2, config_for("tcp", file)), 16);
  EXPECT_EQ(times(log, "are used but not kept"), 1) << log;
  EXPECT_EQ(times(log, "from " + file + " (measured now)"), 2) << log;
}

TEST_F(TuneFile, HcclAlgoGoesBefore) {
  const std::string file = folder_ / "table";
  ASSERT_TRUE(select::keep_costs(file, costs(4, 100'000)).ok());
  Config config = config_for("tcp", file);
  config.algo = "level0:NA;level1:ring";
  std::set<std::string> taken;
  const std::string log = sum(each(4, config), 16, &taken);
  EXPECT_EQ(taken, std::set<std::string>{"ring"}) << log;
  EXPECT_TRUE(says(log, "HCCL_ALGO asks for ring")) << log;
}

TEST_F(TuneFile, GroupsTakeTheNearestAndMeasureNothing) {
  const std::string file = folder_ / "table";
  ASSERT_TRUE(select::keep_costs(file, costs(6, 10)).ok());
  ::testing::internal::CaptureStderr();
  {
    World world(6, config_for("tcp", file));
    ASSERT_TRUE(world.ok());
    world.run([&](Communicator& c) {
      if (c.rank() >= 4) return;
      const auto group = c.group("half", {0, 1, 2, 3}, 1);
      ASSERT_TRUE(group.ok()) << group.status().message();
      std::vector<float> data(16, 1);
      ASSERT_TRUE((*group)
                      ->operations()
                      .run({Op::kAllReduce, data.data(), data.data(), 16, DataType::kFp32,
                            ReduceOp::kSum, 0, 0})
                      .ok());
      EXPECT_EQ(data[0], 4);
      EXPECT_EQ((*group)->operations().selection().algorithm(Op::kAllReduce), "one_shot");
    });
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(times(log, "(measured for tcp, 1 host with 6 ranks"), 4) << log;
  EXPECT_FALSE(says(log, "measured now")) << log;
  EXPECT_EQ(select::read_costs(file).value()->entries.size(), 1u);
}

TEST_F(TuneFile, EachChoiceIsToldOnce) {
  for (const std::string transport : {"tcp", "auto"}) {
    ::testing::internal::CaptureStderr();
    {
      World world(2, config_for(transport, ""));
      ASSERT_TRUE(world.ok());
      world.run([&](Communicator& c) {
        std::vector<float> data(100'000, 1);
        for (int round = 0; round < 20; ++round) {
          for (const std::size_t count : {2u, 3u, 1000u, 100'000u}) {
            ASSERT_TRUE(c.operations()
                            .run({Op::kAllReduce, data.data(), data.data(), count, DataType::kFp32,
                                  ReduceOp::kMax, 0, 0})
                            .ok());
          }
        }
      });
    }
    const std::string log = ::testing::internal::GetCapturedStderr();
    // Two ranks log three choices each: 2 and 3 elements are in one size class.
    EXPECT_EQ(times(log, "; default table"), 2 * 3) << log;
  }
}

// Five ranks on one core take the built-in costs, unless a file asks for measured ones.
TEST_F(TuneFile, RanksThatShareACoreAreNotProbed) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);  // the ranks' threads inherit it
  const auto probed = [](int size, const std::string& file) {
    return times(sum(each(size, config_for("auto", file)), 16), "the cores of these ranks are");
  };
  EXPECT_EQ(probed(4, ""), 4);
  EXPECT_EQ(probed(5, ""), 0);
  EXPECT_EQ(probed(5, folder_ / "table"), 5);
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace hccl::testing
