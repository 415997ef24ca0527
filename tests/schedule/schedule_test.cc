// Proves that every schedule of the table is right for every number of ranks, root and depth, and
// that it takes the steps and bytes that the table states.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hccl/schedule/algorithm.h"
#include "hccl/schedule/checker.h"
#include "tests/support/sanitizers.h"

namespace hccl::schedule {
namespace {

constexpr int kMostRanks = testing::kSanitized ? 17 : 128;

bool has_root(Op op) { return op == Op::kBroadcast || op == Op::kReduce || op == Op::kScatter; }

bool uses_depth(const Algorithm& algorithm) {
  return algorithm.build({0, 2, 0, 2}).chunks != algorithm.build({0, 2, 0, 1}).chunks;
}

std::vector<int> depths(const Algorithm& algorithm) {
  return uses_depth(algorithm) ? std::vector<int>{1, 2, 3, 8} : std::vector<int>{1};
}

std::string case_name(const ::testing::TestParamInfo<Algorithm>& info) {
  return std::string(to_string(info.param.op)) + "_" + std::string(info.param.name);
}

class EveryAlgorithm : public ::testing::TestWithParam<Algorithm> {};

TEST_P(EveryAlgorithm, IsRightForEverySizeRootAndDepth) {
  const Algorithm& algorithm = GetParam();
  int proved = 0;
  for (int size = 1; size <= kMostRanks; ++size) {
    if (!algorithm.refuse(size).empty()) continue;
    for (const int depth : depths(algorithm)) {
      for (int root = 0; root < (has_root(algorithm.op) ? size : 1); ++root) {
        const Status status = check(algorithm.op, size, root, depth, algorithm.build);
        ASSERT_TRUE(status.ok()) << status.message();
        ++proved;
      }
    }
  }
  EXPECT_GE(proved, 5);
}

// --- Costs, measured on the schedules themselves ---

// The longest path through the steps of all ranks. A step takes `weight`, and starts only when this
// rank and the peers of its messages have finished their previous steps.
class LongestPath {
 public:
  LongestPath(const Algorithm& algorithm, int size, int root, int depth) {
    for (int rank = 0; rank < size; ++rank) {
      schedules_.push_back(algorithm.build({rank, size, root, depth}));
    }
  }

  template <class Weight>
  double operator()(const Weight& weight) const {
    std::vector<std::size_t> step(schedules_.size(), 0);
    std::vector<double> clock(schedules_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      // The current steps of ranks that exchange messages run at once, as a group. Two ranks
      // exchange at most one message in a step, so a group is all ranks that are connected as
      // peers.
      for (std::size_t first = 0; first < schedules_.size(); ++first) {
        const std::vector<std::size_t> group = group_of(first, step);
        if (group.empty()) continue;
        std::map<std::size_t, double> ends;
        for (const std::size_t rank : group) {
          const Step& now = schedules_[rank].steps[step[rank]];
          double start = clock[rank];
          for (const std::size_t peer : peers(now)) start = std::max(start, clock[peer]);
          ends[rank] = start + weight(schedules_[rank], now);
        }
        for (const auto& [rank, end] : ends) {
          clock[rank] = end;
          ++step[rank];
        }
        moved = true;
      }
    }
    for (std::size_t rank = 0; rank < step.size(); ++rank) {
      EXPECT_EQ(step[rank], schedules_[rank].steps.size()) << "rank " << rank << " is stuck";
    }
    return *std::max_element(clock.begin(), clock.end());
  }

 private:
  static std::vector<std::size_t> peers(const Step& step) {
    std::vector<std::size_t> ranks;
    for (const Send& send : step.sends) ranks.push_back(static_cast<std::size_t>(send.peer));
    for (const Recv& recv : step.recvs) ranks.push_back(static_cast<std::size_t>(recv.peer));
    return ranks;
  }

  // Returns `first` and all ranks for which its current step waits, directly or indirectly; empty
  // if the step cannot run yet.
  std::vector<std::size_t> group_of(std::size_t first, const std::vector<std::size_t>& step) const {
    std::vector<std::size_t> group = {first};
    std::vector<bool> inside(schedules_.size(), false);
    inside[first] = true;
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::size_t rank = group[i];
      if (step[rank] == schedules_[rank].steps.size()) return {};
      for (const std::size_t peer : peers(schedules_[rank].steps[step[rank]])) {
        if (step[peer] == schedules_[peer].steps.size()) return {};
        const std::vector<std::size_t> back = peers(schedules_[peer].steps[step[peer]]);
        if (std::find(back.begin(), back.end(), rank) == back.end()) return {};
        if (!inside[peer]) group.push_back(peer);
        inside[peer] = true;
      }
    }
    return group;
  }

  std::vector<Schedule> schedules_;
};

double share(int chunks, const Schedule& schedule) {
  return schedule.chunks == 0 ? 0 : static_cast<double>(chunks) / schedule.chunks;
}

double steps_weight(const Schedule&, const Step& step) {
  return step.sends.empty() && step.recvs.empty() ? 0 : 1;
}

double bytes_weight(const Schedule& schedule, const Step& step) {
  int sent = 0, received = 0;
  for (const Send& send : step.sends) sent += send.from.count;
  for (const Recv& recv : step.recvs) received += recv.into.count;
  return share(std::max(sent, received), schedule);
}

double folded_weight(const Schedule& schedule, const Step& step) {
  int folded = 0;
  for (const Recv& recv : step.recvs) folded += recv.reduce_with ? recv.into.count : 0;
  for (const Fold& fold : step.folds) {
    folded += static_cast<int>(fold.inputs.size() - 1) * fold.into.count;
  }
  return share(folded, schedule);
}

// Several pieces for one peer count as one message.
double messages_weight(const Schedule&, const Step& step) {
  std::set<int> to, from;
  for (const Send& send : step.sends) to.insert(send.peer);
  for (const Recv& recv : step.recvs) from.insert(recv.peer);
  return static_cast<double>(std::max(to.size(), from.size()));
}

TEST_P(EveryAlgorithm, TakesTheStepsAndBytesOfItsCost) {
  const Algorithm& algorithm = GetParam();
  for (const int size : {1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 24, 31, 32, 33}) {
    if (!algorithm.refuse(size).empty()) continue;
    for (const int depth : depths(algorithm)) {
      const LongestPath path(algorithm, size, size / 2, depth);
      const Cost cost = algorithm.cost(size, depth);
      const std::string where = std::to_string(size) + " ranks, depth " + std::to_string(depth);
      EXPECT_DOUBLE_EQ(path(steps_weight), cost.steps) << where;
      if (algorithm.name == "double_tree") {
        // If nodes of both trees wait for each other, no simple formula gives the cost. So this is
        // a bound, which is close except for the smallest trees.
        const double margin = size < 4 ? 2.1 : 1.35;
        EXPECT_LE(path(bytes_weight), cost.bytes) << where;
        EXPECT_GE(path(bytes_weight) * margin, cost.bytes) << where;
        EXPECT_LE(path(folded_weight), cost.folded * (size < 4 ? 1.5 : 1.0)) << where;
        EXPECT_GE(path(folded_weight) * margin, cost.folded) << where;
        EXPECT_LE(path(messages_weight), cost.messages) << where;
        EXPECT_GE(path(messages_weight) * margin, cost.messages) << where;
        continue;
      }
      EXPECT_NEAR(path(bytes_weight), cost.bytes, 1e-9) << where;
      EXPECT_NEAR(path(folded_weight), cost.folded, 1e-9) << where;
      EXPECT_DOUBLE_EQ(path(messages_weight), cost.messages) << where;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, EveryAlgorithm,
                         ::testing::ValuesIn(algorithms().begin(), algorithms().end()), case_name);

TEST(TwoLevel, IsRightForEveryWayToSpreadRanksOverHosts) {
  for (int size = 1; size <= 48; ++size) {
    for (int hosts = 1; hosts <= size; ++hosts) {
      if (size % hosts != 0) continue;
      const Status right = check(Op::kAllReduce, size, 0, 1, [&](const Shape& shape) {
        Shape with_hosts = shape;
        with_hosts.hosts = hosts;
        return find(Op::kAllReduce, "two_level")->build(with_hosts);
      });
      EXPECT_TRUE(right.ok()) << hosts << " hosts: " << right.message();
    }
  }
}

// The purpose of two_level: a host of L ranks sends no more than a host of one rank would.
TEST(TwoLevel, SendsLittleBetweenHosts) {
  constexpr int kSize = 12;
  for (const int hosts : {2, 3, 4, 6}) {
    const int local = kSize / hosts;
    double sent = 0;
    for (int rank = 0; rank < local; ++rank) {
      const Schedule schedule =
          find(Op::kAllReduce, "two_level")->build({rank, kSize, 0, 1, hosts});
      for (const Step& step : schedule.steps) {
        for (const Send& send : step.sends) {
          if (send.peer / local != 0) sent += share(send.from.count, schedule);
        }
      }
    }
    EXPECT_NEAR(sent, 2.0 * (hosts - 1) / hosts, 1e-9);
  }
}

TEST(Table, NamesAreUniqueWithinAnOperationAndEveryEntrySaysWhatItDoes) {
  std::map<std::pair<Op, std::string_view>, int> seen;
  for (const Algorithm& algorithm : algorithms()) {
    EXPECT_EQ(++seen[std::pair(algorithm.op, algorithm.name)], 1) << algorithm.name;
    if (!algorithm.hccl.empty() && algorithm.hccl != algorithm.name) {
      EXPECT_EQ(++seen[std::pair(algorithm.op, algorithm.hccl)], 1) << algorithm.hccl;
    }
    EXPECT_EQ(algorithm.summary.back(), '.') << algorithm.name;
    EXPECT_EQ(find(algorithm.op, algorithm.name)->build, algorithm.build);
  }
}

TEST(Table, FindsByOurNameOrByHcclsWord) {
  EXPECT_EQ(find(Op::kAllReduce, "H-D_R")->name, "halving_doubling");
  EXPECT_EQ(find(Op::kAllReduce, "fullmesh")->name, "direct");
  EXPECT_EQ(find(Op::kBroadcast, "pipeline")->name, "chain");
  EXPECT_EQ(find(Op::kAllToAll, "ring"), nullptr);
  EXPECT_EQ(find(Op::kAllReduce, ""), nullptr);
  EXPECT_EQ(find(Op::kAllReduce, "no such thing"), nullptr);
}

}  // namespace
}  // namespace hccl::schedule
