// The choice inside a host depends only on operation, bytes, memory, topology and costs.
#include "hccl/select/local_selector.h"

#include <gtest/gtest.h>

#include <string>

#include "hccl/select/algorithms.h"

namespace hccl::select {
namespace {

constexpr std::uint64_t kKiB = 1024;

local::Topology own_cores(int ranks, bool kernel_copies = false) {
  return {ranks, false, kernel_copies};
}
local::Topology shared_cores(int ranks) { return {ranks, true, false}; }

std::string name(const LocalSelector& selector, Op op, std::uint64_t bytes, bool reachable,
                 DataType type = DataType::kFp32) {
  return std::string(selector.choose({op, type, bytes, reachable, reachable}).algorithm->name);
}

Wanted wanted(Op op, const std::string& name) {
  Wanted names;
  names[static_cast<std::size_t>(op)] = name;
  return names;
}

TEST(LocalSelector, AlwaysFindsOneThatCanRunAndSaysWhy) {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    for (const bool shared : {false, true}) {
      const local::Topology topology{ranks, shared, true};
      const LocalSelector selector(topology);
      for (std::size_t op = 0; op < kOps; ++op) {
        for (std::uint64_t bytes = 0; bytes <= std::uint64_t{1} << 32; bytes = 2 * bytes + 1) {
          for (const bool reachable : {false, true}) {
            const local::Case c{static_cast<Op>(op), DataType::kBfp16, bytes, reachable, reachable};
            const LocalChoice any = selector.choose(c);
            if (any.algorithm != nullptr) {
              ASSERT_EQ(any.algorithm->refuse(c, topology), "");
              ASSERT_FALSE(any.reason.empty());
            }
            if (c.op == Op::kBarrier) {
              if (bytes == 0) {
                ASSERT_NE(any.algorithm, nullptr);
              }
              continue;
            }
            const LocalChoice choice = selector.choose(c, false);
            ASSERT_NE(choice.algorithm, nullptr) << to_string(c.op) << " " << bytes;
            ASSERT_FALSE(choice.algorithm->eager());
            ASSERT_EQ(choice.algorithm->refuse(c, topology), "");
            ASSERT_FALSE(choice.reason.empty());
          }
        }
      }
    }
  }
}

// Checks up to which size each algorithm was measured as the best one. Sizes within a factor of two
// of these limits are not checked.
TEST(LocalSelector, BuiltInCostsKnowTheKnownSizes) {
  for (const int ranks : {2, 4, 8, 12, 16}) {
    const LocalSelector selector(own_cores(ranks));
    for (const Op op : {Op::kAllReduce, Op::kAllGather, Op::kBroadcast}) {
      for (const bool reachable : {false, true}) {
        EXPECT_EQ(name(selector, op, 56, reachable), "inline") << ranks << to_string(op);
        EXPECT_EQ(name(selector, op, 64, reachable), "slots") << ranks << to_string(op);
      }
      EXPECT_EQ(name(selector, op, 64 << 20, true), "push") << ranks << to_string(op);
      EXPECT_NE(name(selector, op, 64 << 20, false), "push");
    }
    EXPECT_EQ(name(selector, Op::kReduceScatter, 4 << 20, true), "pull") << ranks;
    // Up to 8 ranks, slots are best for a few KiB. With 12 and more ranks, 4 KiB in slots take ten
    // times as long as slices, where each rank folds one slice for all.
    EXPECT_EQ(name(selector, Op::kAllReduce, 2 * kKiB, false),
              ranks <= 8 ? "slots" : "staged_slices")
        << ranks;
    EXPECT_EQ(name(selector, Op::kAllReduce, 1 << 20, false),
              ranks == 2 ? "staged" : "staged_slices");
    // A rank folds only its own part of a reduce-scatter, so slices gain nothing.
    EXPECT_EQ(name(selector, Op::kReduceScatter, 64 * kKiB, false), ranks == 2 ? "slots" : "staged")
        << ranks;
  }
}

TEST(LocalSelector, RanksThatShareCoresTakeTurns) {
  for (const int ranks : {4, 8, 16}) {
    const LocalSelector selector(shared_cores(ranks));
    for (const Op op : {Op::kAllReduce, Op::kReduce}) {
      EXPECT_EQ(name(selector, op, 1 << 20, false), "turns") << ranks;
      EXPECT_NE(name(selector, op, 1 << 20, false, DataType::kBfp16), "turns") << ranks;
    }
    EXPECT_EQ(name(selector, Op::kAllReduce, 256 * kKiB, false, DataType::kBfp16), "staged_slices");
    EXPECT_EQ(name(selector, Op::kAllToAll, 256 * kKiB, false), "staged") << ranks;
    EXPECT_EQ(name(selector, Op::kAllReduce, 1 << 20, true), "push") << ranks;
    EXPECT_EQ(name(selector, Op::kAllReduce, 2 * kKiB, false), "slots") << ranks;
    EXPECT_EQ(selector.tuning().chunk, 512 * kKiB);
  }
}

TEST(LocalSelector, AWishIsALawWhereItCanRun) {
  const auto choice = [](const char* wish, std::uint64_t bytes, bool reachable) {
    const LocalSelector selector(own_cores(2), wanted(Op::kAllReduce, wish));
    return selector.choose({Op::kAllReduce, DataType::kFp32, bytes, reachable, reachable});
  };
  for (const char* wish : {"slots", "staged"}) {
    for (const bool reachable : {false, true}) {
      for (const std::uint64_t bytes : {std::uint64_t{8}, 4 * kKiB, 256 * kKiB}) {
        EXPECT_EQ(choice(wish, bytes, reachable).algorithm->name, wish) << bytes;
        EXPECT_EQ(choice(wish, bytes, reachable).reason, std::string("HCCL_ALGO asks for ") + wish);
      }
    }
  }
  EXPECT_EQ(choice("push", 8, true).algorithm->name, "push");
  // These algorithms cannot run the call, and the reason names the replacement.
  for (const char* wish : {"push", "inline", "turns", "cma"}) {
    const LocalChoice other = choice(wish, 1 << 20, false);
    EXPECT_EQ(other.algorithm->name, "staged") << wish;
    EXPECT_EQ(other.reason.find(std::string("HCCL_ALGO asks for ") + wish + ", but "), 0u)
        << other.reason;
  }
}

TEST(LocalSelector, CostsDecideIfTheyGainMuch) {
  LocalCosts costs = local_preset(own_cores(2, true), false);
  const auto chosen = [&](double factor) {
    LocalCosts measured = costs;
    const double staged = measured.find("staged", CurveKind::kFold)->ns(1 << 20);
    for (Curve& curve : measured.curves) {
      if (curve.algorithm != "cma" || curve.kind != CurveKind::kFold) continue;
      const double by = factor * staged / curve.ns(1 << 20);
      for (auto& point : curve.points) {
        point.ns = static_cast<std::uint64_t>(static_cast<double>(point.ns) * by);
      }
    }
    return name(LocalSelector(own_cores(2, true), measured), Op::kAllReduce, 1 << 20, false);
  };
  EXPECT_EQ(chosen(0.75), "staged");
  EXPECT_EQ(chosen(0.65), "cma");
  EXPECT_EQ(chosen(1.5), "staged");
}

TEST(LocalSelector, ChoosesByTheMemoryAtHand) {
  LocalCosts costs = local_preset(own_cores(2), false);
  for (Curve& curve : costs.curves) {
    if (curve.algorithm != "push") continue;
    for (auto& point : curve.points) point.ns = 1 + point.bytes / 1000;
  }
  const LocalSelector selector(own_cores(2), costs);
  EXPECT_EQ(name(selector, Op::kAllReduce, 4096, true), "push");
  EXPECT_EQ(name(selector, Op::kAllReduce, 4096, false), "slots");
  EXPECT_EQ(selector.choose({Op::kAllReduce, DataType::kFp32, 4096, false, false}, false).algorithm,
            local::find(Op::kAllReduce, "staged"));
}

TEST(Algorithms, UnknownNamesAreRefusedWithTheList) {
  const auto status = [](const std::string& algo) {
    Config config;
    const Status grammar = config.set_algo(algo);
    EXPECT_TRUE(grammar.ok()) << grammar.message();
    return check_names(config);
  };
  for (const std::string_view each : local_names()) {
    EXPECT_TRUE(status("level0:" + std::string(each)).ok()) << each;
  }
  for (const std::string_view each : remote_names()) {
    EXPECT_TRUE(status("level1:" + std::string(each) + ";level2:" + std::string(each)).ok());
  }
  for (const char* algo : {"level0:rings", "level1:push", "level0:recursive_doubling",
                           "allreduce=level0:NA;level1:rings"}) {
    EXPECT_EQ(status(algo).code(), Code::kPara) << algo;
  }
  const std::string text = status("level0:rings").message();
  EXPECT_NE(text.find("\"rings\" of level0"), std::string::npos) << text;
  EXPECT_NE(text.find("staged_slices"), std::string::npos) << text;
  Config config;
  ASSERT_TRUE(config.set_algo("allreduce=level0:push/allgather=level0:ring;level1:bruck").ok());
  EXPECT_EQ(wanted_locally(config)[static_cast<std::size_t>(Op::kAllReduce)], "push");
  EXPECT_EQ(wanted_locally(config)[static_cast<std::size_t>(Op::kAllGather)], "");
}

}  // namespace
}  // namespace hccl::select
