// Combines the messages of several ranks about a window: the ranks' clocks and starts are
// unrelated, and the segments' true times are known.
#include "split/engine/window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

namespace hccl::split {
namespace {

constexpr std::int64_t kMs = 1'000'000;

/// One iteration of one rank, in milliseconds of a common clock: its begin, the time when both
/// gradients are ready, and each segment's start and end. `clock` is the offset of this rank's own
/// clock.
Times iteration(std::uint64_t number, bool overlapped, std::int64_t clock, std::int64_t begin,
                std::vector<std::int64_t> ready, std::vector<std::int64_t> start,
                std::vector<std::int64_t> end) {
  Times times;
  const auto at = [&](std::int64_t ms) { return clock + ms * kMs; };
  times.number = number;
  times.overlapped = overlapped;
  times.begin = at(begin);
  times.bp_end = at(ready.back());
  times.wait_end = at(end.back());
  for (const auto each : ready) times.ready.push_back(at(each));
  for (const auto each : start) times.start.push_back(at(each));
  for (const auto each : end) times.end.push_back(at(each));
  times.wait_for_peer.assign(start.size(), 0);
  return times;
}

struct Rank {
  std::deque<Times> past;
  Times now;
  Iterations iterations() { return iterations_of(now, past, 0); }
};

std::vector<double> least(std::vector<double> a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::min(a[i], b[i]);
  return a;
}

// The second rank begins 10 ms late, because its data was late. Both ranks compute for 100 ms. The
// first segment takes 6 ms and starts when the second rank is ready. The second segment, of 3 ms,
// follows.
TEST(Window, RanksThatBeginApartTakeNoLongerForASegment) {
  Rank a, b;
  for (std::uint64_t i = 1; i <= 4; ++i) {
    Times early = iteration(i, false, 7'000 * kMs, 0, {60, 100}, {100, 116}, {116, 119});
    Times late = iteration(i, false, -3'000 * kMs, 10, {70, 110}, {110, 116}, {116, 119});
    if (i < 4) {
      a.past.push_back(early);
      b.past.push_back(late);
    } else {
      a.now = early;
      b.now = late;
    }
  }
  Iterations of_a = a.iterations(), of_b = b.iterations();
  ASSERT_EQ(of_a.all.size(), 4u);
  const auto message = least(message_of(of_a, 2, 2), message_of(of_b, 2, 2));
  const Window seen = window_of(message, of_a, 2, 2);
  EXPECT_TRUE(seen.overlapped.empty());
  EXPECT_EQ(seen.alone.iterations, 4u);
  ASSERT_EQ(seen.alone.seconds.size(), 2u);
  EXPECT_NEAR(seen.alone.seconds[0], 6e-3, 1e-9);
  EXPECT_NEAR(seen.alone.seconds[1], 3e-3, 1e-9);
  EXPECT_NEAR(seen.alone.compute_end, 100e-3, 1e-9);
  EXPECT_NEAR(seen.alone.ready[0], 60e-3, 1e-9);
  EXPECT_EQ(a.now.wait_for_peer[0], 10 * kMs);
  const Window same = window_of(message, of_b, 2, 2);
  EXPECT_EQ(same.alone.seconds, seen.alone.seconds);
  EXPECT_EQ(b.now.wait_for_peer[0], 0);
}

// Each segment starts last on another rank. The shortest times of the segments are 4 and 6 ms, but
// 11 ms pass from the last start of the first segment to the end.
TEST(Window, SegmentsOneBehindTheOtherAddUpToWhatPasses) {
  Rank a, b;
  a.now = iteration(1, true, 0, 0, {50, 100}, {50, 57}, {57, 63});
  b.now = iteration(1, true, 0, 0, {52, 100}, {52, 56}, {56, 63});
  Iterations of_a = a.iterations(), of_b = b.iterations();
  const auto message = least(message_of(of_a, 2, 2), message_of(of_b, 2, 2));
  const Window seen = window_of(message, of_b, 2, 2);
  ASSERT_FALSE(seen.overlapped.empty());
  EXPECT_NEAR(seen.overlapped.start[0], 52e-3, 1e-9);
  EXPECT_NEAR(seen.overlapped.seconds[0], 5e-3, 1e-9);
  EXPECT_NEAR(seen.overlapped.seconds[1], 6e-3, 1e-9);
  EXPECT_NEAR(seen.overlapped.end, 63e-3, 1e-9);
}

TEST(Window, OnlyIterationsOfThePlanAndOfTheWindowCount) {
  Rank rank;
  for (std::uint64_t i = 1; i <= 30; ++i)
    rank.past.push_back(iteration(i, i % 2 == 0, 0, 0, {1, 2}, {2}, {3}));
  rank.now = iteration(31, false, 0, 0, {1, 2}, {2}, {3});
  EXPECT_EQ(iterations_of(rank.now, rank.past, 0).all.size(), Window::kIterations);
  const Iterations few = iterations_of(rank.now, rank.past, 26);
  EXPECT_EQ(few.all.size(), 5u);
  EXPECT_EQ(few.kinds[0].size(), 3u);
  EXPECT_EQ(few.kinds[1].size(), 2u);
}

}  // namespace
}  // namespace hccl::split
