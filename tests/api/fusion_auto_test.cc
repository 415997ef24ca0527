// The automatic plan through the public interface: all ranks change their segments in the same
// iteration, sums stay exact, a strategy of the program takes precedence, and ranks that differ get
// an error.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "hccl/hccl_fusion.h"
#include "hccl/hcom.h"
#include "tests/support/api_world.h"
#include "tests/support/calls.h"
#include "tests/support/gradients.h"

namespace hccl::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kGroup = "automatic";
constexpr int kIterations = 45;
constexpr std::size_t kGradients = 12;
constexpr std::size_t kElements = 20000;

float value(int rank, int iteration, std::size_t i, std::size_t e) {
  return static_cast<float>((rank + 1) * (iteration + static_cast<int>(i * 3 + e % 97)));
}

class Model : public Gradients {
 public:
  explicit Model(bool contiguous,
                 const std::vector<std::size_t>& sizes = std::vector<std::size_t>(kGradients,
                                                                                  kElements))
      : Gradients(sizes, contiguous) {}

  /// One iteration, which computes for `compute` before each gradient.
  void iterate(HcclFusion fusion, int rank, int iteration, std::chrono::microseconds compute) {
    OK(HcclFusionMark(fusion, HCCL_FUSION_FP_START));
    for (std::size_t i = 0; i < size(); ++i) {
      for (const auto until = Clock::now() + compute; Clock::now() < until;) {
      }
      for (std::size_t e = 0; e < count(i); ++e) data(i)[e] = value(rank, iteration, i, e);
      OK(HcclFusionReady(fusion, static_cast<std::uint32_t>(i)));
    }
    OK(HcclFusionMark(fusion, HCCL_FUSION_BP_END));
    OK(HcclFusionWait(fusion));
    OK(HcclFusionMark(fusion, HCCL_FUSION_ITERATION_END));
  }
  void expect_sums(int ranks, int iteration) const {
    for (std::size_t i = 0; i < size(); ++i) {
      for (std::size_t e = 0; e < count(i); ++e) {
        float sum = 0;
        for (int rank = 0; rank < ranks; ++rank) sum += value(rank, iteration, i, e);
        ASSERT_EQ(data(i)[e], sum) << "gradient " << i << " element " << e;
      }
    }
  }
};

HcclFusionOptions automatic(bool parallel) {
  HcclFusionOptions options{};
  options.dataType = HCCL_DATA_TYPE_FP32;
  options.hcomParallel = parallel;
  options.group = kGroup;
  return options;
}

class FusionAuto : public ::testing::Test {
 protected:
  void SetUp() override { OK(HcomSetGradFusionAuto(kGroup)); }
  void TearDown() override { HcomDestroy(); }  // clears the settings
};

TEST_F(FusionAuto, AllRanksChangeTheirSegmentsInTheSameIterationAndSumsStayExact) {
  constexpr int kRanks = 3;
  for (const bool contiguous : {true, false}) {
    ApiWorld world(kRanks);
    std::vector<std::vector<Indices>> seen(kRanks);
    world.on_all([&](int rank) {
      Model model(contiguous);
      const HcclFusionOptions options = automatic(true);
      HcclFusion fusion = create(world.comm(rank), model, &options);
      for (int iteration = 1; iteration <= kIterations; ++iteration) {
        seen[static_cast<std::size_t>(rank)].push_back(segments_of(fusion));
        model.iterate(fusion, rank, iteration, std::chrono::microseconds(50));
        model.expect_sums(kRanks, iteration);
        if (::testing::Test::HasFatalFailure()) return;
      }
      OK(HcclFusionDestroy(fusion));
    });
    EXPECT_EQ(seen[0], seen[1]);
    EXPECT_EQ(seen[0], seen[2]);
    for (std::size_t i = 0; i < 10; ++i)
      EXPECT_EQ(seen[0][i], (Indices{kGradients - 1})) << "HCCL's default comes first";
    world.expect_usable();
  }
}

TEST_F(FusionAuto, OneSegmentIsEnoughWhereNothingOverlaps) {
  ApiWorld world(2);
  world.on_all([&](int rank) {
    Model model(true);
    const HcclFusionOptions options = automatic(false);
    HcclFusion fusion = create(world.comm(rank), model, &options);
    for (int iteration = 1; iteration <= 11; ++iteration) {
      model.iterate(fusion, rank, iteration, std::chrono::microseconds(10));
      model.expect_sums(2, iteration);
    }
    EXPECT_EQ(segments_of(fusion), (Indices{kGradients - 1}));
    OK(HcclFusionDestroy(fusion));
  });
}

TEST_F(FusionAuto, WhatTheProgramSetWins) {
  ApiWorld world(2);
  const Indices own = {1, 2, 11};
  const float shares[] = {50, 50};
  world.on_all([&](int rank) {
    Model model(true);
    HcclFusionOptions listed = automatic(true);
    listed.lastIndices = own.data();
    listed.segmentNum = 3;
    HcclFusion fusion = create(world.comm(rank), model, &listed);
    for (int iteration = 1; iteration <= 25; ++iteration) {
      model.iterate(fusion, rank, iteration, std::chrono::microseconds(10));
      ASSERT_EQ(segments_of(fusion), own);
    }
    OK(HcclFusionDestroy(fusion));
  });
  OK(HcomSetGradFusionBySize(kGroup, 2, shares));
  world.on_all([&](int rank) {
    Model model(true);
    const HcclFusionOptions options = automatic(true);
    HcclFusion fusion = create(world.comm(rank), model, &options);
    for (int iteration = 1; iteration <= 25; ++iteration)
      model.iterate(fusion, rank, iteration, std::chrono::microseconds(10));
    EXPECT_EQ(segments_of(fusion), (Indices{5, 11}));
    OK(HcclFusionDestroy(fusion));
  });
}

TEST_F(FusionAuto, RanksThatDifferAreToldWhereBeforeAnythingIsSent) {
  struct Difference {
    std::vector<std::size_t> sizes[2];
    bool automatic[2];
    const char* words;
  };
  const std::vector<Difference> differences = {
      {{{4, 4, 4}, {4, 4, 4, 4}}, {true, true}, "the number of gradients"},
      {{{4, 4, 4}, {4, 5, 3}}, {true, true}, "the elements of gradient 1 (layer1)"},
      {{{4, 4, 4}, {4, 4, 4}}, {true, false}, "whether the plan is automatic"},
  };
  for (const auto& difference : differences) {
    ApiWorld world(2);
    world.on_all([&](int rank) {
      Model model(true, difference.sizes[rank]);
      HcclFusionOptions options = automatic(true);
      if (!difference.automatic[rank]) options.group = "another";
      HcclFusion fusion = create(world.comm(rank), model, &options);
      for (std::uint32_t i = 0; i < difference.sizes[rank].size(); ++i)
        OK(HcclFusionReady(fusion, i));
      for (int again = 0; again < 2; ++again) {
        SAYS(HcclFusionWait(fusion), HCCL_E_PARA, difference.words);
      }
      OK(HcclFusionDestroy(fusion));
    });
    world.expect_usable();  // no rank has sent data that another rank did not expect
  }
}

// The processor time of this process.
double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST_F(FusionAuto, TheEngineCostsNextToNothingWhereNothingIsSent) {
  ApiWorld world(1);
  Model model(false, std::vector<std::size_t>(161, 16));
  for (const bool parallel : {false, true}) {
    const HcclFusionOptions options = automatic(parallel);
    HcclFusion fusion = create(world.comm(0), model, &options);
    double best = 1;
    for (int round = 0; round < 50; ++round) {
      constexpr int kTimes = 20;
      const double begin = processor_seconds();
      for (int iteration = 0; iteration < kTimes; ++iteration) {
        HcclFusionMark(fusion, HCCL_FUSION_FP_START);
        for (std::uint32_t i = 0; i < 161; ++i) HcclFusionReady(fusion, i);
        HcclFusionMark(fusion, HCCL_FUSION_BP_END);
        HcclFusionWait(fusion);
        HcclFusionMark(fusion, HCCL_FUSION_ITERATION_END);
      }
      best = std::min(best, (processor_seconds() - begin) / kTimes);
    }
    RecordProperty(parallel ? "parallel_us" : "serial_us", std::to_string(1e6 * best));
    std::printf("%s: %.2f us an iteration\n", parallel ? "parallel" : "serial", 1e6 * best);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(best, 200e-6);  // ten times the usual value, because other programs share the caches
#endif
    OK(HcclFusionDestroy(fusion));
  }
}

}  // namespace
}  // namespace hccl::testing
