// Selection: all ranks choose the same, wishes are granted, and replacements are explained.
#include "hccl/select/remote_selector.h"

#include <gtest/gtest.h>

#include <string>

namespace hccl::select {
namespace {

using schedule::Algorithm;
using schedule::Choice;
using schedule::find;

constexpr Op kPlainOps[] = {Op::kAllReduce, Op::kBroadcast, Op::kReduceScatter, Op::kAllGather,
                            Op::kReduce,    Op::kScatter,   Op::kAllToAll,      Op::kBarrier};
constexpr std::size_t kSizes[] = {0, 1, 4096, 65536, 1 << 20, 1 << 26, std::size_t{1} << 40};
constexpr std::string_view kWords[] = {
    "",    "NA",        "null",     "ring",     "H-D_R",    "NHR",    "NB",          "NHR_V1",
    "AHC", "AHC_BROKE", "pipeline", "pairwise", "fullmesh", "direct", "double_tree", "what?"};

bool mentions(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(Select, AlwaysFindsSomethingThatCanRunAndSaysWhy) {
  for (const Op op : kPlainOps) {
    for (int size = 1; size <= 130; ++size) {
      for (const std::size_t bytes : kSizes) {
        for (const std::string_view wanted : kWords) {
          const Choice choice = choose_remote(op, size, bytes, wanted);
          ASSERT_NE(choice.algorithm, nullptr);
          ASSERT_EQ(choice.algorithm->op, op);
          ASSERT_EQ(choice.algorithm->refuse(size), "");
          ASSERT_TRUE(choice.depth >= 1 && choice.depth <= 64);
          ASSERT_TRUE(choice.lanes >= 1 && choice.lanes <= 4);
          ASSERT_FALSE(choice.reason.empty());
          // The beginning of the reason shows whether HCCL_ALGO named an algorithm.
          const bool wish = !wanted.empty() && wanted != "NA" && wanted != "null";
          ASSERT_EQ(mentions(choice.reason, "HCCL_ALGO asks for"), wish);
          const Algorithm* exact = find(op, wanted);
          if (wish && exact != nullptr && exact->refuse(size).empty()) {
            ASSERT_EQ(choice.algorithm, exact);
          }
          const Choice again = choose_remote(op, size, bytes, wanted);
          ASSERT_EQ(again.algorithm, choice.algorithm);
          ASSERT_EQ(again.depth, choice.depth);
          ASSERT_EQ(again.lanes, choice.lanes);
          ASSERT_EQ(again.reason, choice.reason);
        }
      }
    }
  }
}

TEST(Select, HostsOfSeveralRanksGetTwoLevels) {
  EXPECT_EQ(choose_remote(Op::kAllReduce, 4, 1 << 20, "", 2).algorithm->name, "two_level");
  EXPECT_EQ(choose_remote(Op::kAllReduce, 4, 1 << 20, "", 2).hosts, 2);
  EXPECT_EQ(choose_remote(Op::kAllReduce, 4, 1 << 20, "", 4).algorithm->name, "halving_doubling");
  EXPECT_EQ(choose_remote(Op::kAllReduce, 4, 64, "", 2).algorithm->name, "one_shot");
  EXPECT_EQ(choose_remote(Op::kAllReduce, 4, 1 << 20, "ring", 2).algorithm->name, "ring");
}

TEST(Select, DefaultsFollowRanksAndBytes) {
  const auto name = [](Op op, int size, std::size_t bytes) {
    return choose_remote(op, size, bytes, "").algorithm->name;
  };
  EXPECT_EQ(name(Op::kAllReduce, 2, 1 << 28), "direct");
  EXPECT_EQ(name(Op::kAllReduce, 8, 1 << 28), "halving_doubling");
  EXPECT_EQ(name(Op::kAllReduce, 6, 1 << 28), "direct");
  EXPECT_EQ(name(Op::kAllReduce, 24, 1024), "recursive_doubling");
  EXPECT_EQ(name(Op::kAllReduce, 4, 1024), "recursive_doubling");
  EXPECT_EQ(name(Op::kAllReduce, 12, 1 << 26), "ring");
  EXPECT_EQ(name(Op::kAllReduce, 64, 1 << 18), "halving_doubling");
  EXPECT_EQ(name(Op::kAllReduce, 60, 1 << 18), "bruck");
  EXPECT_EQ(name(Op::kBroadcast, 16, 1024), "binomial");
  EXPECT_EQ(name(Op::kBroadcast, 16, 1 << 26), "chain");
  EXPECT_EQ(name(Op::kReduce, 16, 1 << 26), "chain");
  EXPECT_EQ(name(Op::kAllToAll, 64, 1 << 20), "pairwise");
  EXPECT_EQ(name(Op::kBarrier, 64, 0), "dissemination");
}

// On one host all messages use the same processors; between hosts the steps cost most.
TEST(Select, RanksOfOneHostSendFewMessages) {
  const auto name = [](int size, std::size_t bytes, int hosts) {
    return choose_remote(Op::kAllReduce, size, bytes, "", hosts).algorithm->name;
  };
  EXPECT_EQ(name(2, 512 << 10, 1), "recursive_doubling");
  EXPECT_EQ(name(2, 1 << 20, 1), "direct");
  EXPECT_EQ(name(2, 1 << 20, 2), "recursive_doubling");
  EXPECT_EQ(name(2, 4 << 20, 2), "direct");
  EXPECT_EQ(name(4, 1024, 1), "recursive_doubling");
  EXPECT_EQ(name(4, 1024, 4), "one_shot");
  EXPECT_EQ(name(4, 1 << 18, 1), "halving_doubling");
  EXPECT_EQ(name(4, 4 << 20, 1), "halving_doubling");
  EXPECT_EQ(name(4, 8 << 20, 1), "direct");
  EXPECT_EQ(name(8, 1 << 20, 1), "halving_doubling");
  EXPECT_EQ(name(8, 1 << 18, 8), "direct");
  EXPECT_EQ(name(24, 1024, 24), "direct");
}

// Ranks that share cores should send very few messages: one rank of each pair sends for both.
TEST(Select, RanksThatShareCoresSpeakInPairs) {
  const auto choice = [](int size, std::size_t bytes, int hosts, std::string_view wanted = "") {
    return choose_remote(Op::kAllReduce, size, bytes, wanted, hosts, nullptr, true);
  };
  for (const std::size_t bytes : {8u, 64u << 10, 1u << 20, 64u << 20}) {
    EXPECT_EQ(choice(4, bytes, 1).algorithm->name, "paired_doubling") << bytes;
    EXPECT_EQ(choice(4, bytes, 1).slice, 1u << 20) << bytes;
  }
  EXPECT_EQ(choice(8, 64 << 10, 1).algorithm->name, "paired_doubling");
  EXPECT_EQ(choice(8, 128 << 10, 1).algorithm->name, "halving_doubling");
  EXPECT_EQ(choice(2, 8, 1).algorithm->name, "recursive_doubling");
  EXPECT_EQ(choice(6, 8, 1).algorithm->name, "recursive_doubling");
  EXPECT_EQ(choice(4, 8, 4).algorithm->name, "one_shot");
  EXPECT_EQ(choice(4, 8, 1, "ring").algorithm->name, "ring");
  EXPECT_EQ(choice(4, 8, 1, "recursive_doubling").algorithm->name, "recursive_doubling");
  EXPECT_NE(choice(4, 8, 1).reason.find("cores are shared"), std::string::npos);
}

TEST(Select, HostsDoNotSendToOneAllAtOnce) {
  const auto name = [](int size, std::size_t bytes) {
    return choose_remote(Op::kAllReduce, size, bytes, "", size).algorithm->name;
  };
  EXPECT_EQ(name(2, 16 << 20), "direct");
  EXPECT_EQ(name(4, 128 << 10), "direct");
  EXPECT_EQ(name(4, 256 << 10), "halving_doubling");
  EXPECT_EQ(name(8, 64 << 20), "halving_doubling");
  EXPECT_EQ(name(6, 64 << 20), "direct");
}

// With one rank on each host, such sums are folded at once. Ranks of one host may fold them in
// steps.
TEST(Select, SumsThatRoundAreFoldedAtOnceBetweenHosts) {
  const auto name = [](Op op, int size, std::size_t bytes, bool round_once) {
    return choose_remote(op, size, bytes, "", size, nullptr, false, round_once).algorithm->name;
  };
  for (const Op op : {Op::kAllReduce, Op::kReduceScatter}) {
    EXPECT_EQ(name(op, 12, 12 * 64 << 10, false), "ring");
    EXPECT_EQ(name(op, 12, 12 * 64 << 10, true), "pairwise");
    EXPECT_EQ(name(op, 12, 12 * 32 << 10, false), "bruck");
    EXPECT_EQ(name(op, 12, 12 * 32 << 10, true), "direct");
    EXPECT_EQ(name(op, 64, 64 * 32 << 10, true), "halving_doubling");
    EXPECT_EQ(name(op, 6, 64 << 20, true), "direct");
  }
  EXPECT_EQ(name(Op::kReduce, 12, 1024, false), "binomial");
  EXPECT_EQ(name(Op::kReduce, 12, 1024, true), "direct");
  EXPECT_EQ(name(Op::kAllReduce, 8, 8 * 256 << 10, false), "halving_doubling");
  EXPECT_EQ(name(Op::kAllReduce, 8, 8 * 256 << 10, true), "direct");
  EXPECT_EQ(name(Op::kAllReduce, 8, 8 * 512 << 10, true), "pairwise");
  EXPECT_EQ(name(Op::kAllGather, 12, 64 << 20, true), "ring");
  EXPECT_EQ(
      choose_remote(Op::kAllReduce, 4, 64 << 20, "ring", 4, nullptr, false, true).algorithm->name,
      "ring");
}

TEST(Select, LanesAndPiecesKeepEnoughToDo) {
  EXPECT_EQ(choose_remote(Op::kAllReduce, 2, 4096, "ring", 2).lanes, 1);
  EXPECT_EQ(choose_remote(Op::kAllReduce, 2, 2 << 20, "ring", 2).lanes, 2);
  EXPECT_EQ(choose_remote(Op::kAllReduce, 2, 1 << 28, "ring", 2).lanes, 4);
  EXPECT_EQ(choose_remote(Op::kAllReduce, 1, 1 << 28, "ring").lanes, 1);
  EXPECT_EQ(choose_remote(Op::kAllReduce, 2, 1 << 28, "ring", 1).lanes, 1);
  EXPECT_EQ(choose_remote(Op::kAllReduce, 12, 1 << 28, "ring", 12).lanes, 1);
  EXPECT_EQ(choose_remote(Op::kBroadcast, 12, 1 << 20, "pipeline").depth, 4);
  EXPECT_EQ(choose_remote(Op::kBroadcast, 12, 1 << 30, "pipeline").depth, 64);
  EXPECT_EQ(choose_remote(Op::kBroadcast, 12, 0, "pipeline").depth, 1);
}

TEST(Select, ExplainsReplacements) {
  const Choice nhr = choose_remote(Op::kAllReduce, 12, 1 << 20, "NHR");
  EXPECT_EQ(nhr.algorithm->name, "bruck");
  EXPECT_EQ(nhr.reason,
            "HCCL_ALGO asks for NHR, which allreduce does not have here; bruck is nearest to it");

  const Choice ahc = choose_remote(Op::kAllReduce, 12, 1 << 20, "AHC");
  EXPECT_EQ(ahc.algorithm->name, "halving_doubling");

  const Choice odd = choose_remote(Op::kAllGather, 12, 1 << 20, "H-D_R");
  EXPECT_EQ(odd.algorithm->name, "bruck");
  EXPECT_EQ(odd.reason,
            "HCCL_ALGO asks for H-D_R, but halving and doubling need a power of two ranks, not 12; "
            "bruck is nearest to it");

  EXPECT_EQ(choose_remote(Op::kBroadcast, 12, 1, "H-D_R").algorithm->name, "binomial");
  EXPECT_EQ(choose_remote(Op::kBroadcast, 12, 1, "ring").algorithm->name, "chain");
  EXPECT_EQ(choose_remote(Op::kAllToAll, 12, 1, "pipeline").algorithm->name, "pairwise");
  EXPECT_EQ(choose_remote(Op::kAllReduce, 12, 1, "pipeline").algorithm->name, "ring");

  const Choice unknown = choose_remote(Op::kAllReduce, 4, 8 << 20, "what?");
  EXPECT_EQ(unknown.algorithm->name, "direct");
  EXPECT_EQ(
      unknown.reason,
      "HCCL_ALGO asks for what?, which allreduce does not have here; default: 4 ranks are few: "
      "fewest steps, rank order");
}

}  // namespace
}  // namespace hccl::select
