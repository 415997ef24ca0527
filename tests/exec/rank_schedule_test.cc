// Proves that schedules are right after ranks have swapped their places.
#include "hccl/exec/rank_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "hccl/schedule/checker.h"

namespace hccl::exec {
namespace {

TEST(RankSchedule, RanksTakeEachOthersPlacesWhereThatIsAllowed) {
  std::mt19937 random(7);
  for (const schedule::Algorithm& algorithm : schedule::algorithms()) {
    for (int size = 1; size <= 17; ++size) {
      if (!algorithm.refuse(size).empty()) continue;
      std::vector<int> order(static_cast<std::size_t>(size));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      int moved = 0;
      const auto build = [&](const schedule::Shape& shape) {
        schedule::Schedule schedule = make_rank_schedule(algorithm, shape, order).schedule;
        const schedule::Schedule usual = algorithm.build(shape);
        for (std::size_t i = 0; i < std::min(usual.steps.size(), schedule.steps.size()); ++i) {
          const auto& sends = schedule.steps[i].sends;
          const auto& usual_sends = usual.steps[i].sends;
          if (sends.empty() || usual_sends.empty()) continue;
          moved += sends.front().peer != usual_sends.front().peer ? 1 : 0;
        }
        return schedule;
      };
      const Status right = schedule::check(algorithm.op, size, 0, 2, build);
      EXPECT_TRUE(right.ok()) << right.message();
      if (size > 8) {
        EXPECT_EQ(moved > 0, algorithm.any_order) << algorithm.name << ", " << size << " ranks";
      }
    }
  }
}

}  // namespace
}  // namespace hccl::exec
