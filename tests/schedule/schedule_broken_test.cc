// The checker must find errors: each test breaks a right schedule in one way.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "hccl/schedule/algorithm.h"
#include "hccl/schedule/checker.h"

namespace hccl::schedule {
namespace {

using Build = std::function<Schedule(const Shape&)>;

std::string verdict(Op op, int size, int root, const Build& build) {
  const Status status = check(op, size, root, 1, build);
  EXPECT_EQ(status.code(), Code::kInternal);
  return status.message();
}

// Returns the error that the checker finds for this many ranks if `change` changes the schedule of
// one rank, or of all ranks (-1).
std::string broken(Op op, std::string_view name, int size, int rank,
                   const std::function<void(Schedule&)>& change, int root = 0) {
  const Algorithm* algorithm = find(op, name);
  return verdict(op, size, root, [&](const Shape& shape) {
    Schedule schedule = algorithm->build(shape);
    if (rank < 0 || shape.rank == rank) change(schedule);
    return schedule;
  });
}

TEST(Checker, NamesTheAlgorithmOfTheTable) {
  const Algorithm* algorithm = find(Op::kAllGather, "ring");
  const Status status = check(Op::kAllReduce, 5, 0, 1, algorithm->build);
  EXPECT_EQ(status.message(),
            "allreduce ring, 5 ranks: rank 0 ends wrong: kOut chunk 0 lacks the part of rank 1");
}

TEST(Checker, SendToTheWrongPeer) {
  // Rank 3 misses the message, rank 4 never receives it, and the other ranks wait for these two.
  EXPECT_EQ(
      broken(Op::kAllReduce, "ring", 5, 2, [](Schedule& s) { s.steps[1].sends[0].peer = 4; }),
      "allreduce, 5 ranks: deadlock: rank 0 step 3 waits to send chunk 2 to rank 1, which is in "
      "step 2; rank 1 step 2 waits to send chunk 4 to rank 2, which is in step 1; rank 2 step 1 "
      "waits to send chunk 1 to rank 4, which is in step 2; rank 3 step 1 waits for chunk 1 from "
      "rank 2, which is in step 1");
}

TEST(Checker, PeerOutsideOfTheCommunicator) {
  const auto with_peer = [](int peer) {
    return broken(Op::kAllGather, "direct", 3, 1,
                  [peer](Schedule& s) { s.steps[0].recvs[0].peer = peer; });
  };
  EXPECT_EQ(with_peer(3), "allgather, 3 ranks: rank 1 step 0 names rank 3");
  EXPECT_EQ(with_peer(1), "allgather, 3 ranks: rank 1 step 0 exchanges a message with itself");
}

// All ranks send first and receive in the next step. That works if messages are buffered, and is a
// deadlock with rendezvous.
TEST(Checker, SendsBeforeReceivesDeadlock) {
  EXPECT_EQ(
      broken(Op::kAllGather, "ring", 3, -1,
             [](Schedule& s) {
               Step receive;
               receive.recvs.swap(s.steps[0].recvs);
               receive.folds.swap(s.steps[0].folds);
               s.steps.insert(s.steps.begin() + 1, receive);
             }),
      "allgather, 3 ranks: deadlock: rank 0 step 0 waits to send chunk 0 to rank 1, which is in "
      "step 0; rank 1 step 0 waits to send chunk 1 to rank 2, which is in step 0; rank 2 step 0 "
      "waits to send chunk 2 to rank 0, which is in step 0");
}

TEST(Checker, StepsInTheWrongOrder) {
  const std::string text =
      broken(Op::kAllReduce, "ring", 4, 1, [](Schedule& s) { std::swap(s.steps[0], s.steps[1]); });
  EXPECT_NE(text.find("sends chunk 0 to rank 1, whose step 0 expects chunk 3"), std::string::npos)
      << text;
}

TEST(Checker, ReceiveThatNobodySends) {
  EXPECT_EQ(
      broken(Op::kBroadcast, "binomial", 2, 0, [](Schedule& s) { s.steps.clear(); }),
      "broadcast, 2 ranks, root 0: deadlock: rank 1 step 0 waits for chunk 0 from rank 0, which "
      "has finished");
}

TEST(Checker, DroppedFold) {
  EXPECT_EQ(
      broken(Op::kReduceScatter, "direct", 3, 2, [](Schedule& s) { s.steps[0].folds.clear(); }),
      "reduce_scatter, 3 ranks: rank 2 ends wrong: kOut chunk 2 was never written");
  EXPECT_EQ(broken(Op::kReduceScatter, "direct", 3, 2,
                   [](Schedule& s) { s.steps[0].folds[0].inputs.pop_back(); }),
            "reduce_scatter, 3 ranks: rank 2 ends wrong: kOut chunk 2 lacks the part of rank 2");
}

TEST(Checker, ReceiveThatForgetsToReduce) {
  const std::string text = broken(Op::kAllReduce, "ring", 4, 3,
                                  [](Schedule& s) { s.steps[0].recvs[0].reduce_with.reset(); });
  EXPECT_NE(text.find("lacks the part of rank 3"), std::string::npos) << text;
}

TEST(Checker, DoubledContribution) {
  EXPECT_EQ(broken(Op::kReduceScatter, "direct", 3, 1,
                   [](Schedule& s) {
                     Fold& fold = s.steps[0].folds[0];
                     fold.inputs.push_back(fold.inputs.front());
                   }),
            "reduce_scatter, 3 ranks: rank 1 step 0 folds rank 0's part of chunk 1 twice");
  const std::string late = broken(Op::kAllReduce, "ring", 4, 0, [](Schedule& s) {
    // The finished chunk arrives, and is wrongly folded with the rank's own part once more.
    s.steps[3].recvs[0].reduce_with = s.steps[3].recvs[0].into;
    s.steps[3].recvs[0].reduce_with->buffer = Buffer::kIn;
  });
  EXPECT_NE(late.find("folds rank 0's part of chunk"), std::string::npos) << late;
}

TEST(Checker, WritesToTheInput) {
  EXPECT_EQ(broken(Op::kAllReduce, "ring", 2, 0,
                   [](Schedule& s) { s.steps[0].recvs[0].into.buffer = Buffer::kIn; }),
            "allreduce, 2 ranks: rank 0 step 0 writes to kIn chunk 1");
}

TEST(Checker, OutputOfARankThatHasNone) {
  EXPECT_EQ(
      broken(
          Op::kReduce, "binomial", 4, 2,
          [](Schedule& s) { s.steps[0].recvs[0].into = Slice{Buffer::kOut, 0, 1, 0}; }, 1),
      "reduce, 4 ranks, root 1: rank 2 step 0 names kOut chunk 0, which this rank does not have");
}

TEST(Checker, ReadsWhatWasNeverWritten) {
  EXPECT_EQ(broken(Op::kAllReduce, "ring", 2, 1,
                   [](Schedule& s) { s.steps[0].sends[0].from.buffer = Buffer::kOut; }),
            "allreduce, 2 ranks: rank 1 step 0 reads kOut chunk 1, which was never written");
}

TEST(Checker, SlotsAndChunksOutOfRange) {
  EXPECT_EQ(broken(Op::kReduceScatter, "ring", 4, 0, [](Schedule& s) { s.scratch_slots = 1; }),
            "reduce_scatter, 4 ranks: rank 0 step 1 names 1 slots from slot 1 on, but asked for 1");
  EXPECT_EQ(
      broken(Op::kBroadcast, "binomial", 2, 0,
             [](Schedule& s) { s.steps[0].sends[0].from.count = 2; }),
      "broadcast, 2 ranks, root 0: rank 0 step 0 names 2 chunks from chunk 0 on, but the vector "
      "has 1");
}

TEST(Checker, SlotThatHoldsAnotherChunk) {
  const std::string text = broken(Op::kReduceScatter, "ring", 4, 0,
                                  [](Schedule& s) { s.steps[2].sends[0].from.slot = 0; });
  EXPECT_NE(text.find("rank 0 step 2 reads kScratch slot 0 (chunk 1), which holds chunk 2"),
            std::string::npos)
      << text;
}

TEST(Checker, RanksThatCutTheVectorDifferently) {
  EXPECT_EQ(broken(Op::kAllReduce, "ring", 2, 1, [](Schedule& s) { s.chunks = 3; }),
            "allreduce, 2 ranks: rank 1 cuts the vector into 3 chunks and rank 0 into 2");
}

// Each rank gets all inputs and folds them itself. This is right, but the bits are the same on all
// ranks only if all fold in the same order.
Schedule fold_everything(const Shape& shape, int first_input, int last_input) {
  Schedule schedule{1, 3, {}};
  Step exchange;
  Fold fold{{Buffer::kOut, 0, 1, 0}, {}};
  for (const int source : {first_input, 3 - first_input - last_input, last_input}) {
    if (source == shape.rank) {
      fold.inputs.push_back({Buffer::kIn, 0, 1, 0});
      continue;
    }
    const Slice slot{Buffer::kScratch, 0, 1, source};
    exchange.sends.push_back({source, {Buffer::kIn, 0, 1, 0}});
    exchange.recvs.push_back({source, slot, {}});
    fold.inputs.push_back(slot);
  }
  exchange.folds.push_back(fold);
  schedule.steps.push_back(exchange);
  return schedule;
}

TEST(Checker, RanksThatFoldInDifferentOrders) {
  const auto same = [](const Shape& shape) { return fold_everything(shape, 0, 2); };
  const Status status = check(Op::kAllReduce, 3, 0, 1, same);
  EXPECT_TRUE(status.ok()) << status.message();
  const std::string words =
      "allreduce, 3 ranks: rank 1 and rank 0 fold chunk 0 in different orders, so their bits may "
      "differ";
  EXPECT_EQ(verdict(Op::kAllReduce, 3, 0,
                    [](const Shape& shape) {
                      return fold_everything(shape, 0, shape.rank == 1 ? 1 : 2);
                    }),
            words);
  EXPECT_EQ(verdict(Op::kAllReduce, 3, 0,
                    [](const Shape& shape) {
                      return fold_everything(shape, shape.rank == 1 ? 1 : 0, 2);
                    }),
            words);
}

// This schedule is right if input and output are separate buffers.
TEST(Checker, InputReadAfterTheOutputWasWritten) {
  EXPECT_EQ(
      broken(Op::kAllGather, "direct", 2, 0,
             [](Schedule& s) {
               Step copy_first;
               copy_first.folds.swap(s.steps[0].folds);
               s.steps.insert(s.steps.begin(), copy_first);
             }),
      "allgather, 2 ranks, in place: rank 0 step 1 reads kIn chunk 0 after kOut, the same memory "
      "in place, was written");
}

TEST(Checker, ReceiveOverWhatAnotherReceiveFolds) {
  EXPECT_EQ(
      broken(Op::kReduceScatter, "direct", 3, 0,
             [](Schedule& s) {
               std::vector<Recv>& recvs = s.steps[0].recvs;
               recvs[1].reduce_with = recvs[0].into;
             }),
      "reduce_scatter, 3 ranks: rank 0 step 0 receives into chunk 0 while it folds chunk 0 from "
      "there");
}

TEST(Checker, ReceiveWhileTheSamePlaceIsSent) {
  const auto build = [](const Shape& shape) {
    const int peer = 1 - shape.rank;
    Schedule schedule{1, 1, {}};
    Step step;
    if (shape.rank == 0) {
      step.sends.push_back({peer, {Buffer::kIn, 0, 1, 0}});
      step.recvs.push_back({peer, {Buffer::kOut, 0, 1, 0}, Slice{Buffer::kIn, 0, 1, 0}});
    } else {
      step.sends.push_back({peer, {Buffer::kIn, 0, 1, 0}});
      step.recvs.push_back({peer, {Buffer::kScratch, 0, 1, 0}, {}});
    }
    schedule.steps.push_back(step);
    return schedule;
  };
  EXPECT_EQ(verdict(Op::kReduce, 2, 0, build),
            "reduce, 2 ranks, root 0, in place: rank 0 step 0 receives into chunk 0 while it sends "
            "chunk 0 from there (kIn and kOut are the same memory)");
}

TEST(Checker, TwoReceivesIntoOnePlace) {
  EXPECT_EQ(broken(Op::kReduceScatter, "direct", 3, 0,
                   [](Schedule& s) { s.steps[0].recvs[1].into = s.steps[0].recvs[0].into; }),
            "reduce_scatter, 3 ranks: rank 0 step 0 receives twice into the same place, chunk 0");
}

TEST(Checker, FoldOfDifferentChunksOrOfNothing) {
  EXPECT_EQ(broken(Op::kAllReduce, "ring", 1, 0,
                   [](Schedule& s) {
                     s.chunks = 2;
                     s.steps[0].folds[0].inputs[0].chunk = 1;
                   }),
            "allreduce, 1 rank: rank 0 step 0 folds chunk 1 into chunk 0");
  EXPECT_EQ(
      broken(Op::kAllReduce, "ring", 1, 0, [](Schedule& s) { s.steps[0].folds[0].inputs.clear(); }),
      "allreduce, 1 rank: rank 0 step 0 folds nothing into chunk 0");
}

TEST(Checker, FoldInAnOperationThatOnlyMovesData) {
  EXPECT_EQ(
      broken(Op::kBroadcast, "direct", 3, 1,
             [](Schedule& s) {
               s.steps[1].folds.push_back(
                   {{Buffer::kOut, 0, 1, 0}, {{Buffer::kOut, 0, 1, 0}, {Buffer::kOut, 0, 1, 0}}});
             }),
      "broadcast, 3 ranks, root 0: rank 1 step 1 combines chunks in an operation that does not "
      "reduce");
}

TEST(Checker, BlocksThatReachTheWrongRank) {
  EXPECT_EQ(
      broken(Op::kAllToAll, "pairwise", 3, 0,
             [](Schedule& s) { std::swap(s.steps[0].sends[0].from, s.steps[1].sends[0].from); }),
      "alltoall, 3 ranks: rank 1 ends wrong: kOut chunk 0 holds rank 0's chunk 2 instead of rank "
      "0's chunk 1");
}

TEST(Checker, BarrierThatHearsOfTooFew) {
  EXPECT_EQ(broken(Op::kBarrier, "dissemination", 8, -1, [](Schedule& s) { s.steps.pop_back(); }),
            "barrier, 8 ranks: rank 0 leaves without having heard of rank 1");
}

TEST(Checker, RefusesShapesThatCannotBe) {
  const Algorithm* algorithm = find(Op::kBroadcast, "chain");
  EXPECT_EQ(check(Op::kBroadcast, 0, 0, 1, algorithm->build).code(), Code::kPara);
  EXPECT_EQ(check(Op::kBroadcast, 4, 4, 1, algorithm->build).code(), Code::kPara);
  EXPECT_EQ(check(Op::kBroadcast, 4, -1, 1, algorithm->build).code(), Code::kPara);
  EXPECT_EQ(check(Op::kBroadcast, 4, 0, 0, algorithm->build).code(), Code::kPara);
  EXPECT_EQ(check(Op::kBroadcast, 4, 0, 1, nullptr).code(), Code::kPara);
}

}  // namespace
}  // namespace hccl::schedule
