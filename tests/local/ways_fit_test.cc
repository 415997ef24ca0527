// From times to thresholds: against brute force over all thresholds, and on machines whose best
// ways are known.
#include "hccl/exec/host/ways_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "hccl/exec/host/host_path.h"

namespace hccl::exec::host {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kSizes[] = {256,        1 * kKiB,    4 * kKiB,    16 * kKiB,   64 * kKiB,
                                    256 * kKiB, 1024 * kKiB, 4096 * kKiB, 16384 * kKiB};

bool can_be(Way way, bool reachable, std::uint64_t bytes) {
  if (way == Way::kRing) return bytes <= Ways::kMostInRing;
  if (way == Way::kChain || way == Way::kCma) return !reachable;
  return way == Way::kStage || reachable;
}

template <class Time>
std::vector<WaySample> samples_of(Time&& time, std::size_t chunk) {
  std::vector<WaySample> samples;
  for (const bool reachable : {false, true}) {
    for (const std::uint64_t bytes : kSizes) {
      for (const Way way :
           {Way::kRing, Way::kStage, Way::kChain, Way::kCma, Way::kPull, Way::kPush}) {
        if (!can_be(way, reachable, bytes)) continue;
        samples.push_back({way, reachable, bytes, way == Way::kStage ? chunk : 0,
                           static_cast<std::uint64_t>(time(way, reachable, bytes))});
      }
    }
  }
  return samples;
}

// The sum of the logarithms of what the ways cost beyond the best; infinite for a way that cannot
// be.
double regret(const Ways& ways, const std::vector<WaySample>& samples) {
  std::map<std::pair<bool, std::uint64_t>, std::pair<double, double>> cases;  // taken, best
  for (const WaySample& each : samples) {
    auto& [taken, best] =
        cases.emplace(std::pair(each.reachable, each.bytes), std::pair(INFINITY, INFINITY))
            .first->second;
    const double ns = static_cast<double>(each.ns);
    best = std::min(best, ns);
    if (way_of(ways, each.reachable, each.bytes) != each.way) continue;
    // A ring that waits for the ranks to meet takes longer than the one that was measured.
    taken = each.way == Way::kRing && each.bytes > ways.ring_most ? ns * std::exp(0.15) : ns;
  }
  double sum = 0;
  for (const auto& [at, times] : cases) sum += std::log(times.first / times.second);
  return sum;
}

std::vector<WaySample> only(bool reachable, std::vector<WaySample> samples) {
  std::erase_if(samples, [&](const WaySample& each) { return each.reachable != reachable; });
  return samples;
}

TEST(WaysFit, IsAsGoodAsBruteForceButForTheHysteresis) {
  std::mt19937 random(3);
  for (int round = 0; round < 12; ++round) {
    const Ways defaults = Ways::for_host(2 + round % 4, round % 3 == 0);
    const auto samples = samples_of(
        [&](Way, bool, std::uint64_t bytes) {
          return static_cast<double>(bytes) +
                 1000.0 * (1 + random() % 1000) * std::sqrt(static_cast<double>(bytes) / 256);
        },
        defaults.chunk);
    const Ways fitted = fit(defaults, samples);
    ASSERT_TRUE(fitted.check().ok()) << fitted.check().message();
    double best = INFINITY;
    Ways ways = defaults;
    const auto private_samples = only(false, samples);
    const auto reachable_samples = only(true, samples);
    std::vector<std::size_t> limits = {0};
    for (const std::uint64_t size : kSizes) limits.push_back(size);
    const auto up_to = [&](std::size_t most) {
      std::vector<std::size_t> some;
      for (const std::size_t limit : limits) {
        if (limit <= most) some.push_back(limit);
      }
      return some;
    };
    for (const std::size_t ring : up_to(Ways::kMostInRing)) {
      for (const std::size_t whole : up_to(Ways::kMostInRing)) {
        ways.ring_most = ring;
        ways.whole_most = whole;
        double best_private = INFINITY;
        for (const std::size_t limit : limits) {
          ways.chain_from = limit == 0 ? 0 : limit + 1;
          for (const std::size_t from : limits) {
            for (const std::size_t most : limits) {
              if (from > most) continue;
              ways.cma_folds_from = from == 0 ? 0 : from + 1;
              ways.cma_folds_most = most;
              best_private = std::min(best_private, regret(ways, private_samples));
            }
          }
        }
        double best_reachable = INFINITY;
        for (const std::size_t stage : limits) {
          for (const std::size_t pull : limits) {
            ways.stage_most = stage;
            ways.pull_most = pull;
            best_reachable = std::min(best_reachable, regret(ways, reachable_samples));
          }
        }
        best = std::min(best, best_private + best_reachable);
      }
    }
    // Seven numbers, a tenth each.
    EXPECT_LE(regret(fitted, samples), best + 0.7 + 1e-9) << "round " << round;
    EXPECT_LE(regret(fitted, samples), regret(defaults, samples) + 1e-9) << "round " << round;
  }
}

TEST(WaysFit, KnownMachinesGetTheirKnownWays) {
  const Ways defaults = Ways::for_host(2, false);
  // Pull is best from 4 KiB to 1 MiB, push beyond; private memory is staged beyond 16 KiB.
  const auto samples = samples_of(
      [](Way way, bool reachable, std::uint64_t bytes) {
        const Way best = bytes <= kKiB          ? Way::kRing
                         : !reachable           ? (bytes <= 16 * kKiB ? Way::kRing : Way::kStage)
                         : bytes <= 1024 * kKiB ? Way::kPull
                                                : Way::kPush;
        return static_cast<double>(bytes) * (way == best ? 10 : 30);
      },
      defaults.chunk);
  const Ways ways = fit(defaults, samples);
  EXPECT_EQ(way_of(ways, true, kMostInLine), Way::kPost);
  EXPECT_EQ(way_of(ways, true, 512), Way::kRing);
  EXPECT_EQ(way_of(ways, true, 100 * kKiB), Way::kPull);
  EXPECT_EQ(way_of(ways, true, 600 * kKiB), Way::kPull);
  EXPECT_EQ(way_of(ways, true, 3000 * kKiB), Way::kPush);
  EXPECT_EQ(way_of(ways, true, std::uint64_t{1} << 32), Way::kPush);
  EXPECT_EQ(way_of(ways, false, 12 * kKiB), Way::kRing);
  EXPECT_EQ(way_of(ways, false, 64 * kKiB), Way::kStage);
}

TEST(WaysFit, RanksTakeTurnsWhereThatIsQuicker) {
  for (const std::uint64_t from : {256 * kKiB, 4096 * kKiB}) {
    Ways defaults = Ways::for_host(4, false);
    defaults.cma_folds_from = 0;
    ASSERT_EQ(way_of(defaults, false, 16384 * kKiB), Way::kStage);
    const auto samples = samples_of(
        [&](Way way, bool, std::uint64_t bytes) {
          const double ns = way != Way::kChain ? 20 : bytes >= from ? 10 : 40;
          return static_cast<double>(bytes) * ns;
        },
        defaults.chunk);
    const Ways ways = fit(defaults, samples);
    for (const std::uint64_t bytes : kSizes) {
      EXPECT_EQ(way_of(ways, false, bytes) == Way::kChain, bytes >= from) << bytes;
    }
  }
  // And not where they no longer are.
  const Ways defaults = Ways::for_host(4, true);
  ASSERT_EQ(way_of(defaults, false, 16384 * kKiB), Way::kChain);
  const auto samples = samples_of(
      [&](Way way, bool, std::uint64_t bytes) {
        return static_cast<double>(bytes) * (way == Way::kChain ? 30 : 20);
      },
      defaults.chunk);
  EXPECT_NE(way_of(fit(defaults, samples), false, 16384 * kKiB), Way::kChain);
}

TEST(WaysFit, TheKernelCopiesWhereThatIsQuicker) {
  for (const bool shared : {false, true}) {
    const Ways defaults = Ways::for_host(2, shared);
    const auto samples = samples_of(
        [&](Way way, bool, std::uint64_t bytes) {
          const bool quicker = bytes >= 256 * kKiB && bytes <= 1024 * kKiB;
          return static_cast<double>(bytes) * (way == Way::kCma ? (quicker ? 10 : 40) : 20);
        },
        defaults.chunk);
    const Ways ways = fit(defaults, samples);
    for (const std::uint64_t bytes : kSizes) {
      const bool quicker = bytes >= 256 * kKiB && bytes <= 1024 * kKiB;
      EXPECT_EQ(way_of(ways, false, bytes) == Way::kCma, quicker) << bytes;
    }
    // And not where they may not.
    std::vector<WaySample> others = samples;
    std::erase_if(others, [](const WaySample& each) { return each.way == Way::kCma; });
    for (const std::uint64_t bytes : kSizes) {
      EXPECT_NE(way_of(fit(defaults, others), false, bytes), Way::kCma) << bytes;
    }
  }
}

TEST(WaysFit, WhatIsAsGoodStaysAsItWas) {
  for (const int ranks : {2, 4, 8}) {
    for (const bool shared : {false, true}) {
      Ways defaults = Ways::for_host(ranks, shared);
      // A ring that begins at once is always better than one that waits for the ranks to meet.
      defaults.whole_most = defaults.ring_most;
      std::mt19937 random(5);
      const auto noise = samples_of(
          [&](Way, bool, std::uint64_t bytes) {
            return static_cast<double>(bytes) * 10 * (1 + 1e-3 * (random() % 10));
          },
          defaults.chunk);
      EXPECT_EQ(fit(defaults, noise), defaults);
      EXPECT_EQ(fit(defaults, {}), defaults);
    }
  }
}

TEST(WaysFit, WhereTimeRanOutNothingIsConcluded) {
  const Ways defaults = Ways::for_host(2, false);
  std::vector<WaySample> samples = samples_of(
      [](Way way, bool, std::uint64_t bytes) {
        return static_cast<double>(bytes) * (way == Way::kPush ? 10 : 30);
      },
      defaults.chunk);
  ASSERT_EQ(way_of(fit(defaults, samples), true, 16384 * kKiB), Way::kPush);
  // Of the longest input only staging was measured.
  std::erase_if(samples, [](const WaySample& each) {
    return each.bytes == 16384 * kKiB && each.way != Way::kStage;
  });
  EXPECT_EQ(way_of(fit(defaults, samples), true, 16384 * kKiB), Way::kPush);
}

TEST(WaysFit, TheQuickestChunkIsTakenIfItIsClearlyQuicker) {
  Ways defaults = Ways::for_host(2, false);
  defaults.chunk = 128 * kKiB;
  std::vector<WaySample> samples;
  for (const std::uint64_t bytes : {1024 * kKiB, 4096 * kKiB}) {
    samples.push_back({Way::kStage, false, bytes, 128 * kKiB, bytes});
    samples.push_back({Way::kStage, false, bytes, 64 * kKiB, bytes * 98 / 100});
    samples.push_back({Way::kStage, false, bytes, 512 * kKiB, bytes * 2});
  }
  EXPECT_EQ(fit(defaults, samples).chunk, defaults.chunk);
  samples[1].ns = samples[0].ns / 2;
  samples[4].ns = samples[3].ns / 2;
  EXPECT_EQ(fit(defaults, samples).chunk, 64 * kKiB);
}

TEST(Ways, WhatRingsAndLinesDoNotHoldIsRefused) {
  const Ways good = Ways::for_host(2, false);
  EXPECT_TRUE(good.check().ok()) << good.check().message();
  EXPECT_TRUE(Ways::for_host(64, true).check().ok());
  const auto refused = [&](std::size_t Ways::*member, std::size_t value) {
    Ways bad = good;
    bad.*member = value;
    return bad.check().code() == Code::kPara;
  };
  EXPECT_TRUE(refused(&Ways::ring_most, Area::kRing));
  EXPECT_TRUE(refused(&Ways::whole_most, Area::kRing));
  EXPECT_TRUE(refused(&Ways::chunk, 0));
  EXPECT_TRUE(refused(&Ways::chunk, Area::kRing));
}

}  // namespace
}  // namespace hccl::exec::host
