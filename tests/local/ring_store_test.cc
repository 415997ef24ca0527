// How data is stored into rings follows what is faster, as a program runs.
#include "hccl/exec/host/ring_store.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace hccl::testing {
namespace {

using exec::host::RingStore;
using kernels::Store;

constexpr std::uint64_t kRing = std::uint64_t{2} << 20;
constexpr RingStore::Kind kShort{Op::kAllReduce, std::uint64_t{64} << 10};
constexpr RingStore::Kind kLong{Op::kAllReduce, kRing};

/// Runs whose time does not count are not timed.
void took(RingStore& rings, RingStore::Kind kind, std::uint64_t ticks) {
  rings.took(kind, rings.timed() ? ticks : 0);
}

/// Runs until the kept store is `wanted`; the runs, or `most` where it does not come to that.
int runs_until(RingStore& rings, Store wanted, RingStore::Kind kind, std::uint64_t cached,
               std::uint64_t streaming, int most = 20000) {
  int runs = 0;
  for (; runs < most && rings.kept() != wanted; ++runs) {
    took(rings, kind, rings.next() == Store::kCached ? cached : streaming);
  }
  return runs;
}

TEST(RingStore, FollowsWhatIsFasterThereAndBack) {
  for (const RingStore::Kind kind : {kShort, kLong}) {
    RingStore rings(kRing);
    EXPECT_LT(runs_until(rings, Store::kStream, kind, 200, 100), 5000);
    EXPECT_LT(runs_until(rings, Store::kCached, kind, 100, 200), 5000);
  }
}

TEST(RingStore, StaysWhereThereIsLittleToGain) {
  RingStore rings(kRing);
  EXPECT_EQ(runs_until(rings, Store::kStream, kShort, 100, 90), 20000);
  rings.keep(Store::kStream);
  EXPECT_EQ(runs_until(rings, Store::kCached, kShort, 90, 100), 20000);
}

// The first runs of the other store find lines as the kept one left them: they do not count.
TEST(RingStore, JudgesTheOtherOnceTheRingIsItsOwn) {
  RingStore rings(kRing);
  std::uint64_t streamed = 0;
  for (int run = 0; run < 20000 && rings.kept() == Store::kCached; ++run) {
    const bool streams = rings.next() == Store::kStream;
    streamed = streams ? streamed + kShort.bytes : 0;
    took(rings, kShort, !streams ? 100 : streamed <= 2 * kRing ? 500 : 50);
  }
  EXPECT_EQ(rings.kept(), Store::kStream);
}

TEST(RingStore, TriesSeldom) {
  for (const RingStore::Kind kind : {kShort, kLong}) {
    RingStore rings(kRing);
    int tried = 0;
    for (int run = 0; run < 20000; ++run) {
      const bool cached = rings.next() == Store::kCached;
      tried += cached ? 0 : 1;
      took(rings, kind, cached ? 100 : 200);
    }
    EXPECT_GT(tried, 0);
    EXPECT_LT(tried, 20000 / 50);
  }
}

// A single slow run, or another kind of run between, decides nothing.
TEST(RingStore, ComparesRunsOfOneKindByTheirBest) {
  RingStore rings(kRing);
  for (int run = 0; run < 20000; ++run) {
    const bool odd = run % 3 == 1;
    const std::uint64_t noise = run % 2 == 0 ? 900 : 0;
    if (odd) {
      took(rings, {Op::kBroadcast, 8 + static_cast<std::uint64_t>(run)},
           rings.next() == Store::kStream ? 1 : 1000);
    } else {
      took(rings, kShort, 100 + noise);
    }
    ASSERT_EQ(rings.kept(), Store::kCached) << run;
  }
  // And where that kind comes no more, another takes its place.
  for (const RingStore::Kind kind : {kLong, kShort}) {
    EXPECT_LT(runs_until(rings, rings.kept() == Store::kCached ? Store::kStream : Store::kCached,
                         kind, rings.kept() == Store::kCached ? 200 : 100,
                         rings.kept() == Store::kCached ? 100 : 200),
              10000);
  }
}

}  // namespace
}  // namespace hccl::testing
