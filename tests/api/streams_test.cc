// Operators on created streams. One thread calls for all ranks. If a call waited for the other
// ranks' calls, the thread would wait for ever.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "hccl/hccl.h"
#include "tests/support/api_world.h"
#include "tests/support/calls.h"

namespace hccl::testing {
namespace {

using Numbers = std::vector<std::uint64_t>;
using Ints = std::vector<std::int32_t>;

constexpr auto kInt = HCCL_DATA_TYPE_INT32;
constexpr auto kSum = HCCL_REDUCE_SUM;

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

class Stream {
 public:
  Stream() { EXPECT_EQ(aclrtCreateStream(&handle_), ACL_SUCCESS); }
  ~Stream() { EXPECT_EQ(aclrtDestroyStream(handle_), ACL_SUCCESS); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  aclrtStream get() const { return handle_; }
  aclError wait() { return aclrtSynchronizeStream(handle_); }
  bool finished() {
    aclrtStreamStatus status = ACL_STREAM_STATUS_RESERVED;
    EXPECT_EQ(aclrtStreamQuery(handle_, &status), ACL_SUCCESS);
    return status == ACL_STREAM_STATUS_COMPLETE;
  }

 private:
  aclrtStream handle_ = nullptr;
};

HcclResult sum(std::int32_t* in, std::int32_t* out, HcclComm comm, const Stream& stream) {
  return HcclAllReduce(in, out, 1, kInt, kSum, comm, stream.get());
}

TEST(Streams, AnOperatorReturnsAtOnceAndRunsWhenItsPeersHaveCome) {
  ApiWorld world(2);
  Stream first, second;
  std::int32_t a = 1, b = 2, x = 0, y = 0;
  ASSERT_EQ(sum(&a, &x, world.comm(0), first), HCCL_SUCCESS);
  // The operator cannot run before rank 1 calls.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(first.finished());
  EXPECT_EQ(x, 0);
  ASSERT_EQ(sum(&b, &y, world.comm(1), second), HCCL_SUCCESS);
  EXPECT_EQ(first.wait(), ACL_SUCCESS);
  EXPECT_EQ(second.wait(), ACL_SUCCESS);
  EXPECT_EQ(x, 3);
  EXPECT_EQ(y, 3);
}

TEST(Streams, OperatorsOfAStreamRunInOrder) {
  ApiWorld world(2);
  Stream streams[2];
  std::int64_t a[2] = {1, 1}, b[2] = {0, 0};
  for (int round = 0; round < 20; ++round) {
    for (int rank = 0; rank < 2; ++rank) {
      // The number doubles in each step, but only if every step waits for the one before it.
      OK(HcclAllReduce(&a[rank], &b[rank], 1, HCCL_DATA_TYPE_INT64, kSum, world.comm(rank),
                       streams[rank].get()));
      OK(HcclAllReduce(&b[rank], &a[rank], 1, HCCL_DATA_TYPE_INT64, kSum, world.comm(rank),
                       streams[rank].get()));
    }
  }
  for (Stream& stream : streams) ASSERT_EQ(stream.wait(), ACL_SUCCESS);
  EXPECT_EQ(a[0], std::int64_t{1} << 40);
  EXPECT_EQ(a[1], std::int64_t{1} << 40);
}

TEST(Streams, TwoCommunicatorsOnTwoStreamsDoNotWaitForEachOther) {
  ApiWorld held(2), free(2);
  Stream waiting, one, two, late;
  std::int32_t a = 1, b = 2;
  ASSERT_EQ(sum(&a, &a, held.comm(0), waiting), 0);
  for (int round = 0; round < 50; ++round) {
    std::int32_t p = round, q = 1;
    ASSERT_EQ(sum(&p, &p, free.comm(0), one), 0);
    ASSERT_EQ(sum(&q, &q, free.comm(1), two), 0);
    ASSERT_EQ(one.wait(), ACL_SUCCESS);
    ASSERT_EQ(two.wait(), ACL_SUCCESS);
    ASSERT_EQ(p, round + 1);
    ASSERT_EQ(q, round + 1);
  }
  EXPECT_FALSE(waiting.finished());
  ASSERT_EQ(sum(&b, &b, held.comm(1), late), 0);
  EXPECT_EQ(waiting.wait(), ACL_SUCCESS);
  EXPECT_EQ(late.wait(), ACL_SUCCESS);
  EXPECT_EQ(a, 3);
  EXPECT_EQ(b, 3);
}

// Operators of one communicator match by the order of the calls, whichever streams they are on and
// whichever stream is waited for first.
TEST(Streams, OneCommunicatorOnSeveralStreamsKeepsTheOrderOfItsCalls) {
  ApiWorld world(2);
  Stream streams[2][3];
  constexpr int kOps = 60;
  Ints values[2] = {Ints(kOps), Ints(kOps)};
  for (int i = 0; i < kOps; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      std::int32_t& value = values[rank][index(i)];
      value = i * (rank + 1);
      // The two ranks use their streams in different orders.
      const Stream& stream = streams[rank][(i * (rank + 1)) % 3];
      ASSERT_EQ(sum(&value, &value, world.comm(rank), stream), 0);
    }
  }
  for (int s = 2; s >= 0; --s) {
    for (auto& of_rank : streams) ASSERT_EQ(of_rank[s].wait(), ACL_SUCCESS);
  }
  for (int i = 0; i < kOps; ++i) {
    EXPECT_EQ(values[0][index(i)], 3 * i);
    EXPECT_EQ(values[1][index(i)], 3 * i);
  }
}

TEST(Streams, ACallWithoutAStreamRunsAfterThoseBeforeIt) {
  ApiWorld world(2);
  Stream streams[2];
  std::int32_t values[2] = {1, 1};
  for (int rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < 5; ++i) {
      ASSERT_EQ(sum(&values[rank], &values[rank], world.comm(rank), streams[rank]), 0);
    }
  }
  world.on_all([&](int rank) {
    OK(HcclAllReduce(&values[rank], &values[rank], 1, kInt, kSum, world.comm(rank), nullptr));
    EXPECT_EQ(values[rank], 64) << "2 to the power of 6";
  });
}

// Rank 1 makes no call, and rank 0 does not wait for rank 1.
TEST(Streams, AnEmptyBatchMeetsNobody) {
  ApiWorld world(2);
  Stream stream;
  HcclSendRecvItem item{};
  ASSERT_EQ(HcclBatchSendRecv(&item, 0, world.comm(0), stream.get()), 0);
  EXPECT_EQ(stream.wait(), ACL_SUCCESS);
  EXPECT_EQ(HcclBatchSendRecv(&item, 0, world.comm(0), &item), HCCL_E_PARA) << "no stream";
}

// All fourteen operators and the barrier, three ranks, one stream each.
TEST(Streams, EveryOperatorRunsOnAStream) {
  constexpr int kSize = 3;
  ApiWorld world(kSize);
  std::vector<Stream> streams(kSize);
  struct Rank {
    Ints in = Ints(3), reduced = Ints(3), cast = Ints(1), scattered = Ints(1), block = Ints(1),
         block_v = Ints(1), gathered = Ints(3), gathered_v = Ints(3), all = Ints(3),
         all_v = Ints(3), all_vc = Ints(3), on_root = Ints(1), received = Ints(1), ring = Ints(1);
  };
  std::vector<Rank> ranks(kSize);
  for (int r = 0; r < kSize; ++r) {
    Rank& m = ranks[index(r)];
    m.in = {10 * r, 10 * r + 1, 10 * r + 2};
    m.cast = {r};
    const HcclComm c = world.comm(r);
    const aclrtStream s = streams[index(r)].get();
    const auto me = static_cast<std::uint32_t>(r);
    {
      // These arrays end with this block: the calls read them before they return.
      Numbers ones(3, 1), places{0, 1, 2}, matrix(9, 1);
      HcclSendRecvItem items[] = {{HCCL_SEND, m.in.data(), 1, kInt, (me + 1) % 3},
                                  {HCCL_RECV, m.ring.data(), 1, kInt, (me + 2) % 3}};
      EXPECT_EQ(HcclAllReduce(m.in.data(), m.reduced.data(), 3, kInt, kSum, c, s), 0);
      EXPECT_EQ(HcclBroadcast(m.cast.data(), 1, kInt, 2, c, s), 0);
      EXPECT_EQ(HcclReduceScatter(m.in.data(), m.block.data(), 1, kInt, kSum, c, s), 0);
      OK(HcclReduceScatterV(m.in.data(), ones.data(), places.data(), m.block_v.data(), 1, kInt,
                            kSum, c, s));
      EXPECT_EQ(HcclScatter(m.in.data(), m.scattered.data(), 1, kInt, 1, c, s), 0);
      EXPECT_EQ(HcclAllGather(m.in.data(), m.gathered.data(), 1, kInt, c, s), 0);
      OK(HcclAllGatherV(m.in.data(), 1, m.gathered_v.data(), ones.data(), places.data(), kInt, c,
                        s));
      if (r == 0) {
        EXPECT_EQ(HcclSend(m.in.data(), 1, kInt, 1, c, s), 0);
      }
      if (r == 1) {
        EXPECT_EQ(HcclRecv(m.received.data(), 1, kInt, 0, c, s), 0);
      }
      EXPECT_EQ(HcclAlltoAll(m.in.data(), 1, kInt, m.all.data(), 1, kInt, c, s), 0);
      OK(HcclAlltoAllV(m.in.data(), ones.data(), places.data(), kInt, m.all_v.data(), ones.data(),
                       places.data(), kInt, c, s));
      EXPECT_EQ(HcclAlltoAllVC(m.in.data(), matrix.data(), kInt, m.all_vc.data(), kInt, c, s), 0);
      EXPECT_EQ(HcclReduce(m.in.data(), m.on_root.data(), 1, kInt, kSum, 0, c, s), 0);
      EXPECT_EQ(HcclBatchSendRecv(items, 2, c, s), 0);
      EXPECT_EQ(HcclBarrier(c, s), 0);
      ones.assign(3, 99);
      places.assign(3, 99);
      matrix.assign(9, 99);
      for (auto& item : items) item.remoteRank = 99;
    }
  }
  for (Stream& stream : streams) {
    EXPECT_EQ(stream.wait(), ACL_SUCCESS) << aclGetRecentErrMsg();
  }
  for (int r = 0; r < kSize; ++r) {
    const Rank& m = ranks[index(r)];
    EXPECT_EQ(m.reduced, (Ints{30, 33, 36}));
    EXPECT_EQ(m.cast[0], 2);
    EXPECT_EQ(m.block[0], 30 + 3 * r);
    EXPECT_EQ(m.block_v[0], 30 + 3 * r);
    EXPECT_EQ(m.scattered[0], 10 + r);
    EXPECT_EQ(m.gathered, (Ints{0, 10, 20}));
    EXPECT_EQ(m.gathered_v, (Ints{0, 10, 20}));
    EXPECT_EQ(m.all, (Ints{r, 10 + r, 20 + r}));
    EXPECT_EQ(m.all_v, m.all);
    EXPECT_EQ(m.all_vc, m.all);
    EXPECT_EQ(m.ring[0], 10 * ((r + 2) % 3));
  }
  EXPECT_EQ(ranks[0].on_root[0], 30);
  EXPECT_EQ(ranks[1].received[0], 0);
}

TEST(Streams, WrongArgumentsAreRefusedAtOnce) {
  ApiWorld world(2);
  Stream stream;
  std::int32_t value = 0;
  EXPECT_EQ(HcclAllReduce(nullptr, &value, 1, kInt, kSum, world.comm(0), stream.get()), HCCL_E_PTR);
  EXPECT_EQ(HcclBroadcast(&value, 1, kInt, 2, world.comm(0), stream.get()), HCCL_E_PARA);
  EXPECT_TRUE(stream.finished());
  aclrtStream gone = nullptr;
  ASSERT_EQ(aclrtCreateStream(&gone), ACL_SUCCESS);
  ASSERT_EQ(aclrtDestroyStream(gone), ACL_SUCCESS);
  REFUSED(HcclAllReduce(&value, &value, 1, kInt, kSum, world.comm(0), gone), HCCL_E_PARA, "stream");
  world.expect_usable();
}

TEST(Streams, AFailureIsTheStreamsAndTheCommunicators) {
  ApiWorld world(2);
  Stream streams[2];
  Ints values(8);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(HcclAllReduce(values.data(), values.data(), rank == 0 ? 3 : 4, kInt, kSum,
                            world.comm(rank), streams[rank].get()),
              HCCL_SUCCESS)
        << "the difference cannot be known yet";
  }
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_NE(streams[rank].wait(), ACL_SUCCESS);
    const char* const words = aclGetRecentErrMsg();
    const std::string text = words == nullptr ? "" : words;
    EXPECT_EQ(text, HcclGetLastErrorText());
    for (const char* word : {"EI0005", "count 3", "count 4"}) {
      EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
    }
    HcclResult error = HCCL_SUCCESS;
    EXPECT_EQ(HcclGetCommAsyncError(world.comm(rank), &error), HCCL_SUCCESS);
    EXPECT_EQ(error, HCCL_E_REMOTE);
    EXPECT_EQ(streams[rank].wait(), ACL_SUCCESS) << "it was told already";
  }
}

// One rank does not call. The other rank's stream fails when the communicator's time is up, and so
// does the first rank's later call.
TEST(Streams, APeerThatDoesNotComeIsAFailureOfTheStream) {
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  config.hcclExecTimeOut = 1;
  ApiWorld world(2, &config);
  Stream stream;
  std::int32_t value = 1;
  ASSERT_EQ(sum(&value, &value, world.comm(0), stream), HCCL_SUCCESS);
  EXPECT_EQ(stream.wait(), ACL_ERROR_RT_TASK_TIMEOUT);
  const char* const words = aclGetRecentErrMsg();
  EXPECT_NE(std::string(words == nullptr ? "" : words).find("EI0002"), std::string::npos);
  HcclResult error = HCCL_SUCCESS;
  EXPECT_EQ(HcclGetCommAsyncError(world.comm(0), &error), HCCL_SUCCESS);
  EXPECT_EQ(error, HCCL_E_REMOTE);
  EXPECT_NE(HcclBarrier(world.comm(1), nullptr), HCCL_SUCCESS);
}

// Operations that a stream skips after a failure give their places up: the communicator goes on.
TEST(Streams, WhatIsSkippedAfterAFailureHoldsNobodyUp) {
  ApiWorld broken(2), sound(2);
  Stream streams[2];
  Ints values(8, 1);
  for (Stream& stream : streams) {
    ASSERT_EQ(aclrtSetStreamFailureMode(stream.get(), ACL_STOP_ON_FAILURE), ACL_SUCCESS);
  }
  for (int rank = 0; rank < 2; ++rank) {
    OK(HcclAllReduce(values.data(), values.data(), rank == 0 ? 3 : 4, kInt, kSum, broken.comm(rank),
                     streams[rank].get()));
    ASSERT_EQ(sum(&values[5], &values[6 + index(rank)], sound.comm(rank), streams[rank]), 0);
  }
  for (Stream& stream : streams) EXPECT_NE(stream.wait(), ACL_SUCCESS);
  EXPECT_EQ(values[6], 1) << "it was not skipped";
  sound.expect_usable();
}

TEST(Streams, ACommunicatorWithWorkWaitingIsNotDestroyed) {
  ApiWorld world(2);
  Stream streams[2];
  std::int32_t values[2] = {1, 2};
  ASSERT_EQ(sum(&values[0], &values[0], world.comm(0), streams[0]), 0);
  EXPECT_EQ(HcclCommDestroy(world.comm(0)), HCCL_E_AGAIN);
  ASSERT_EQ(sum(&values[1], &values[1], world.comm(1), streams[1]), 0);
  for (Stream& stream : streams) ASSERT_EQ(stream.wait(), ACL_SUCCESS);
  EXPECT_EQ(values[0], 3);
  world.expect_usable();
}

TEST(Streams, AGroupIsIssuedAtItsEnd) {
  ApiWorld world(2);
  Stream streams[2];
  std::int32_t out[2] = {5, 6}, in[2] = {0, 0};
  for (int rank = 0; rank < 2; ++rank) {
    const auto peer = static_cast<std::uint32_t>(1 - rank);
    OK(HcclGroupStart());
    OK(HcclRecv(&in[rank], 1, kInt, peer, world.comm(rank), streams[rank].get()));
    OK(HcclSend(&out[rank], 1, kInt, peer, world.comm(rank), streams[rank].get()));
    EXPECT_TRUE(streams[rank].finished());
    OK(HcclGroupEnd());
  }
  for (Stream& stream : streams) ASSERT_EQ(stream.wait(), ACL_SUCCESS);
  EXPECT_EQ(in[0], 6);
  EXPECT_EQ(in[1], 5);

  OK(HcclGroupStart());
  OK(HcclSend(&out[0], 1, kInt, 1, world.comm(0), streams[0].get()));
  REFUSED(HcclRecv(&in[0], 1, kInt, 1, world.comm(0), streams[1].get()), HCCL_E_PARA, "stream");
  EXPECT_EQ(HcclGroupEnd(), HCCL_E_PARA);

  // Collectives of one communicator, with a stream and without one, run in the order of the calls.
  std::int32_t values[2] = {1, 1};
  OK(HcclGroupStart());
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(sum(&values[rank], &values[rank], world.comm(rank), streams[rank]), 0);
    OK(HcclAllReduce(&values[rank], &values[rank], 1, kInt, kSum, world.comm(rank), nullptr));
    ASSERT_EQ(sum(&values[rank], &values[rank], world.comm(rank), streams[rank]), 0);
  }
  OK(HcclGroupEnd());
  for (Stream& stream : streams) ASSERT_EQ(stream.wait(), ACL_SUCCESS);
  EXPECT_EQ(values[0], 8);
  EXPECT_EQ(values[1], 8);
}

}  // namespace
}  // namespace hccl::testing
