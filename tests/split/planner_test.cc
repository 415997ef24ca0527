// The planner against brute force over every possible cut, and its promises about bound and slack.
#include "split/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <ctime>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace hccl::split {
namespace {

struct Instance {
  std::vector<std::uint64_t> bytes;
  std::vector<double> ready;
  std::uint32_t max_segments = 1;
};

Instance random_instance(std::mt19937_64& random, std::size_t largest) {
  Instance instance;
  const std::size_t m = 1 + random() % largest;
  const std::uint64_t scale = std::uint64_t{1} << (random() % 28);
  const bool grid = random() % 3 == 0;  // whole numbers produce ties
  std::uniform_real_distribution<double> gap(0, 4e-3);
  double time = 0;
  for (std::size_t i = 0; i < m; ++i) {
    instance.bytes.push_back(grid ? random() % 4 : random() % (scale + 1));
    time += random() % 4 == 0 ? 0 : grid ? static_cast<double>(random() % 4) : gap(random);
    instance.ready.push_back(time);
  }
  if (random() % 4 == 0) std::shuffle(instance.ready.begin(), instance.ready.end(), random);
  instance.max_segments = 1 + static_cast<std::uint32_t>(random() % (m + 2));
  return instance;
}

AffineCost random_affine(std::mt19937_64& random, const Instance& instance) {
  double total = 1;
  for (const auto size : instance.bytes) total += static_cast<double>(size);
  const double span = instance.ready.back() + 1e-3;
  std::uniform_real_distribution<double> part(0, 1.5);
  if (random() % 3 == 0)
    return {static_cast<double>(random() % 3), static_cast<double>(random() % 3)};
  return {random() % 8 == 0 ? 0 : part(random) * span / 5, part(random) * span / total};
}

TableCost random_table(std::mt19937_64& random, const Instance& instance) {
  std::vector<TableCost::Point> points;
  std::uint64_t bytes = 0;
  double seconds = 0;
  for (auto k = 1 + random() % 6; k > 0; --k) {
    bytes += 1 + random() % (1 + instance.bytes[0] + instance.bytes.back());
    if (random() % 4 != 0) seconds += 1e-3 * static_cast<double>(random() % 2000) / 1000;
    points.push_back({bytes, seconds});
  }
  return TableCost::create(points).value();
}

/// The end of the last segment if the segments end at the set bits of `cuts`; computed without the
/// planner's model.
template <class Cost>
double simulate(const Instance& instance, std::uint32_t cuts, const Cost& cost) {
  double wire_free = 0;
  double all_ready = 0;
  std::uint64_t pending = 0;
  for (std::size_t i = 0; i < instance.bytes.size(); ++i) {
    pending += instance.bytes[i];
    all_ready = std::max(all_ready, instance.ready[i]);
    if ((cuts >> i & 1) == 0 && i + 1 < instance.bytes.size()) continue;
    wire_free = std::max(wire_free, all_ready) + cost(pending);
    pending = 0;
  }
  return wire_free;
}

struct Best {
  double end;
  std::size_t fewest;  // segments of the smallest plan within the slack
};

/// The best of all possible cuts; end(cuts) returns the end of the last segment.
template <class End>
Best brute_force(const Instance& instance, double slack, const End& end, double rounding = 1e-12) {
  const std::size_t m = instance.bytes.size();
  // By number of segments.
  std::vector<double> best(m + 1, std::numeric_limits<double>::infinity());
  for (std::uint32_t cuts = 0; cuts < (1u << (m - 1)); ++cuts) {
    const auto segments = static_cast<std::size_t>(std::popcount(cuts)) + 1;
    if (segments <= instance.max_segments) best[segments] = std::min(best[segments], end(cuts));
  }
  Best result{*std::min_element(best.begin(), best.end()), 1};
  while (best[result.fewest] > (1 + slack) * result.end * (1 + rounding)) ++result.fewest;
  return result;
}

std::uint32_t as_cuts(const Segments& segments) {
  std::uint32_t cuts = 0;
  for (const auto last : segments) cuts |= 1u << last;
  return cuts;
}

template <class Cost>
void expect_optimal(const Instance& instance, const Cost& cost, double slack) {
  const auto plan =
      plan_segments({instance.bytes, instance.ready, instance.max_segments, slack}, cost);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto& p = plan.value();
  const Best best = brute_force(instance, slack,
                                [&](std::uint32_t cuts) { return simulate(instance, cuts, cost); });
  const double rounding = 1e-12 * (best.end + 1e-9);
  ASSERT_NEAR(p.best_end, best.end, rounding);
  ASSERT_LE(p.end, (1 + slack) * best.end + rounding);
  ASSERT_LE(p.last_indices.size(), instance.max_segments);
  ASSERT_EQ(p.last_indices.size(), best.fewest);
  ASSERT_EQ(p.last_indices.back(), instance.bytes.size() - 1);
  ASSERT_NEAR(simulate(instance, as_cuts(p.last_indices), cost), p.end, rounding);
  ASSERT_DOUBLE_EQ(predict({instance.bytes, instance.ready}, p.last_indices, cost)->end, p.end);
  ASSERT_LE(p.lower_bound, best.end + rounding);
  ASSERT_GE(p.lower_bound, 0);
}

TEST(Planner, EqualsBruteForceForAffineCosts) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 10000; ++round) {
    SCOPED_TRACE(round);
    const Instance instance = random_instance(random, 9);
    expect_optimal(instance, random_affine(random, instance), round % 2 == 0 ? 0 : 0.05);
    if (HasFatalFailure()) return;
  }
}

TEST(Planner, EqualsBruteForceForTabulatedCosts) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 10000; ++round) {
    SCOPED_TRACE(round);
    const Instance instance = random_instance(random, 9);
    expect_optimal(instance, random_table(random, instance), round % 2 == 0 ? 0 : 0.05);
    if (HasFatalFailure()) return;
  }
}

// ---- compute and communication slow each other down ----

Contention random_contention(std::mt19937_64& random) {
  std::uniform_real_distribution<double> speed(0.15, 1);
  Contention contention{speed(random), speed(random)};
  if (random() % 6 == 0) contention.compute = 1;
  if (random() % 6 == 0) contention.communication = 1;
  if (random() % 6 == 0) contention = {0.5, 0.75};  // ties
  return contention;
}

/// Simulates from event to event, without a formula. An event: a gradient is ready, a segment ends,
/// or compute ends.
template <class Cost>
double simulate_beside(const Instance& instance, std::uint32_t cuts, const Cost& cost,
                       const Contention& contention) {
  const double compute_end = *std::max_element(instance.ready.begin(), instance.ready.end());
  double now = 0, progress = 0, all_ready = 0;
  std::uint64_t pending = 0;
  for (std::size_t i = 0; i < instance.bytes.size(); ++i) {
    pending += instance.bytes[i];
    all_ready = std::max(all_ready, instance.ready[i]);
    if ((cuts >> i & 1) == 0 && i + 1 < instance.bytes.size()) continue;
    if (progress < all_ready) {  // the wire is idle
      now += all_ready - progress;
      progress = all_ready;
    }
    double work = cost(pending);
    pending = 0;
    const auto [compute, communication] = contention;
    const double to_compute_end = (compute_end - progress) / compute;
    if (work / communication <= to_compute_end) {
      now += work / communication;
      progress += work / communication * compute;
    } else {
      now += to_compute_end;
      progress = compute_end;
      work -= to_compute_end * communication;
      now += work;
    }
  }
  return now;
}

TEST(Planner, EqualsBruteForceWithContention) {
  std::mt19937_64 random(7);
  int paid = 0;
  for (int round = 0; round < 10000; ++round) {
    SCOPED_TRACE(round);
    const Instance instance = random_instance(random, 9);
    const AffineCost cost = random_affine(random, instance);
    const Contention contention = random_contention(random);
    const double slack = round % 2 == 0 ? 0 : 0.05;
    const Problem problem{instance.bytes, instance.ready, instance.max_segments, slack, contention};
    const Plan plan = plan_segments(problem, cost).value();
    const auto [end, fewest] = brute_force(
        instance, slack,
        [&](std::uint32_t cuts) { return simulate_beside(instance, cuts, cost, contention); },
        1e-10);
    const double rounding = 1e-11 * (end + 1e-9);
    ASSERT_NEAR(plan.best_end, end, rounding);
    ASSERT_EQ(plan.last_indices.size(), fewest);
    ASSERT_NEAR(simulate_beside(instance, as_cuts(plan.last_indices), cost, contention), plan.end,
                rounding);
    ASSERT_NEAR(predict(problem, plan.last_indices, cost)->end, plan.end, rounding);
    ASSERT_LE(plan.lower_bound, end + rounding);
    if (!contention.overlap_pays()) {
      ASSERT_EQ(plan.last_indices.size(), 1u);
    }
    paid += plan.last_indices.size() > 1;
  }
  EXPECT_GT(paid, 1000) << "too few instances in which there was something to decide";
}

TEST(Planner, ATableWithContentionEndsWhenItSays) {
  std::mt19937_64 random(8);
  double excess = 0;
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE(round);
    const Instance instance = random_instance(random, 9);
    const TableCost cost = random_table(random, instance);
    const Contention contention = random_contention(random);
    const Problem problem{instance.bytes, instance.ready, instance.max_segments, 0, contention};
    const Plan plan = plan_segments(problem, cost).value();
    const double best = brute_force(instance, 0, [&](std::uint32_t cuts) {
                          return simulate_beside(instance, cuts, cost, contention);
                        }).end;
    const double rounding = 1e-11 * (best + 1e-9);
    ASSERT_NEAR(simulate_beside(instance, as_cuts(plan.last_indices), cost, contention), plan.end,
                rounding);
    ASSERT_LE(plan.lower_bound, best + rounding);
    if (best > 0 && contention.overlap_pays()) excess = std::max(excess, plan.end / best - 1);
  }
  EXPECT_LT(excess, 0.1) << "not exact, but never far off";
}

TEST(Planner, APredictionTellsWhenGradientsAreReady) {
  const std::vector<std::uint64_t> bytes = {10, 10};
  const std::vector<double> ready = {1, 3};
  // Alone, the first segment would take 2 s. It starts at 1 s, at half speed while compute runs,
  // which needs 2 s more at 80 %. From 1 s to 3.5 s it does 1.25 s of its work, then the other 0.75
  // s at full speed.
  const Problem problem{bytes, ready, 8, 0, {0.8, 0.5}};
  const Prediction told = predict(problem, Segments{0, 1}, AffineCost{0, 0.2}).value();
  EXPECT_DOUBLE_EQ(told.ready[0], 1);
  EXPECT_DOUBLE_EQ(told.ready[1], 3.5);
  EXPECT_DOUBLE_EQ(told.segments[0].start, 1);
  EXPECT_DOUBLE_EQ(told.segments[0].end, 4.25);
  EXPECT_DOUBLE_EQ(told.segments[1].end, 6.25);
  EXPECT_DOUBLE_EQ(told.end, 6.25);
}

TEST(Planner, BothAlgorithmsAgreeOnLargerInstances) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    Instance instance = random_instance(random, 300);
    const AffineCost affine = random_affine(random, instance);
    constexpr std::uint64_t kFar = std::uint64_t{1} << 40;
    // Two points of one line give the same cost, but the planner then uses its other algorithm.
    const auto table = TableCost::create({{1, affine(1)}, {kFar, affine(kFar)}});
    instance.bytes[0] += 1;
    for (auto& size : instance.bytes) size = std::max<std::uint64_t>(size, 1);
    const Problem problem{instance.bytes, instance.ready, instance.max_segments, 0};
    const Plan a = plan_segments(problem, affine).value();
    const Plan b = plan_segments(problem, table.value()).value();
    ASSERT_NEAR(a.best_end, b.best_end, 1e-9 * a.best_end) << round;
  }
}

TEST(Planner, BoundIsReachedWhereItCanBe) {
  // All gradients are ready at once and there is one segment, so nothing can be better.
  const std::vector<std::uint64_t> bytes = {100, 200, 300};
  const std::vector<double> at_once = {1, 1, 1};
  const Plan one = plan_segments({bytes, at_once}, AffineCost{0.5, 0.01}).value();
  EXPECT_EQ(one.last_indices, (Segments{2}));
  EXPECT_DOUBLE_EQ(one.end, 1 + 0.5 + 6);
  EXPECT_DOUBLE_EQ(one.lower_bound, one.end);
  EXPECT_DOUBLE_EQ(one.gap(), 0);
  // Backward is slow, and hides all but the last gradient.
  const std::vector<double> slow = {1, 10, 20};
  const Plan hidden = plan_segments({bytes, slow}, AffineCost{0.5, 0.01}).value();
  EXPECT_EQ(hidden.last_indices, (Segments{1, 2}));
  EXPECT_DOUBLE_EQ(hidden.end, 20 + 0.5 + 3);
  EXPECT_DOUBLE_EQ(hidden.gap(), 0);
  // In this table bytes are cheapest in the largest segment.
  const TableCost cost = TableCost::create({{1, 0.5}, {600, 6.5}}).value();
  const Plan table = plan_segments({bytes, at_once, 1}, cost).value();
  EXPECT_DOUBLE_EQ(table.end, 1 + 6.5);
  EXPECT_DOUBLE_EQ(table.lower_bound, table.end);
}

TEST(Planner, ACheapSizeDoesNotWeakenTheBoundBeyondTheSegmentsThereAre) {
  // Segments of 1 byte cost a tenth a byte, but 4 of them do not carry 4000 bytes.
  const std::vector<std::uint64_t> bytes(4000, 1);
  const std::vector<double> at_once(4000, 1);
  const TableCost cost = TableCost::create({{1, 0.001}, {1000, 10}, {4000, 40}}).value();
  const Plan plan = plan_segments({bytes, at_once, 4}, cost).value();
  EXPECT_LE(plan.best_end, 1 + 40);
  EXPECT_LT(plan.best_end / plan.lower_bound - 1, 0.001);
}

TEST(Planner, TheBoundCountsTheStartOfTheLastSegment) {
  const std::vector<std::uint64_t> bytes = {900, 100};
  const std::vector<double> ready = {0, 10};
  const TableCost cost = TableCost::create({{1, 1.0}, {1000, 1.1}}).value();
  const Plan plan = plan_segments({bytes, ready, 8, 0}, cost).value();
  EXPECT_DOUBLE_EQ(plan.best_end, 10 + cost(100));
  EXPECT_DOUBLE_EQ(plan.lower_bound, plan.best_end);
}

TEST(Planner, TheBoundKnowsThatAGradientIsNotTakenApart) {
  // A byte is cheaper in a small segment, but nine tenths of the bytes are one gradient.
  const std::vector<std::uint64_t> bytes = {50, 900, 50};
  const std::vector<double> at_once = {1, 1, 1};
  const TableCost cost = TableCost::create({{50, 5}, {100, 10}, {1000, 150}}).value();
  const Plan plan = plan_segments({bytes, at_once, 8, 0}, cost).value();
  EXPECT_DOUBLE_EQ(plan.best_end, 1 + cost(900) + 2 * cost(50));
  EXPECT_DOUBLE_EQ(plan.lower_bound, plan.best_end);
}

TEST(Planner, NeverLosesToTheFixedRules) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 1000; ++round) {
    const Instance instance = random_instance(random, 200);
    const AffineCost cost = random_affine(random, instance);
    const Plan plan = plan_segments({instance.bytes, instance.ready, 8, 0}, cost).value();
    for (const Segments& other :
         {default_segments(instance.bytes).value(),
          segments_by_size(instance.bytes, std::vector<float>{60, 20, 20}).value()}) {
      if (other.size() > 8) continue;
      ASSERT_LE(plan.end,
                predict({instance.bytes, instance.ready}, other, cost)->end * (1 + 1e-12));
    }
  }
}

TEST(Planner, TenThousandGradientsAreQuick) {
  std::mt19937_64 random(6);
  std::vector<std::uint64_t> bytes;
  std::vector<double> ready;
  for (int i = 0; i < 10000; ++i) {
    bytes.push_back(random() % 100000);
    ready.push_back(0.3 * i / 10000);
  }
  const AffineCost cost{400e-6, 0.3 / 5e8};
  // Processor time of this thread: other work may keep the machine busy.
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  double best = 1;
  for (int i = 0; i < 20; ++i) {
    const double begin = now();
    ASSERT_TRUE(plan_segments({bytes, ready}, cost).ok());
    best = std::min(best, now() - begin);
  }
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(best, 5e-3);
#else
  EXPECT_LT(best, 0.5);
#endif
}

TEST(Planner, RefusesWithTheNameOfTheCulprit) {
  const std::vector<std::uint64_t> bytes = {1, 2, 3};
  const std::vector<double> ready = {0, 1, 2};
  const AffineCost cost{1, 1};
  const auto refused = [](const auto& result, const std::string& word) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), Code::kPara);
    EXPECT_NE(result.status().message().find(word), std::string::npos) << result.status().message();
  };
  const double nan = std::nan("");
  refused(plan_segments({{}, {}}, cost), "no gradients");
  refused(plan_segments({bytes, std::span(ready).first(2)}, cost), "2 ready times");
  refused(plan_segments({bytes, std::vector<double>{0, nan, 2}}, cost), "ready[1]");
  refused(plan_segments({bytes, std::vector<double>{0, 1, -2}}, cost), "ready[2]");
  refused(plan_segments({bytes, ready, 0}, cost), "max_segments");
  refused(plan_segments({bytes, ready, 1, -0.1}, cost), "slack");
  refused(plan_segments({bytes, ready}, AffineCost{-1, 1}), "start -1");
  refused(plan_segments({bytes, ready}, AffineCost{1, nan}), "per_byte nan");
  refused(plan_segments({bytes, ready}, AffineCost{1, 1e308}), "range");
  refused(plan_segments({bytes, ready, 8, 0, {0, 1}}, cost), "contention");
  refused(plan_segments({bytes, ready, 8, 0, {1, 1.5}}, cost), "contention");
  refused(predict({bytes, ready}, Segments{1}, cost), "must be 2");
  refused(TableCost::create({}), "no points");
  refused(TableCost::create({{0, 1}}), "point 0");
  refused(TableCost::create({{8, 1}, {8, 2}}), "point 1");
  refused(TableCost::create({{8, 1}, {9, 0.5}}), "point 1");
  refused(TableCost::create({{8, nan}}), "point 0");
}

TEST(TableCost, DrawsLinesBetweenItsPoints) {
  const TableCost cost = TableCost::create({{10, 1.0}, {20, 2.0}, {40, 2.0}, {50, 4.0}}).value();
  EXPECT_DOUBLE_EQ(cost(0), 1);
  EXPECT_DOUBLE_EQ(cost(10), 1);
  EXPECT_DOUBLE_EQ(cost(15), 1.5);
  EXPECT_DOUBLE_EQ(cost(30), 2);
  EXPECT_DOUBLE_EQ(cost(45), 3);
  EXPECT_DOUBLE_EQ(cost(60), 6);
  EXPECT_DOUBLE_EQ(TableCost::create({{10, 1.0}}).value()(30), 3);
}

}  // namespace
}  // namespace hccl::split
