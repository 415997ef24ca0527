// What ranks tell each other about gradients: the same answer on every rank, whatever each
// measured.
#include "split/agreement.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <vector>

#include "support/world.h"

namespace hccl::split {
namespace {

using core::Communicator;

Config quiet() {
  Config config;
  config.log_level = "off";
  config.flight_recorder_dir = "off";
  return config;
}

TEST(Agreement, AProbeIsShortAndTheSameOnAllRanks) {
  testing::World world(3, quiet());
  ASSERT_TRUE(world.ok());
  std::vector<std::vector<CostSample>> seen(3);
  double longest = 1;
  for (int attempt = 0; attempt < 5 && longest > 0.05; ++attempt) {  // others may have the cores
    longest = 0;
    std::mutex mutex;
    world.run([&](Communicator& communicator) {
      const auto begin = std::chrono::steady_clock::now();
      auto samples = probe(communicator, 100 << 20);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      ASSERT_TRUE(samples.ok()) << samples.status().message();
      const std::lock_guard lock(mutex);
      longest = std::max(longest, took.count());
      seen[static_cast<std::size_t>(communicator.rank())] = std::move(samples).value();
    });
  }
  EXPECT_LT(longest, 0.05);
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
  ASSERT_GE(seen[0].size(), 6u);
  const AffineCost line = CostModel::create(seen[0])->affine();
  EXPECT_GT(line(16 << 20), line(4096));
}

TEST(Agreement, AProbeIsNoLargerThanTheGradients) {
  testing::World world(2, quiet());
  world.run([&](Communicator& communicator) {
    const auto samples = probe(communicator, 100000);
    ASSERT_TRUE(samples.ok());
    for (const CostSample& each : *samples) EXPECT_LE(each.bytes, 100000u);
  });
}

TEST(Agreement, APlanIsMadeOfTheSlowestRanksTimesAndIsTheSameOnAll) {
  for (const int size : {1, 2, 4}) {
    testing::World world(size, quiet());
    std::vector<Segments> plans(static_cast<std::size_t>(size));
    world.run([&](Communicator& communicator) {
      // On the last rank the first nine gradients are ready long before the tenth, 1 s later; the
      // others would wait for nothing.
      const bool slow = communicator.rank() == size - 1;
      const std::vector<std::uint64_t> bytes(10, 4 << 20);
      std::vector<double> ready;
      for (int i = 0; i < 10; ++i) ready.push_back(slow ? (i < 9 ? 0.01 * i : 1.0) : 0);
      auto plan = plan_together(communicator, bytes, ready);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      plans[static_cast<std::size_t>(communicator.rank())] = std::move(plan).value();
    });
    for (const Segments& plan : plans)
      EXPECT_EQ(plan, size == 1 ? (Segments{9}) : (Segments{8, 9}));
  }
}

TEST(Agreement, PlansOfAnotherModelAreRefusedByAll) {
  testing::World world(3, quiet());
  world.run([&](Communicator& communicator) {
    Decision decision;
    decision.version = 7;
    decision.changed = true;
    decision.last_indices = {3, 9};
    const Status other = tell(communicator, decision, 8);
    EXPECT_EQ(other.code(), Code::kPara);
    EXPECT_NE(other.message().find("plan 7 is of another model"), std::string::npos)
        << other.message();
    Decision fits;
    if (communicator.rank() == 0) fits = decision;
    EXPECT_TRUE(tell(communicator, fits, 10).ok());
    EXPECT_EQ(fits.last_indices, (Segments{3, 9}));
    EXPECT_EQ(fits.version, 7u);
  });
}

TEST(Agreement, TheFirstDifferenceIsNamedOnAllRanks) {
  testing::World world(3, quiet());
  world.run([&](Communicator& communicator) {
    const bool odd = communicator.rank() == 1;
    const std::vector<std::uint64_t> counts = {5, odd ? 6u : 7u, 9};
    const std::vector<std::string> names = {"a", "b", "c"};
    const Segments segments = {2}, others = {1, 2};
    Status status = agree(communicator, {counts, names, DataType::kFp32, ReduceOp::kSum, segments});
    EXPECT_EQ(status.code(), Code::kPara);
    EXPECT_NE(status.message().find("gradient 1 (b)"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("6 to 7"), std::string::npos) << status.message();
    const std::vector<std::uint64_t> same = {5, 6, 9};
    status = agree(communicator,
                   {same, names, DataType::kFp32, ReduceOp::kSum, odd ? others : segments});
    EXPECT_NE(status.message().find("their segments: one ends with gradient 1 (b)"),
              std::string::npos)
        << status.message();
    status = agree(communicator, {same, names, odd ? DataType::kFp64 : DataType::kFp32,
                                  ReduceOp::kSum, segments});
    EXPECT_NE(status.message().find("data type"), std::string::npos) << status.message();
    EXPECT_TRUE(agree(communicator, {same, names, DataType::kFp32, ReduceOp::kSum, segments}).ok());
  });
}

}  // namespace
}  // namespace hccl::split
