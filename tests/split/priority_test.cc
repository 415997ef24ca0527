// Sends the newest gradient first, in chunks; compared with brute force over every order of small
// chunks.
#include "split/priority.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "split/newest_first.h"

namespace hccl::split {
namespace {

struct PriorityInstance {
  std::vector<std::uint64_t> bytes;
  std::vector<double> ready, due;
  PriorityProblem problem(std::uint64_t chunk) const { return {bytes, ready, due, chunk}; }
};

PriorityInstance random_instance(std::mt19937& random) {
  PriorityInstance it;
  const std::size_t m = 1 + random() % 4;
  double time = 0;
  for (std::size_t i = 0; i < m; ++i) {
    it.bytes.push_back(random() % 3);
    time += static_cast<double>(random() % 3);
    it.ready.push_back(time);
    it.due.push_back(time + static_cast<double>(random() % 6));
  }
  if (random() % 4 == 0) std::shuffle(it.ready.begin(), it.ready.end(), random);
  std::sort(it.due.rbegin(), it.due.rend());
  return it;
}

/// The least lateness of all orders that send one byte or none in each second.
double brute_force(const PriorityInstance& it) {
  double last = 0;
  for (std::size_t i = 0; i < it.bytes.size(); ++i)
    last = std::max(last, it.ready[i]) + static_cast<double>(it.bytes[i]);
  std::map<std::pair<double, std::vector<std::uint64_t>>, double> known;
  const std::function<double(double, std::vector<std::uint64_t>)> best =
      [&](double now, std::vector<std::uint64_t> left) -> double {
    if (std::all_of(left.begin(), left.end(), [](auto n) { return n == 0; })) return 0;
    if (now > last) return 1e9;
    const auto [at, fresh] = known.emplace(std::pair{now, left}, 0.0);
    if (!fresh) return at->second;
    double least = best(now + 1, left);
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (left[i] == 0 || it.ready[i] > now) continue;
      auto after = left;
      const double late = --after[i] == 0 ? now + 1 - it.due[i] : 0;
      least = std::min(least, std::max(late, best(now + 1, after)));
    }
    known[{now, left}] = least;
    return least;
  };
  double late = 0;
  for (std::size_t i = 0; i < it.bytes.size(); ++i)
    if (it.bytes[i] == 0) late = std::max(late, it.ready[i] - it.due[i]);
  return std::max(late, best(0, it.bytes));
}

TEST(Priority, NewestFirstIsOptimalAmongAllOrders) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE(round);
    const PriorityInstance it = random_instance(random);
    const PriorityPlan plan = plan_newest_first(it.problem(1), AffineCost{0, 1}).value();
    ASSERT_DOUBLE_EQ(plan.late, brute_force(it));
  }
}

TEST(Priority, SendsEveryByteOnceAndNoneBeforeItIsReady) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    PriorityInstance it = random_instance(random);
    for (auto& bytes : it.bytes) bytes *= 1000;
    const AffineCost cost{0.1, 1e-3};
    const std::uint64_t chunk = round % 2 == 0 ? 0 : 1 + random() % 3000;
    const PriorityPlan plan = plan_newest_first(it.problem(chunk), cost).value();
    std::vector<std::uint64_t> sent(it.bytes.size(), 0);
    double before = 0;
    for (const GradientMessage& message : plan.messages) {
      std::uint64_t bytes = 0;
      ASSERT_GE(message.start, before);
      for (const Piece& piece : message.pieces) {
        ASSERT_GE(message.start, it.ready[piece.gradient]);
        sent[piece.gradient] += piece.bytes;
        ASSERT_EQ(piece.offset, it.bytes[piece.gradient] - sent[piece.gradient]);
        bytes += piece.bytes;
      }
      ASSERT_LE(bytes, plan.chunk_bytes);
      ASSERT_NEAR(message.end - message.start, cost(bytes), 1e-9);
      before = message.end;
    }
    ASSERT_EQ(sent, it.bytes);
  }
}

TEST(Priority, BeatsTheOrderOfBackwardWhereCommunicationIsTheBottleneck) {
  // Ten layers of 40 MB. Backward takes 30 ms a layer, forward 10 ms a layer; the link has 1 GB/s.
  PriorityInstance it;
  for (int i = 0; i < 10; ++i) {
    it.bytes.push_back(40000000);
    it.ready.push_back(0.03 * (i + 1));
    it.due.push_back(0.3 + 0.01 * (9 - i));
  }
  const AffineCost cost{1e-4, 1e-9};
  const Plan in_order = plan_segments({it.bytes, it.ready}, cost).value();
  const double late = late_in_order(it.problem(0), in_order.last_indices, cost).value();
  const PriorityPlan plan = plan_newest_first(it.problem(0), cost).value();
  EXPECT_LT(plan.late, 0.8 * late);
  EXPECT_GT(plan.chunk_bytes, 1000000u) << "smaller chunks cost more than they gain";
  // The largest chunk whose lateness exceeds the best one by at most 1 % of an iteration.
  const auto late_with = [&](std::uint64_t chunk) {
    return plan_newest_first(it.problem(chunk), cost).value().late;
  };
  double least = late;
  for (std::uint64_t chunk = 400000000; chunk > 100000; chunk /= 2)
    least = std::min(least, late_with(chunk));
  const double enough = least + 0.01 * (it.due.front() + least);
  EXPECT_LE(plan.late, enough);
  EXPECT_GT(late_with(2 * plan.chunk_bytes), enough);
}

TEST(Priority, MessagesAreRangesOfMemory) {
  // The gradients' sizes and starts: 10 bytes from 0, 20 from 10, 0 from 30, 5 from 30. The second
  // message begins where the first one ends.
  PriorityPlan plan;
  plan.messages = {{{{1, 15, 5}}}, {{{3, 0, 5}, {1, 0, 15}, {0, 8, 2}}}, {{{0, 0, 8}}}};
  const std::vector<std::uint64_t> sizes = {10, 20, 0, 5};
  const std::vector<Range> expected = {{25, 30}, {30, 35}, {8, 25}, {0, 8}};
  EXPECT_EQ(ranges(plan, sizes), expected);
}

TEST(Priority, RefusesWithTheNameOfTheCulprit) {
  const std::vector<std::uint64_t> bytes = {1000000, 1000000};
  const std::vector<double> ready = {0, 1}, due = {3, 2}, rising = {2, 3}, one = {2};
  const auto refused = [&](const PriorityProblem& problem, const std::string& words) {
    const auto plan = plan_newest_first(problem, AffineCost{0, 1});
    ASSERT_FALSE(plan.ok());
    EXPECT_NE(plan.status().message().find(words), std::string::npos) << plan.status().message();
  };
  refused({bytes, ready, rising}, "due[1]");
  refused({bytes, ready, one}, "1 due times");
  refused({bytes, one, due}, "1 ready times");
  refused({bytes, ready, due, 3}, "chunk_bytes is 3");
  refused({{}, {}, {}}, "no gradients");
}

}  // namespace
}  // namespace hccl::split
