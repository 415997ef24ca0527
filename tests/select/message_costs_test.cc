// Selection by measured costs: the predicted times are plausible. The choice is the best that brute
// force finds, or so close that the rules' choice stays.
#include "hccl/select/message_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "hccl/select/remote_selector.h"

namespace hccl::select {
namespace {

using schedule::Algorithm;
using schedule::algorithms;
using schedule::Choice;
using schedule::find;

constexpr Op kDataOps[] = {Op::kAllReduce, Op::kBroadcast, Op::kReduceScatter, Op::kAllGather,
                           Op::kReduce,    Op::kScatter,   Op::kAllToAll};

MessageCosts::Step step(std::uint64_t bytes, double latency_us, double ns_per_byte,
                        double more_us) {
  const double pace = ns_per_byte * static_cast<double>(bytes);
  return {bytes, static_cast<std::uint64_t>(latency_us * 1e3 + pace),
          static_cast<std::uint64_t>(more_us * 1e3 + pace)};
}

// Costs that grow linearly: latency, time for a byte, and the cost of each further message of a
// step.
MessageCosts network(double latency_us, double ns_per_byte, double more_us) {
  MessageCosts costs;
  costs.steps = {step(64, latency_us, ns_per_byte, more_us),
                 step(4 << 20, latency_us, ns_per_byte, more_us)};
  costs.fold_ns_per_mib = 50'000;
  return costs;
}

MessageCosts any_network(std::mt19937& random) {
  const auto between = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution<>(std::log(low), std::log(high))(random));
  };
  MessageCosts costs;
  MessageCosts::Step last{0, 1, 0};
  for (std::uint64_t bytes = 64; bytes <= 4 << 20; bytes *= 8) {
    last.bytes = bytes;
    last.step_ns += static_cast<std::uint64_t>(between(1e2, 1e6));
    last.more_ns += static_cast<std::uint64_t>(between(1e1, 1e6));
    costs.steps.push_back(last);
  }
  costs.fold_ns_per_mib = static_cast<std::uint64_t>(between(1e3, 1e6));
  return costs;
}

// With one rank on each host, no costs make the selector choose an algorithm that rounds a sum of
// 16-bit floats more often.
TEST(MessageCosts, CannotBuyARounding) {
  std::mt19937 random(11);  // NOLINT(cert-msc51-cpp): the same numbers every time
  for (int round = 0; round < 20; ++round) {
    const MessageCosts costs = any_network(random);
    for (const Op op : {Op::kAllReduce, Op::kReduceScatter, Op::kReduce}) {
      for (int size = 3; size <= 32; ++size) {
        for (std::size_t bytes = 2; bytes <= std::size_t{1} << 32; bytes *= 4) {
          const auto choice = choose_remote(op, size, bytes, "", size, &costs, false, true);
          const std::string_view name = choice.algorithm->name;
          ASSERT_TRUE(name == "direct" || name == "one_shot" || name == "pairwise")
              << name << ": " << size << " ranks, " << bytes << " bytes";
        }
      }
    }
  }
}

TEST(MessageCosts, AStepTakesWhatWasMeasured) {
  const MessageCosts costs = network(10, 1, 2);
  const Algorithm& ring = *find(Op::kAllGather, "ring");
  const Algorithm& direct = *find(Op::kAllGather, "direct");
  // Four ranks, blocks of 1000 bytes: three steps of one message, or one step of three messages.
  EXPECT_NEAR(predict_ns(ring, 4, 4000, 1, costs), 3 * (10'000 + 1000), 5);
  EXPECT_NEAR(predict_ns(direct, 4, 4000, 1, costs), 10'000 + 1000 + 2 * (2'000 + 1000), 5);
  // Each of two ranks folds half of a MiB for itself.
  const Algorithm& scatter = *find(Op::kReduceScatter, "direct");
  EXPECT_NEAR(predict_ns(scatter, 2, 1 << 20, 1, costs), 10'000 + (1 << 19) + 25'000, 50);
  // Beyond the measured sizes the time grows at the same rate.
  EXPECT_NEAR(predict_ns(direct, 2, 1 << 30, 1, costs) / (10'000.0 + (1 << 29)), 1, 1e-3);
}

TEST(MessageCosts, LongerVectorsNeverTakeLess) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    const MessageCosts costs = any_network(random);
    ASSERT_TRUE(costs.check().ok()) << costs.check().message();
    for (const Algorithm& algorithm : algorithms()) {
      for (const int size : {1, 2, 3, 8, 13, 64}) {
        if (!algorithm.refuse(size).empty()) continue;
        double last = 0;
        for (double bytes = 1; bytes < 1e12; bytes *= 1.3) {
          const double ns =
              predict_ns(algorithm, size, static_cast<std::uint64_t>(bytes), 4, costs);
          ASSERT_TRUE(std::isfinite(ns));
          ASSERT_GE(ns, last * (1 - 1e-12))
              << to_string(algorithm.op) << " " << algorithm.name << " " << size << " " << bytes;
          last = ns;
        }
      }
    }
  }
}

TEST(SelectByCosts, IsWithinATenthOfTheBestOfAll) {
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    const MessageCosts costs = any_network(random);
    for (const Op op : kDataOps) {
      for (const int size : {2, 3, 4, 7, 8, 16, 48}) {
        for (std::size_t bytes = 16; bytes <= std::size_t{1} << 30; bytes *= 32) {
          const Choice choice = choose_remote(op, size, bytes, "", 1, &costs);
          ASSERT_EQ(choice.algorithm->refuse(size), "");
          const double taken = predict_ns(*choice.algorithm, size, bytes, choice.depth, costs);
          // Tries every algorithm and depth. No algorithm has both depth and lanes.
          double best = taken;
          for (const Algorithm& other : algorithms()) {
            if (other.op != op || !other.refuse(size).empty() || other.name == "two_level")
              continue;
            if (other.name == "one_shot" && bytes * static_cast<std::size_t>(size) > 1 << 20) {
              continue;
            }
            const bool pipelined = other.name == "chain" || other.name == "double_tree";
            for (int depth = 1; depth <= (pipelined ? 64 : 1); depth *= 2) {
              best = std::min(best, predict_ns(other, size, bytes, depth, costs));
            }
          }
          // Hysteresis: a tenth for the algorithm, a twentieth for its pieces.
          ASSERT_LE(taken, best / 0.9 / 0.95 * (1 + 1e-9))
              << to_string(op) << " of " << bytes << " on " << size << ": " << choice.reason;
          const Choice again = choose_remote(op, size, bytes, "", 1, &costs);
          ASSERT_EQ(again.algorithm, choice.algorithm);
          ASSERT_EQ(again.reason, choice.reason);
        }
      }
    }
  }
}

TEST(SelectByCosts, KnownNetworksGetTheirKnownBest) {
  const auto name = [](Op op, int size, std::size_t bytes, const MessageCosts& costs) {
    return std::string(choose_remote(op, size, bytes, "", 1, &costs).algorithm->name);
  };
  // Distant hosts whose sockets work in parallel: few steps are best. Further messages cost nearly
  // nothing, so each rank may send to all, even with sixteen ranks, for which the rules choose a
  // ring.
  const MessageCosts far = network(500, 0.1, 1);
  EXPECT_EQ(name(Op::kAllReduce, 4, 8, far), "one_shot");
  EXPECT_EQ(name(Op::kAllReduce, 16, 1 << 20, far), "direct");
  EXPECT_EQ(choose_remote(Op::kAllReduce, 16, 1 << 20, "").algorithm->name, "ring");
  // Messages take as long at once as one after another. So few messages are best, and an algorithm
  // in which each rank sends to all loses.
  const MessageCosts busy = network(10, 0.001, 10);
  EXPECT_EQ(name(Op::kAllReduce, 8, 1024, busy), "recursive_doubling");
  EXPECT_EQ(name(Op::kAllGather, 6, 1024, busy), "bruck");
  EXPECT_EQ(choose_remote(Op::kAllReduce, 8, 1 << 14, "", 8).algorithm->name, "direct");
}

TEST(SelectByCosts, PiecesOfAChainFollowTheLatency) {
  const auto depth = [](double latency_us) {
    const MessageCosts costs = network(latency_us, 1, latency_us);
    return choose_remote(Op::kBroadcast, 12, 1 << 20, "pipeline", 1, &costs).depth;
  };
  EXPECT_EQ(depth(1), 64);
  EXPECT_GT(depth(1), depth(1000));
  EXPECT_GT(depth(1000), depth(100'000));
}

TEST(SelectByCosts, AWishIsALaw) {
  const MessageCosts costs = network(500, 0.1, 1);
  const Choice choice = choose_remote(Op::kAllReduce, 4, 64, "ring", 1, &costs);
  EXPECT_EQ(choice.algorithm->name, "ring");
  EXPECT_EQ(choice.reason.find("HCCL_ALGO asks for ring"), 0u) << choice.reason;
}

TEST(SelectByCosts, NoiseDoesNotLeaveTheRules) {
  // By the formulas, ring and direct are equally good for a long vector if latency hardly matters.
  for (int percent = -9; percent <= 9; ++percent) {
    MessageCosts costs = network(1, 1, 1);
    costs.steps.back().more_ns =
        costs.steps.back().step_ns * static_cast<std::uint64_t>(100 + percent) / 100;
    EXPECT_EQ(choose_remote(Op::kAllReduce, 6, 1 << 26, "", 6, &costs).algorithm->name, "direct")
        << percent;
  }
}

TEST(SelectByCosts, SaysWhatWasPredictedAndWhatComesNext) {
  const MessageCosts costs = network(10, 1, 10);
  const Choice choice = choose_remote(Op::kAllGather, 4, 4000, "", 1, &costs);
  EXPECT_EQ(choice.algorithm->name, "halving_doubling");
  EXPECT_EQ(choice.reason, "predicted 23 us, direct 33 us");
  const MessageCosts quick = network(10, 1, 1);
  EXPECT_EQ(choose_remote(Op::kAllGather, 4, 4000, "", 1, &quick).reason,
            "predicted 15 us, next best halving_doubling 23 us");
}

TEST(SelectByCosts, HostsOfSeveralRanksKeepTwoLevels) {
  const MessageCosts costs = network(10, 1, 10);
  EXPECT_EQ(choose_remote(Op::kAllReduce, 4, 1 << 20, "", 2, &costs).algorithm->name, "two_level");
  EXPECT_EQ(choose_remote(Op::kAllReduce, 4, 1 << 20, "ring", 2, &costs).algorithm->name, "ring");
}

TEST(MessageCosts, WhatCannotBeIsRefused) {
  const MessageCosts good = network(10, 1, 2);
  EXPECT_TRUE(good.check().ok());
  const auto refused = [&](auto change) {
    MessageCosts bad = good;
    change(bad);
    return bad.check().code() == Code::kPara;
  };
  EXPECT_TRUE(refused([](MessageCosts& c) { c.steps.clear(); }));
  EXPECT_TRUE(refused([](MessageCosts& c) { c.steps.resize(100, c.steps[0]); }));
  EXPECT_TRUE(refused([](MessageCosts& c) { c.steps[0].step_ns = 0; }));
  EXPECT_TRUE(refused([](MessageCosts& c) { c.steps[1].step_ns = ~std::uint64_t{0}; }));
  EXPECT_TRUE(refused([](MessageCosts& c) { c.steps[1].bytes = 64; }));
  EXPECT_TRUE(refused([](MessageCosts& c) { c.steps[1].more_ns = 1; }));
  EXPECT_TRUE(refused([](MessageCosts& c) { c.fold_ns_per_mib = ~std::uint64_t{0}; }));
}

}  // namespace
}  // namespace hccl::select
