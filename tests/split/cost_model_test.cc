// The cost of an allreduce, learned from samples with noise and outliers whose true costs are
// known; and from the traces of ranks.
#include "split/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "split/profile.h"

namespace hccl::split {
namespace {

const AffineCost kTruth{400e-6, 1 / 0.7e9};  // a link of 10 Gbit/s

class Clock {
 public:
  explicit Clock(unsigned seed) : random_(seed) {}
  CostSample measure(const AffineCost& truth, std::uint64_t bytes) {
    std::normal_distribution<double> noise(1, 0.03);
    return {bytes, truth(bytes) * noise(random_)};
  }
  std::uint64_t size() {
    return static_cast<std::uint64_t>(
        std::exp2(std::uniform_real_distribution<double>(12, 26)(random_)));
  }
  bool one_in(unsigned n) { return random_() % n == 0; }

 private:
  std::mt19937 random_;
};

void expect_near(const AffineCost& line, const AffineCost& truth, double tolerance) {
  EXPECT_NEAR(line.start, truth.start, tolerance * truth.start);
  EXPECT_NEAR(line.per_byte, truth.per_byte, tolerance * truth.per_byte);
}

std::vector<CostSample> probe(Clock& clock, const AffineCost& truth) {
  std::vector<CostSample> samples;
  for (const std::uint64_t bytes : {4096u, 65536u, 1u << 20, 16u << 20})
    for (int run = 0; run < 3; ++run) samples.push_back(clock.measure(truth, bytes));
  return samples;
}

// The mean of equal sizes is that size, however many samples there are.
TEST(CostModel, TablesHaveTheMeasuredSizes) {
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3},
                                    std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    std::vector<CostSample> samples{{bytes == 1 ? 100u : 1u, 1e-3}};
    for (int n = 1; n <= 64; ++n) {
      samples.push_back({bytes, 2e-3});
      const auto model = CostModel::create(samples);
      ASSERT_TRUE(model.ok());
      const TableCost table = model->table();
      const auto has = [&](std::uint64_t size) {
        return std::ranges::any_of(table.points(),
                                   [size](const auto& point) { return point.bytes == size; });
      };
      EXPECT_TRUE(has(samples[0].bytes)) << n << " samples of " << bytes;
      EXPECT_TRUE(has(std::min(bytes, std::uint64_t{1} << 62))) << n << " samples of " << bytes;
    }
  }
}

TEST(CostModel, FindsTheLineOfAProbe) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Clock clock(seed);
    const CostModel model = CostModel::create(probe(clock, kTruth)).value();
    expect_near(model.affine(), kTruth, 0.06);
    EXPECT_TRUE(model.is_affine());
  }
}

TEST(CostModel, OutliersHardlyMatter) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Clock clock(seed);
    auto samples = probe(clock, kTruth);
    samples[4].seconds *= 30;  // as if another process had the core
    samples[9].seconds *= 3;
    CostModel model = CostModel::create(samples).value();
    expect_near(model.affine(), kTruth, 0.1);
    for (int i = 0; i < 300; ++i) {
      CostSample sample = clock.measure(kTruth, clock.size());
      if (clock.one_in(10)) sample.seconds *= 20;
      ASSERT_TRUE(model.add(sample).ok());
    }
    expect_near(model.affine(), kTruth, 0.1);
  }
}

// Measured on a line of 100 Mbit/s, on which the first bytes take no time. A time that is far too
// low must not count more than one that is too high.
TEST(CostModel, OneTimeThatIsFarTooLowHardlyMatters) {
  const CostModel model = CostModel::create({{{4096, 70.6e-6},
                                              {4096, 915e-6},
                                              {4096, 1050e-6},
                                              {65536, 8.23e-3},
                                              {65536, 8.28e-3},
                                              {65536, 8.32e-3}}})
                              .value();
  expect_near(model.affine(), {427e-6, 119.8e-9}, 0.1);
  EXPECT_TRUE(model.is_affine());
}

TEST(CostModel, FollowsALinkThatChanges) {
  Clock clock(1);
  CostModel model = CostModel::create(probe(clock, kTruth)).value();
  const AffineCost slower{1e-3, 10 / 0.7e9};
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(model.add(clock.measure(slower, clock.size())).ok());
  expect_near(model.affine(), slower, 0.2);
  for (const std::uint64_t bytes : {1u << 16, 1u << 20, 1u << 24})
    EXPECT_NEAR(model.table()(bytes), slower(bytes), 0.3 * slower(bytes));
}

TEST(CostModel, AProbeThatWasDisturbedIsSoonForgotten) {
  // By chance the larger message took less time.
  CostModel model =
      CostModel::create(std::vector<CostSample>{{4096, 5e-4}, {65536, 4.2e-4}}).value();
  EXPECT_GT(model.affine().per_byte, 0);
  for (int i = 0; i < 3; ++i) {
    for (const std::uint64_t bytes : {16u << 20, 1u << 20})
      ASSERT_TRUE(model.add({bytes, kTruth(bytes)}).ok());
  }
  for (const std::uint64_t bytes : {16u << 20, 4u << 20, 1u << 20})
    EXPECT_NEAR(model.affine()(bytes), kTruth(bytes), 0.15 * kTruth(bytes));
}

TEST(CostModel, OneSizeOverAndOverLeavesTheRestAsItWas) {
  Clock clock(2);
  CostModel model = CostModel::create(probe(clock, kTruth)).value();
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(model.add(clock.measure(kTruth, 8u << 20)).ok());
  EXPECT_NEAR(model.affine()(8u << 20), kTruth(8u << 20), 0.05 * kTruth(8u << 20));
  EXPECT_NEAR(model.affine()(4096), kTruth(4096), 0.3 * kTruth(4096));
}

TEST(CostModel, ATableWhereTheLineDoesNotFit) {
  // From 1 MiB on another algorithm runs: a byte takes a fortieth of the time, but the start takes
  // longer.
  const auto truth = [](std::uint64_t n) {
    return n < 1u << 20 ? 20e-6 + static_cast<double>(n) / 0.1e9
                        : 9e-3 + static_cast<double>(n) / 4e9;
  };
  std::vector<CostSample> samples;
  for (std::uint64_t n = 4096; n <= 64u << 20; n *= 4) samples.push_back({n, truth(n)});
  const CostModel model = CostModel::create(samples).value();
  EXPECT_FALSE(model.is_affine());
  for (const CostSample& each : samples)
    EXPECT_NEAR(model.table()(each.bytes), truth(each.bytes), 0.01 * truth(each.bytes));
}

// Most segments of a class have one size, and a few are much larger.
TEST(CostModel, ATableOfSizesThatLieUnevenly) {
  std::vector<CostSample> samples;
  for (const std::uint64_t bytes : {9'400'000, 9'500'000, 9'600'000, 15'900'000}) {
    samples.push_back({bytes, 8e-9 * static_cast<double>(bytes)});
  }
  const TableCost table = CostModel::create(samples).value().table();
  for (const std::uint64_t bytes : {5'000'000, 9'500'000, 11'100'000, 30'000'000}) {
    EXPECT_NEAR(table(bytes) / static_cast<double>(bytes), 8e-9, 1e-12) << bytes;
  }
}

TEST(CostModel, AProbeThatFlattersIsStretchedByWhatTrainingMeasures) {
  // After a pause the first bytes take no time, so each size of the probe seems twice as fast as it
  // is.
  std::vector<CostSample> flattering;
  for (const std::uint64_t bytes : {1u << 16, 1u << 20, 1u << 24})
    flattering.push_back({bytes, 0.5e-8 * static_cast<double>(bytes)});
  CostModel model = CostModel::create(flattering).value();
  EXPECT_NEAR(model.table()(1 << 20), 0.5e-8 * (1 << 20), 1e-9);
  constexpr std::uint64_t kMuch = 20'000'000;
  ASSERT_TRUE(model.add({kMuch, 1e-8 * kMuch}).ok());
  // One size is measured; the other sizes change by the same factor.
  EXPECT_NEAR(model.table()(1 << 20), 1e-8 * (1 << 20), 0.01e-8 * (1 << 20));
  // A measurement of a size counts at once, and also corrects the size's neighbour.
  ASSERT_TRUE(model.add({1 << 20, 1.5e-8 * (1 << 20)}).ok());
  EXPECT_NEAR(model.table()(1 << 20), 1.5e-8 * (1 << 20), 0.01e-8 * (1 << 20));
  EXPECT_NEAR(model.table()(1 << 16), 1.5e-8 * (1 << 16), 0.01e-8 * (1 << 16));
  EXPECT_NEAR(model.table()(kMuch), 1e-8 * kMuch, 0.01e-8 * kMuch);
}

TEST(CostModel, NeverNegativeNorFalling) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<CostSample> samples;
    for (auto n = 1 + random() % 6; n > 0; --n) {
      samples.push_back({random() % (std::uint64_t{1} << (random() % 40)),
                         1e-6 * static_cast<double>(1 + random() % 100000)});
    }
    CostModel model = CostModel::create(samples).value();
    for (const auto& each : samples) ASSERT_TRUE(model.add(each).ok());
    ASSERT_GE(model.affine().start, 0);
    ASSERT_GE(model.affine().per_byte, 0);
    ASSERT_TRUE(std::isfinite(model.affine().start + model.affine().per_byte));
    double before = 0;
    const TableCost table = model.table();
    for (std::uint64_t n = 1; n < std::uint64_t{1} << 45; n *= 2) {
      ASSERT_GE(table(n), before * (1 - 1e-12));
      before = table(n);
    }
  }
}

TEST(CostModel, RefusesWhatIsNoTime) {
  EXPECT_EQ(CostModel::create({}).status().code(), Code::kPara);
  const auto refused = CostModel::create(std::vector<CostSample>{{8, 1e-3}, {16, 0}});
  EXPECT_EQ(refused.status().code(), Code::kPara);
  EXPECT_NE(refused.status().message().find("sample 1 (16 bytes)"), std::string::npos);
  CostModel model = CostModel::create(std::vector<CostSample>{{8, 1e-3}}).value();
  EXPECT_EQ(model.add({8, std::nan("")}).code(), Code::kPara);
  EXPECT_EQ(model.add({8, -1}).code(), Code::kPara);
}

// ---- profiles ----

// Two ranks with a link of 1 ms + 1 ns a byte. Rank 1 computes more slowly. While compute and
// communication overlap, they run at 80 % and 50 % of their speeds.
std::vector<Trace> two_ranks() {
  const std::vector<std::uint64_t> bytes = {4000000, 1000000};
  std::vector<Trace> traces(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    Trace& trace = traces[rank];
    trace.rank = rank;
    trace.rank_size = 2;
    for (std::uint64_t number = 1; number <= 9; ++number) {
      TraceIteration it;
      it.number = number;
      it.overlapped = number % 2 == 1;
      it.begin_ns = static_cast<std::int64_t>(number) * 1000000000 + rank * 777;
      const auto at = [&](double ms) { return it.begin_ns + static_cast<std::int64_t>(1e6 * ms); };
      const double early = rank == 0 ? 2 : 0;  // rank 0 is ready earlier, and waits
      // Alone, the gradients come at 10 and 20 ms, and the first segment takes 5 ms. Beside compute
      // the segment takes 10 ms, and delays compute by 2 ms.
      const double last = it.overlapped ? 22 : 20;
      it.gradients = {{0, "a", bytes[0], at(10 - early)}, {1, "b", bytes[1], at(last - early)}};
      it.compute_end_ns = at(last - early);
      const double first_start = it.overlapped ? 10 : 20, first_end = it.overlapped ? 20 : 25;
      const double second = it.overlapped ? 22 : 25;
      it.segments = {{0, 0, bytes[0], "ring", at(first_start - early), at(first_end), 0, 0},
                     {1, 1, bytes[1], "ring", at(it.overlapped ? second - early : second),
                      at(second + 2), 0, 0}};
      if (number == 1) it.gradients[0].ready_ns = at(0);  // the first iteration is no example
      trace.iterations.push_back(it);
    }
  }
  return traces;
}

TEST(Profile, TellsComputeCostAndContentionOfTwoRanks) {
  const auto traces = two_ranks();
  const Profile told = profile(traces).value();
  EXPECT_EQ(told.iterations, 8u);
  EXPECT_EQ(told.names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(told.last_indices, (Segments{0, 1}));
  EXPECT_NEAR(told.ready[0], 10e-3, 1e-9);
  EXPECT_NEAR(told.ready[1], 20e-3, 1e-9);
  EXPECT_NEAR(told.compute_end, 20e-3, 1e-9);
  EXPECT_NEAR(told.measured_compute_end, 22e-3, 1e-9);
  EXPECT_NEAR(told.measured_end, 24e-3, 1e-9);
  ASSERT_TRUE(told.contention.has_value());
  EXPECT_NEAR(told.contention->compute, 0.8, 0.01);
  EXPECT_NEAR(told.contention->communication, 0.5, 0.02);
  const CostModel model = cost_model(told).value();
  EXPECT_NEAR(model.affine().start, 1e-3, 2e-5);
  EXPECT_NEAR(model.affine().per_byte, 1e-9, 2e-11);
}

TEST(Profile, OneTraceStandsForAll) {
  auto traces = two_ranks();
  for (auto& it : traces[0].iterations)
    for (auto& segment : it.segments)  // as the engine records it
      segment.wait_for_peer_ns = segment.end_ns - segment.start_ns > 2500000 ? 2000000 : 0;
  const Profile told = profile(std::span(traces).first(1)).value();
  EXPECT_NEAR(told.ready[0], 8e-3, 1e-9);
  EXPECT_NEAR(cost_model(told)->affine()(4000000), 4e-3, 1.1e-3);
}

TEST(Merge, TakesTheLatestAndTheShortest) {
  auto traces = two_ranks();
  std::swap(traces[0], traces[1]);  // the order of the traces does not matter
  const Trace merged = merge_ranks(traces).value();
  ASSERT_EQ(merged.iterations.size(), 9u);
  const auto& it = merged.iterations[2];
  EXPECT_EQ(it.begin_ns, 0);
  EXPECT_EQ(it.gradients[0].ready_ns, 10000000);
  EXPECT_EQ(it.segments[0].start_ns, 10000000);
  EXPECT_EQ(it.segments[0].end_ns, 20000000);
  EXPECT_EQ(it.segments[1].end_ns - it.segments[1].start_ns, 2000000);
}

TEST(Merge, SaysWhatIsWrong) {
  const auto refused = [](const char* words,
                          const std::function<void(std::vector<Trace>&)>& spoil) {
    auto traces = two_ranks();
    spoil(traces);
    const auto merged = merge_ranks(traces);
    ASSERT_FALSE(merged.ok()) << words;
    EXPECT_EQ(merged.status().code(), Code::kPara);
    EXPECT_NE(merged.status().message().find(words), std::string::npos)
        << merged.status().message();
  };
  using Traces = std::vector<Trace>;
  refused("no traces", [](Traces& bad) { bad.clear(); });
  refused("rank 0 has two traces", [](Traces& bad) { bad[1].rank = 0; });
  refused("missing: 2 of 3", [](Traces& bad) { bad[0].rank_size = bad[1].rank_size = 3; });
  refused("rank 1 of 4", [](Traces& bad) { bad[1].rank_size = 4; });
  refused("rank 1, iteration 4: gradient 1 is b of 5 bytes",
          [](Traces& bad) { bad[1].iterations[3].gradients[1].bytes = 5; });
  refused("it has 1 gradients", [](Traces& bad) { bad[1].iterations[3].gradients.pop_back(); });
  refused("gradient 1 has the index 7",
          [](Traces& bad) { bad[0].iterations[0].gradients[1].index = 7; });
  refused("ready at 3, before",
          [](Traces& bad) { bad[0].iterations[0].gradients[0].ready_ns = 3; });
  refused("leave out the gradients from 1 on",
          [](Traces& bad) { bad[0].iterations[0].segments.pop_back(); });
  refused("allreduce2 has the gradients 1 to 9",
          [](Traces& bad) { bad[0].iterations[0].segments[1].last = 9; });
  refused("allreduce2 has 9 bytes",
          [](Traces& bad) { bad[0].iterations[0].segments[1].bytes = 9; });
  refused("times must not go backwards", [](Traces& bad) {
    auto& segment = bad[0].iterations[0].segments[1];
    std::swap(segment.start_ns, segment.end_ns);
  });
  refused("is of group \"other\"", [](Traces& bad) { bad[1].group = "other"; });
  refused("no iteration in common", [](Traces& bad) {
    for (auto& it : bad[1].iterations) it.number += 100;
  });
  refused("1 segments", [](Traces& bad) {
    for (auto& it : bad[1].iterations) {
      it.segments[0].last = 1;
      it.segments[0].bytes = 5000000;
      it.segments.pop_back();
    }
  });
}

}  // namespace
}  // namespace hccl::split
