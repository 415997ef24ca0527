// The exchanges in which ranks agree about gradients: every rank gets the same answer, whatever
// each measured.
#include "split/engine/agreement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "split/engine/overlap.h"
#include "split/profile.h"
#include "tests/support/config.h"
#include "tests/support/sanitizers.h"
#include "tests/support/world.h"

namespace hccl::split {
namespace {

using core::Communicator;

TEST(Agreement, CostsAreTheSameOnAllRanks) {
  testing::World world(3, testing::quiet_config());
  ASSERT_TRUE(world.ok());
  std::vector<std::vector<CostSample>> seen(3);
  world.run([&](Communicator& communicator) {
    auto samples = cost_samples(communicator, 100 << 20);
    ASSERT_TRUE(samples.ok()) << samples.status().message();
    seen[static_cast<std::size_t>(communicator.rank())] = std::move(samples).value();
  });
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
  ASSERT_GE(seen[0].back().bytes, 65536u) << "one size alone tells nothing";
  EXPECT_TRUE(CostModel::create(seen[0]).ok());
}

TEST(Agreement, CostsAreOfSizesUpToThoseOfTheGradients) {
  testing::World world(2, testing::quiet_config());
  world.run([&](Communicator& communicator) {
    const auto samples = cost_samples(communicator, 100000);
    ASSERT_TRUE(samples.ok());
    for (const CostSample& each : *samples) EXPECT_LE(each.bytes, 100000u);
  });
}

TEST(Agreement, APlanIsTheSameOnAllRanks) {
  for (const int size : {1, 2, 4}) {
    testing::World world(size, testing::quiet_config());
    std::vector<Segments> plans(static_cast<std::size_t>(size));
    world.run([&](Communicator& communicator) {
      // The ranks' own times differ.
      const bool slow = communicator.rank() == size - 1;
      const std::vector<std::uint64_t> bytes(10, 1 << 20);
      std::vector<double> ready;
      for (int i = 0; i < 10; ++i) ready.push_back(slow ? (i < 9 ? 0.001 * i : 0.1) : 0);
      auto plan = plan_together(communicator, bytes, ready);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      plans[static_cast<std::size_t>(communicator.rank())] = std::move(plan).value();
    });
    for (const Segments& plan : plans) EXPECT_EQ(plan, plans[0]);
    ASSERT_FALSE(plans[0].empty());
    EXPECT_EQ(plans[0].back(), 9u);
    if (size == 1) {
      EXPECT_EQ(plans[0], (Segments{9}));
    }
  }
}

TEST(Agreement, PlansOfAnotherModelAreRefusedByAll) {
  testing::World world(3, testing::quiet_config());
  world.run([&](Communicator& communicator) {
    Decision decision;
    decision.version = 7;
    decision.changed = true;
    decision.last_indices = {3, 9};
    const Status other = broadcast_decision(communicator, decision, 8);
    EXPECT_EQ(other.code(), Code::kPara);
    EXPECT_NE(other.message().find("plan 7 is of another model"), std::string::npos)
        << other.message();
    Decision fits;
    if (communicator.rank() == 0) fits = decision;
    EXPECT_TRUE(broadcast_decision(communicator, fits, 10).ok());
    EXPECT_EQ(fits.last_indices, (Segments{3, 9}));
    EXPECT_EQ(fits.version, 7u);
  });
}

TEST(Agreement, TheFirstDifferenceIsNamedOnAllRanks) {
  testing::World world(3, testing::quiet_config());
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
    // Two gradients of one size that a rank has swapped; then names that differ by choice.
    const std::vector<std::uint64_t> alike = {5, 5, 5};
    const std::vector<std::string> swapped = {"a", "c", "b"}, own = {"x", "a", "b"};
    status = agree(communicator,
                   {alike, odd ? swapped : names, DataType::kFp32, ReduceOp::kSum, segments});
    EXPECT_EQ(status.code(), Code::kPara);
    EXPECT_NE(status.message().find(odd ? "here gradient 1 (c)" : "here gradient 1 (b)"),
              std::string::npos)
        << status.message();
    EXPECT_TRUE(
        agree(communicator, {alike, odd ? own : names, DataType::kFp32, ReduceOp::kSum, segments})
            .ok());
  });
}

// Rank 1 computes for three times as long: rank 0 waits, and the traces show the wait.
TEST(Overlap, TracesOfAnAutomaticPlanTellWhatThePlannerNeeds) {
  testing::World world(2, testing::quiet_config());
  std::vector<Trace> traces(2);
  world.run([&](Communicator& communicator) {
    const auto compute = std::chrono::microseconds(communicator.rank() == 0 ? 50 : 150);
    std::vector<float> memory(12 * 20000);
    std::vector<Overlap::Gradient> gradients;
    for (std::size_t i = 0; i < 12; ++i) {
      gradients.push_back({"layer" + std::to_string(i),
                           reinterpret_cast<std::byte*>(memory.data() + i * 20000), 20000});
    }
    // A shared_ptr that does not own the communicator: the world owns it.
    const std::shared_ptr<Communicator> shared(std::shared_ptr<Communicator>(), &communicator);
    auto engine = Overlap::create(shared, gradients, DataType::kFp32, ReduceOp::kSum, {10, 11},
                                  true, Overlap::Mode::kAuto);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    for (int iteration = 0; iteration < 20; ++iteration) {
      (*engine)->mark(Overlap::Point::kFpStart);
      for (std::uint32_t i = 0; i < 12; ++i) {
        for (const auto until = std::chrono::steady_clock::now() + compute;
             std::chrono::steady_clock::now() < until;) {
        }
        ASSERT_TRUE((*engine)->ready(i).ok());
      }
      const Status done = (*engine)->wait();
      ASSERT_TRUE(done.ok()) << done.message();
    }
    traces[static_cast<std::size_t>(communicator.rank())] = (*engine)->recording().trace();
  });
  for (const Trace& trace : traces) {
    ASSERT_EQ(trace.iterations.size(), 20u);
    EXPECT_TRUE(check_trace(trace).ok()) << check_trace(trace).message();
    EXPECT_FALSE(trace.iterations[3].overlapped) << "every second one of the first is alone";
    EXPECT_TRUE(trace.iterations[4].overlapped);
    EXPECT_EQ(trace.iterations[9].plan_version, 0u);
    EXPECT_GT(trace.iterations[10].plan_version, 0u);
    EXPECT_GT(trace.iterations[10].predicted_end_ns, 0);
    EXPECT_GT(trace.iterations[10].lower_bound_ns, 0);
  }
  std::int64_t waited[2] = {};
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::size_t i = 1; i < 10; ++i) {
      for (const auto& segment : traces[rank].iterations[i].segments) {
        waited[rank] += segment.wait_for_peer_ns;
        EXPECT_GT(segment.cpu_ns, 0);
        EXPECT_FALSE(segment.algorithm.empty());
      }
    }
  }
  EXPECT_GT(waited[0], 0) << "rank 0 waits for rank 1";
  const auto told = profile(traces);
  ASSERT_TRUE(told.ok()) << told.status().message();
  EXPECT_GT(told.value().ready[11], 12 * 150e-6);
  EXPECT_TRUE(cost_model(told.value()).ok());
}

// 161 gradients, as in ResNet-50, in HCCL's default segments, alternately traced and not traced.
TEST(Overlap, TracingCostsMicroseconds) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRounds = testing::kSanitized ? 1 : 30,
                kTimes = 160;  // as many as the longest window has
  testing::World world(2, testing::quiet_config());
  std::vector<double> lasted[2];  // microseconds an iteration, by `traced`
  world.run([&](Communicator& communicator) {
    std::vector<float> memory(161 * 64);
    std::vector<Overlap::Gradient> gradients;
    for (std::size_t i = 0; i < 161; ++i)
      gradients.push_back({"layer", reinterpret_cast<std::byte*>(memory.data() + i * 64), 64});
    const std::shared_ptr<Communicator> shared(std::shared_ptr<Communicator>(), &communicator);
    std::unique_ptr<Overlap> engines[2];
    for (int traced = 0; traced < 2; ++traced) {
      auto engine = Overlap::create(shared, gradients, DataType::kFp32, ReduceOp::kSum, {150, 160},
                                    false, traced ? Overlap::Mode::kTraced : Overlap::Mode::kFixed);
      ASSERT_TRUE(engine.ok());
      engines[traced] = std::move(engine).value();
    }
    for (int round = -2; round < kRounds; ++round) {  // the first windows are short
      for (int traced = 0; traced < 2; ++traced) {
        const auto begin = Clock::now();
        for (int iteration = 0; iteration < kTimes; ++iteration) {
          engines[traced]->mark(Overlap::Point::kFpStart);
          for (std::uint32_t i = 0; i < 161; ++i) ASSERT_TRUE(engines[traced]->ready(i).ok());
          engines[traced]->mark(Overlap::Point::kBpEnd);
          ASSERT_TRUE(engines[traced]->wait().ok());
          engines[traced]->mark(Overlap::Point::kIterationEnd);
        }
        const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
        if (round >= 0 && communicator.rank() == 0) lasted[traced].push_back(took.count() / kTimes);
      }
    }
  });
  std::vector<double> more;
  for (std::size_t i = 0; i < lasted[0].size(); ++i) more.push_back(lasted[1][i] - lasted[0][i]);
  for (auto* each : {&lasted[0], &lasted[1], &more}) std::sort(each->begin(), each->end());
  const std::size_t middle = more.size() / 2;
  std::printf("without %.2f us an iteration, with trace %.2f us, in pairs %.2f us more\n",
              lasted[0][middle], lasted[1][middle], more[middle]);
#ifdef __OPTIMIZE__
  if (!testing::kSanitized) {
    EXPECT_LT(more[middle], 2900) << "1 % of an iteration of ResNet-50";
  }
#endif
}

}  // namespace
}  // namespace hccl::split
