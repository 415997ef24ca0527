// The automatic plan in simulated trainings, whose costs and ready times are known. From
// measurements the tuner finds the best segments, and does not change them while nothing else
// changes.
#include "split/engine/tuner.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

namespace hccl::split {
namespace {

// Ten layers of 10 MB, one of which is ready every 10 ms.
const std::vector<std::uint64_t> kBytes(10, 10000000);
const Segments kFirst = {8, 9};

struct World {
  AffineCost cost{100e-6, 0.5e-9};
  Contention contention{1, 1};
  double layer = 10e-3;
  double noise = 0;
  double delay = 0;  // delays each segment beside compute
  Segments late{};   // this plan ends later than any model says
  Segments quick{};  // ends at quick_end, the first time at quick_first
  double quick_first = 0, quick_end = 0;

  std::vector<double> ready() const {
    std::vector<double> times;
    for (std::size_t i = 0; i < kBytes.size(); ++i)
      times.push_back(layer * static_cast<double>(i + 1));
    return times;
  }
  Problem problem(const std::vector<double>& ready) const {
    return {kBytes, ready, 8, 0.005, contention};
  }
  AffineCost beside() const { return {cost.start + delay, cost.per_byte}; }
  double end(const Segments& segments) const {
    const auto times = ready();
    return predict(problem(times), segments, beside())->end;
  }
};

Window::Medians overlapped(const World& world, const Segments& segments, double factor) {
  const auto ready = world.ready();
  const Prediction told = predict(world.problem(ready), segments, world.beside()).value();
  Window::Medians kind;
  for (const double each : told.ready) kind.ready.push_back(each * factor);
  kind.compute_end = told.compute_end * factor;
  kind.end = told.end * factor * (segments == world.late ? 1.05 : 1);
  for (const auto& each : told.segments) {
    kind.start.push_back(each.start * factor);
    kind.seconds.push_back((each.end - each.start) * factor);
  }
  return kind;
}

Window::Medians alone(const World& world, const Segments& segments, double factor) {
  Window::Medians kind;
  for (const double each : world.ready()) kind.ready.push_back(each * factor);
  kind.compute_end = kind.end = kind.ready.back();
  std::uint32_t first = 0;
  for (const std::uint32_t last : segments) {
    std::uint64_t bytes = 0;
    for (; first <= last; ++first) bytes += kBytes[first];
    kind.start.push_back(kind.end);
    kind.seconds.push_back(world.cost(bytes) * factor);
    kind.end += kind.seconds.back();
  }
  return kind;
}

CostModel probe(const AffineCost& cost) {
  std::vector<CostSample> samples;
  for (const std::uint64_t n : {4096u, 65536u, 1u << 20, 16u << 20})
    samples.push_back({n, cost(n)});
  return CostModel::create(samples).value();
}

class Training {
 public:
  explicit Training(const World& world, bool can_overlap = true, bool measure_only = false)
      : world(world),
        can_overlap_(can_overlap),
        tuner_(kBytes, kFirst, probe(world.cost), can_overlap, measure_only) {
    state_.last_indices = kFirst;
    state_.alternate = true;
    state_.overlap = can_overlap;
    state_.next_window = Window::kIterations;
  }

  Decision window() {
    Window window;
    window.last_iteration = state_.next_window;
    std::normal_distribution<double> noise(1, world.noise);
    const double factor = world.noise > 0 ? noise(random_) : 1;
    const bool beside = can_overlap_ && state_.overlap;
    if (beside) window.overlapped = overlapped(world, state_.last_indices, factor);
    if (beside && state_.last_indices == world.quick)
      window.overlapped.end = quick_seen_++ == 0 ? world.quick_first : world.quick_end;
    if (!beside || state_.alternate) window.alone = alone(world, state_.last_indices, factor);
    if (beside) window.overlapped.compute_end += std::exchange(disturbed_, 0);
    state_ = tuner_.observe(window);
    changes_ += state_.changed;
    return state_;
  }
  /// Makes compute longer beside the segments of the next window.
  void disturb(double seconds) { disturbed_ = seconds; }
  const Decision& state() const { return state_; }
  int changes() const { return changes_; }
  const Tuner& tuner() const { return tuner_; }

  World world;

 private:
  bool can_overlap_;
  Tuner tuner_;
  Decision state_;
  int changes_ = 0;
  int quick_seen_ = 0;
  double disturbed_ = 0;
  std::mt19937 random_{1};
};

void expect_best(const Training& training) {
  const auto ready = training.world.ready();
  const Plan best = plan_segments(training.world.problem(ready), training.world.cost).value();
  EXPECT_LT(training.world.end(training.state().last_indices), 1.012 * best.best_end)
      << segments_text(training.state().last_indices) << " but the best are "
      << segments_text(best.last_indices);
}

TEST(Tuner, SwitchesToTheBestPlanAfterOneWindowAndStays) {
  Training training{World{}};
  const Decision first = training.window();
  EXPECT_TRUE(first.changed);
  EXPECT_EQ(first.version, 1u);
  EXPECT_NEAR(first.predicted_end, training.world.end(first.last_indices), 1e-6);
  EXPECT_LE(first.lower_bound, first.predicted_end);
  EXPECT_NE(first.why.find("instead of"), std::string::npos) << first.why;
  expect_best(training);
  for (int i = 0; i < 40; ++i) EXPECT_FALSE(training.window().changed);
  EXPECT_GE(training.state().next_window, 300u) << "what is calm is looked at less often";
}

TEST(Tuner, MeasuresContentionAndPlansWithIt) {
  World world;
  world.contention = {0.8, 0.6};
  Training training{world};
  for (int i = 0; i < 4; ++i) training.window();
  ASSERT_TRUE(training.tuner().model().contention().has_value());
  EXPECT_NEAR(training.tuner().model().contention()->compute, 0.8, 0.05);
  EXPECT_NEAR(training.tuner().model().contention()->communication, 0.6, 0.05);
  expect_best(training);
}

TEST(Tuner, SaysSoWhereOverlapDoesNotPayAndTakesOneSegment) {
  World world;
  world.contention = {0.4, 0.5};
  Training training{world};
  std::string why;
  for (int i = 0; i < 6; ++i) why += training.window().why;
  EXPECT_EQ(training.state().last_indices, (Segments{9}));
  EXPECT_FALSE(training.state().overlap);
  EXPECT_NE(why.find("overlap does not pay"), std::string::npos) << why;
  const int changes = training.changes();
  while (training.state().next_window < Tuner::kProbeAfter) training.window();
  EXPECT_EQ(training.changes(), changes);
}

// The contention of the model may be wrong, so the plan without contention is also measured once.
TEST(Tuner, TheFastestOfItsRivalsStays) {
  World world;
  world.contention = {0.6, 0.9};
  Segments best;
  for (const bool late : {false, true}) {
    if (late) world.late = best;
    Training training{world};
    std::vector<Segments> seen;
    for (int i = 0; i < 30; ++i) {
      training.window();
      if (training.state().changed) seen.push_back(training.state().last_indices);
    }
    const Segments last = training.state().last_indices;
    EXPECT_TRUE(training.state().overlap);
    if (!late) {
      best = last;
      expect_best(training);
      EXPECT_GT(seen.size(), 2u) << "rivals, and back";
      // Rivals: the best plan without contention, the same with at most kDocumentedSegments
      // segments, a plan with at most half as many segments as the best plan, and one segment.
      EXPECT_TRUE(std::any_of(seen.begin(), seen.end(),
                              [&](const Segments& each) { return each.size() < best.size(); }));
    } else {
      EXPECT_NE(last, best);
    }
    EXPECT_LE(seen.size(), 8u);
  }
}

// One unlucky window does not decide between nearly equal plans: both are measured in further
// windows.
TEST(Tuner, ThoseThatAreNearlyAlikeGetASecondLookAndAThird) {
  World world;
  world.contention = {0.6, 0.9};
  const auto in_force = [&] {
    Training training{world};
    std::vector<Segments> plans;
    for (int i = 0; i < 30; ++i) {
      training.window();
      if (training.state().changed) plans.push_back(training.state().last_indices);
    }
    return plans;
  };
  const auto plans = in_force();
  const Segments best = plans.back();
  const auto rival = std::find_if(plans.rbegin(), plans.rend(),
                                  [&](const Segments& each) { return each != best; });
  ASSERT_NE(rival, plans.rend());
  world.quick = *rival;
  world.quick_end = 0.975 * world.end(best);
  for (const double first : {1.01, 1.025}) {
    world.quick_first = first * world.end(best);
    EXPECT_EQ(in_force().back(), *rival) << first;
  }
}

TEST(Tuner, WhereNothingOverlapsItLooksAgainNowAndThen) {
  World world;
  world.contention = {0.4, 0.5};
  Training training{world};
  for (int i = 0; i < 6; ++i) training.window();
  ASSERT_FALSE(training.state().overlap);
  std::uint64_t overlapped = 0, begin = 0;
  for (std::uint64_t last = 0; last < 20000; last = training.state().next_window) {
    if (training.state().overlap) overlapped += training.state().next_window - begin;
    begin = training.state().next_window;
    training.window();
  }
  EXPECT_GT(overlapped, 10u) << "one look may have been a bad one";
  EXPECT_LT(overlapped, 200u) << "it is slower: 1 % of the iterations at most";
  EXPECT_EQ(training.state().last_indices, (Segments{9}));

  training.world.contention = {1, 1};  // cores become free
  for (int i = 0; i < 100; ++i) training.window();
  EXPECT_TRUE(training.state().overlap);
  expect_best(training);
}

// In one window compute seems to lose much, because other processes had the cores. The plan that
// ignores the loss is measured, too, and stays.
TEST(Tuner, OneWindowThatWasDisturbedDoesNotDecide) {
  World world;
  Training training{world};
  training.disturb(30e-3);
  training.window();
  EXPECT_LT(training.tuner().model().contention()->compute, 0.6);
  for (int i = 0; i < 30; ++i) training.window();
  EXPECT_TRUE(training.state().overlap);
  expect_best(training);
}

TEST(Tuner, TakesAsManySegmentsAsPay) {
  // Bytes come evenly, and the line is just fast enough: each further cut saves a part of the tail.
  const std::vector<std::uint64_t> bytes(400, 1000000);
  const CostModel model = probe({1e-6, 1e-9});
  Tuner tuner(bytes, {399}, model, true, false);
  Window window;
  window.last_iteration = 10;
  for (int i = 0; i < 400; ++i) window.alone.ready.push_back(1e-3 * (i + 1));
  window.alone.compute_end = 0.4;
  window.alone.start = {0.4};
  window.alone.seconds = {0.4};
  window.alone.end = 0.8;
  const Decision decision = tuner.observe(window);
  EXPECT_GT(decision.last_indices.size(), kDocumentedSegments);
  EXPECT_LE(decision.last_indices.size(), kMostSegments);
  const auto best = plan_segments({bytes, window.alone.ready, kMostSegments}, model.affine());
  EXPECT_LT(decision.predicted_end, 1.006 * best->best_end);
}

// Beside compute each segment takes longer, whatever its size, because its thread waits for a core.
// No model includes that delay. A plan with fewer segments is also measured, and stays.
TEST(Tuner, ADelayOfEachSegmentIsCounted) {
  World world;
  for (const double delay : {5e-3, 10e-3, 20e-3}) {
    Training plain{world};
    world.delay = delay;
    Training delayed{world};
    for (int i = 0; i < 30; ++i) {
      plain.window();
      delayed.window();
    }
    const auto ready = world.ready();
    const Plan best = plan_segments(world.problem(ready), world.beside()).value();
    EXPECT_LT(world.end(delayed.state().last_indices), 1.04 * best.best_end) << delay;
  }
}

TEST(Tuner, OneSegmentWhereNothingRunsBesideBackward) {
  Training training{World{}, false};
  const Decision first = training.window();
  EXPECT_EQ(first.last_indices, (Segments{9}));
  EXPECT_NE(first.why.find("hcom_parallel is off"), std::string::npos) << first.why;
}

TEST(Tuner, PlansAgainOnlyAfterTwoWindowsInARow) {
  Training training{World{}};
  for (int i = 0; i < 3; ++i) training.window();
  const Segments before = training.state().last_indices;
  training.world.cost = {5e-3, 3e-9};  // another job takes most of the link
  int windows = 0;
  while (!training.window().changed) ASSERT_LT(++windows, 30);
  EXPECT_GE(windows, 2);
  EXPECT_NE(training.state().last_indices, before);
  // Earlier measurements are discarded, so some plans may be tried needlessly.
  for (int i = 0; i < 60; ++i) training.window();
  expect_best(training);
}

TEST(Tuner, NoiseChangesNothingForLong) {
  World world;
  world.noise = 0.05;
  world.contention = {0.9, 0.8};
  Training training{world};
  for (int i = 0; i < 300; ++i) training.window();
  EXPECT_LE(training.changes(), 4);
  expect_best(training);
}

TEST(Tuner, OnlyMeasuresIfItIsToldTo) {
  Training training{World{}, true, true};
  const Decision first = training.window();
  EXPECT_FALSE(first.changed);
  EXPECT_EQ(first.last_indices, kFirst);
  EXPECT_NE(first.why.find("the best plan would be"), std::string::npos);
  EXPECT_NEAR(first.predicted_end, training.world.end(kFirst), 1e-4);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(training.window().changed);
}

TEST(Tuner, ThousandsOfGradientsArePlannedQuickly) {
  const std::vector<std::uint64_t> bytes(20000, 5000);
  Tuner tuner(bytes, {19000, 19999}, probe({1e-4, 0.5e-9}), true, false);
  Window window;
  window.last_iteration = 10;
  for (auto* kind : {&window.alone, &window.overlapped}) {
    for (int i = 0; i < 20000; ++i) kind->ready.push_back(5e-6 * i);
    kind->compute_end = kind == &window.alone ? 0.1 : 0.11;
    kind->start = {0.095, 0.15};
    kind->seconds = {0.05, 0.003};
    kind->end = 0.16;
  }
  window.overlapped.start = {0.05, 0.11};
  const Decision decision = tuner.observe(window);
  EXPECT_TRUE(decision.changed);
  EXPECT_TRUE(tuner.model().contention().has_value());
  EXPECT_EQ(decision.last_indices.back(), 19999u);
  EXPECT_LT(decision.predicted_end / decision.lower_bound, 1.2);
}

}  // namespace
}  // namespace hccl::split
