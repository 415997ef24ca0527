// The checker is worth its name only if it notices: right schedules, each broken in one way.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "hccl/schedule/algorithm.h"
#include "hccl/schedule/checker.h"

namespace hccl::schedule {
namespace {

using Build = std::function<Schedule(const Shape&)>;

// `change` is applied to the schedule of one rank, or of all ranks if that is -1.
Build broken(Op op, std::string_view name, int rank,
             const std::function<void(Schedule&, const Shape&)>& change) {
  const Algorithm* algorithm = find(op, name);
  return [=](const Shape& shape) {
    Schedule schedule = algorithm->build(shape);
    if (rank < 0 || shape.rank == rank) change(schedule, shape);
    return schedule;
  };
}

std::string verdict(Op op, int size, int root, const Build& build, int depth = 1) {
  const Status status = check(op, size, root, depth, build);
  EXPECT_EQ(status.code(), Code::kInternal);
  return status.message();
}

TEST(Checker, NamesTheAlgorithmOfTheTable) {
  const Algorithm* algorithm = find(Op::kAllGather, "ring");
  const Status status = check(Op::kAllReduce, 5, 0, 1, algorithm->build);
  EXPECT_EQ(status.message(),
            "allreduce ring, 5 ranks: rank 0 ends wrong: kOut chunk 0 lacks the part of rank 1");
}

TEST(Checker, SendToTheWrongPeer) {
  const std::string text = verdict(
      Op::kAllReduce, 5, 0, broken(Op::kAllReduce, "ring", 2, [](Schedule& schedule, const Shape&) {
        schedule.steps[1].sends[0].peer = 4;
      }));
  // Rank 3 misses the message, rank 4 never looks for it, and the rest waits for these two.
  EXPECT_EQ(
      text,
      "allreduce, 5 ranks: deadlock: rank 0 step 3 waits to send chunk 2 to rank 1, which is in "
      "step 2; rank 1 step 2 waits to send chunk 4 to rank 2, which is in step 1; rank 2 step 1 "
      "waits to send chunk 1 to rank 4, which is in step 2; rank 3 step 1 waits for chunk 1 from "
      "rank 2, which is in step 1");
}

TEST(Checker, PeerOutsideOfTheCommunicator) {
  const auto with_peer = [](int peer) {
    return broken(Op::kAllGather, "direct", 1, [peer](Schedule& schedule, const Shape&) {
      schedule.steps[0].recvs[0].peer = peer;
    });
  };
  EXPECT_EQ(verdict(Op::kAllGather, 3, 0, with_peer(3)),
            "allgather, 3 ranks: rank 1 step 0 names rank 3");
  EXPECT_EQ(verdict(Op::kAllGather, 3, 0, with_peer(1)),
            "allgather, 3 ranks: rank 1 step 0 exchanges a message with itself");
}

// Everybody sends first and receives in the next step: fine with buffers, a deadlock with
// rendezvous.
TEST(Checker, SendsBeforeReceivesDeadlock) {
  const std::string text =
      verdict(Op::kAllGather, 3, 0,
              broken(Op::kAllGather, "ring", -1, [](Schedule& schedule, const Shape&) {
                Step receive;
                receive.recvs.swap(schedule.steps[0].recvs);
                receive.folds.swap(schedule.steps[0].folds);
                schedule.steps.insert(schedule.steps.begin() + 1, receive);
              }));
  EXPECT_EQ(
      text,
      "allgather, 3 ranks: deadlock: rank 0 step 0 waits to send chunk 0 to rank 1, which is in "
      "step 0; rank 1 step 0 waits to send chunk 1 to rank 2, which is in step 0; rank 2 step 0 "
      "waits to send chunk 2 to rank 0, which is in step 0");
}

TEST(Checker, StepsInTheWrongOrder) {
  const std::string text = verdict(
      Op::kAllReduce, 4, 0, broken(Op::kAllReduce, "ring", 1, [](Schedule& schedule, const Shape&) {
        std::swap(schedule.steps[0], schedule.steps[1]);
      }));
  EXPECT_NE(text.find("sends chunk 0 to rank 1, whose step 0 expects chunk 3"), std::string::npos)
      << text;
}

TEST(Checker, ReceiveThatNobodySends) {
  const std::string text =
      verdict(Op::kBroadcast, 2, 0,
              broken(Op::kBroadcast, "binomial", 0,
                     [](Schedule& schedule, const Shape&) { schedule.steps.clear(); }));
  EXPECT_EQ(
      text,
      "broadcast, 2 ranks, root 0: deadlock: rank 1 step 0 waits for chunk 0 from rank 0, which "
      "has finished");
}

TEST(Checker, DroppedFold) {
  EXPECT_EQ(
      verdict(Op::kReduceScatter, 3, 0,
              broken(Op::kReduceScatter, "direct", 2,
                     [](Schedule& schedule, const Shape&) { schedule.steps[0].folds.clear(); })),
      "reduce_scatter, 3 ranks: rank 2 ends wrong: kOut chunk 2 was never written");
  EXPECT_EQ(verdict(Op::kReduceScatter, 3, 0,
                    broken(Op::kReduceScatter, "direct", 2,
                           [](Schedule& schedule, const Shape&) {
                             schedule.steps[0].folds[0].inputs.pop_back();
                           })),
            "reduce_scatter, 3 ranks: rank 2 ends wrong: kOut chunk 2 lacks the part of rank 2");
}

TEST(Checker, ReceiveThatForgetsToReduce) {
  const std::string text = verdict(
      Op::kAllReduce, 4, 0, broken(Op::kAllReduce, "ring", 3, [](Schedule& schedule, const Shape&) {
        schedule.steps[0].recvs[0].reduce_with.reset();
      }));
  EXPECT_NE(text.find("lacks the part of rank 3"), std::string::npos) << text;
}

TEST(Checker, DoubledContribution) {
  EXPECT_EQ(verdict(Op::kReduceScatter, 3, 0,
                    broken(Op::kReduceScatter, "direct", 1,
                           [](Schedule& schedule, const Shape&) {
                             Fold& fold = schedule.steps[0].folds[0];
                             fold.inputs.push_back(fold.inputs.front());
                           })),
            "reduce_scatter, 3 ranks: rank 1 step 0 folds rank 0's part of chunk 1 twice");
  const std::string late = verdict(
      Op::kAllReduce, 4, 0, broken(Op::kAllReduce, "ring", 0, [](Schedule& schedule, const Shape&) {
        // The finished chunk arrives and is folded with the own part once more.
        schedule.steps[3].recvs[0].reduce_with = schedule.steps[3].recvs[0].into;
        schedule.steps[3].recvs[0].reduce_with->buffer = Buffer::kIn;
      }));
  EXPECT_NE(late.find("folds rank 0's part of chunk"), std::string::npos) << late;
}

TEST(Checker, WritesToTheInput) {
  EXPECT_EQ(verdict(Op::kAllReduce, 2, 0,
                    broken(Op::kAllReduce, "ring", 0,
                           [](Schedule& schedule, const Shape&) {
                             schedule.steps[0].recvs[0].into.buffer = Buffer::kIn;
                           })),
            "allreduce, 2 ranks: rank 0 step 0 writes to kIn chunk 1");
}

TEST(Checker, OutputOfARankThatHasNone) {
  EXPECT_EQ(
      verdict(Op::kReduce, 4, 1,
              broken(Op::kReduce, "binomial", 2,
                     [](Schedule& schedule, const Shape&) {
                       schedule.steps[0].recvs[0].into = Slice{Buffer::kOut, 0, 1, 0};
                     })),
      "reduce, 4 ranks, root 1: rank 2 step 0 names kOut chunk 0, which this rank does not have");
}

TEST(Checker, ReadsWhatWasNeverWritten) {
  const std::string text = verdict(
      Op::kAllReduce, 2, 0, broken(Op::kAllReduce, "ring", 1, [](Schedule& schedule, const Shape&) {
        schedule.steps[0].sends[0].from.buffer = Buffer::kOut;
      }));
  EXPECT_EQ(text, "allreduce, 2 ranks: rank 1 step 0 reads kOut chunk 1, which was never written");
}

TEST(Checker, SlotsAndChunksOutOfRange) {
  EXPECT_EQ(verdict(Op::kReduceScatter, 4, 0,
                    broken(Op::kReduceScatter, "ring", 0,
                           [](Schedule& schedule, const Shape&) { schedule.scratch_slots = 1; })),
            "reduce_scatter, 4 ranks: rank 0 step 1 names 1 slots from slot 1 on, but asked for 1");
  EXPECT_EQ(
      verdict(Op::kBroadcast, 2, 0,
              broken(Op::kBroadcast, "binomial", 0,
                     [](Schedule& schedule, const Shape&) {
                       schedule.steps[0].sends[0].from.count = 2;
                     })),
      "broadcast, 2 ranks, root 0: rank 0 step 0 names 2 chunks from chunk 0 on, but the vector "
      "has 1");
}

TEST(Checker, SlotThatHoldsAnotherChunk) {
  const std::string text = verdict(
      Op::kReduceScatter, 4, 0,
      broken(Op::kReduceScatter, "ring", 0,
             [](Schedule& schedule, const Shape&) { schedule.steps[2].sends[0].from.slot = 0; }));
  EXPECT_NE(text.find("rank 0 step 2 reads kScratch slot 0 (chunk 1), which holds chunk 2"),
            std::string::npos)
      << text;
}

TEST(Checker, RanksThatCutTheVectorDifferently) {
  EXPECT_EQ(verdict(Op::kAllReduce, 2, 0,
                    broken(Op::kAllReduce, "ring", 1,
                           [](Schedule& schedule, const Shape&) { schedule.chunks = 3; })),
            "allreduce, 2 ranks: rank 1 cuts the vector into 3 chunks and rank 0 into 2");
}

// Everyone gets all inputs and folds them itself: right, and the same bits on all ranks only if all
// of them fold in the same order.
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

// With separate buffers nothing is wrong with it.
TEST(Checker, InputReadAfterTheOutputWasWritten) {
  const Build gather = broken(Op::kAllGather, "direct", 0, [](Schedule& schedule, const Shape&) {
    Step copy_first;
    copy_first.folds.swap(schedule.steps[0].folds);
    schedule.steps.insert(schedule.steps.begin(), copy_first);
  });
  EXPECT_EQ(
      verdict(Op::kAllGather, 2, 0, gather),
      "allgather, 2 ranks, in place: rank 0 step 1 reads kIn chunk 0 after kOut, the same memory "
      "in place, was written");
}

TEST(Checker, ReceiveOverWhatAnotherReceiveFolds) {
  EXPECT_EQ(
      verdict(Op::kReduceScatter, 3, 0,
              broken(Op::kReduceScatter, "direct", 0,
                     [](Schedule& schedule, const Shape&) {
                       std::vector<Recv>& recvs = schedule.steps[0].recvs;
                       recvs[1].reduce_with = recvs[0].into;
                     })),
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
  EXPECT_EQ(verdict(Op::kReduceScatter, 3, 0,
                    broken(Op::kReduceScatter, "direct", 0,
                           [](Schedule& schedule, const Shape&) {
                             schedule.steps[0].recvs[1].into = schedule.steps[0].recvs[0].into;
                           })),
            "reduce_scatter, 3 ranks: rank 0 step 0 receives twice into the same place, chunk 0");
}

TEST(Checker, FoldOfDifferentChunksOrOfNothing) {
  EXPECT_EQ(verdict(Op::kAllReduce, 1, 0,
                    broken(Op::kAllReduce, "ring", 0,
                           [](Schedule& schedule, const Shape&) {
                             schedule.chunks = 2;
                             schedule.steps[0].folds[0].inputs[0].chunk = 1;
                           })),
            "allreduce, 1 rank: rank 0 step 0 folds chunk 1 into chunk 0");
  EXPECT_EQ(verdict(Op::kAllReduce, 1, 0,
                    broken(Op::kAllReduce, "ring", 0,
                           [](Schedule& schedule, const Shape&) {
                             schedule.steps[0].folds[0].inputs.clear();
                           })),
            "allreduce, 1 rank: rank 0 step 0 folds nothing into chunk 0");
}

TEST(Checker, FoldInAnOperationThatOnlyMovesData) {
  const std::string text =
      verdict(Op::kBroadcast, 3, 0,
              broken(Op::kBroadcast, "direct", 1, [](Schedule& schedule, const Shape&) {
                schedule.steps[1].folds.push_back(
                    {{Buffer::kOut, 0, 1, 0}, {{Buffer::kOut, 0, 1, 0}, {Buffer::kOut, 0, 1, 0}}});
              }));
  EXPECT_EQ(
      text,
      "broadcast, 3 ranks, root 0: rank 1 step 1 combines chunks in an operation that does not "
      "reduce");
}

TEST(Checker, BlocksThatReachTheWrongRank) {
  const std::string text =
      verdict(Op::kAllToAll, 3, 0,
              broken(Op::kAllToAll, "pairwise", 0, [](Schedule& schedule, const Shape&) {
                std::swap(schedule.steps[0].sends[0].from, schedule.steps[1].sends[0].from);
              }));
  EXPECT_EQ(
      text,
      "alltoall, 3 ranks: rank 1 ends wrong: kOut chunk 0 holds rank 0's chunk 2 instead of rank "
      "0's chunk 1");
}

TEST(Checker, BarrierThatHearsOfTooFew) {
  const Build build = broken(Op::kBarrier, "dissemination", -1,
                             [](Schedule& schedule, const Shape&) { schedule.steps.pop_back(); });
  EXPECT_EQ(verdict(Op::kBarrier, 8, 0, build),
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
