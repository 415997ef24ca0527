// HCCL_DETERMINISTIC=strict: a sum has the bits of a fold in rank order that rounds once, whichever
// algorithm and transport run and however the data is cut.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tests/support/world.h"

namespace hccl::testing {
namespace {

using core::Communicator;

/// The numbers of a rank, of very different sizes, so that the order of additions changes the sum.
std::vector<float> numbers(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) * 101 + 7);
  std::vector<float> out(count);
  for (float& each : out) {
    each = std::ldexp(static_cast<float>(random() % 20001) - 10000.0F,
                      static_cast<int>(random() % 30) - 15);
  }
  return out;
}

std::vector<float> in_rank_order(int size, std::size_t count) {
  std::vector<float> sum = numbers(0, count);
  for (int rank = 1; rank < size; ++rank) {
    const std::vector<float> next = numbers(rank, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += next[i];
  }
  return sum;
}

float product(float value, double factor) { return value * static_cast<float>(factor); }

struct StrictSetting {
  const char* name;
  const char* transport;
  const char* algo;
  int size;
};

class Strict : public ::testing::TestWithParam<StrictSetting> {};

TEST_P(Strict, BitsAreThoseOfTheFoldInRankOrder) {
  const StrictSetting& setting = GetParam();
  Config config;
  config.transport = setting.transport;
  config.algo = setting.algo;
  config.deterministic = Deterministic::kStrict;
  World world(setting.size, config);
  ASSERT_TRUE(world.ok());
  for (const std::size_t count : {1u, 1000u, 50000u, 700001u}) {
    const std::vector<float> expected = in_rank_order(setting.size, count);
    world.run([&](Communicator& c) {
      std::vector<float> data = numbers(c.rank(), count);
      ASSERT_TRUE(c.operations()
                      .run({Op::kAllReduce, data.data(), data.data(), count, DataType::kFp32,
                            ReduceOp::kSum, 0, 0})
                      .ok());
      EXPECT_EQ(std::memcmp(data.data(), expected.data(), count * sizeof(float)), 0)
          << count << " elements";
      // Sums a part of the vector alone: its bits must not depend on whether it is fused with the
      // rest.
      const std::size_t part = count / 3;
      data = numbers(c.rank(), count);
      ASSERT_TRUE(c.operations()
                      .run({Op::kReduce, data.data() + part, data.data() + part, count - part,
                            DataType::kFp32, ReduceOp::kSum, c.size() - 1, 0})
                      .ok());
      if (c.rank() == c.size() - 1) {
        EXPECT_EQ(
            std::memcmp(data.data() + part, expected.data() + part, (count - part) * sizeof(float)),
            0);
      }
    });
  }
}

// The average of 0.3 of each input, times 1.7: each step rounds.
TEST_P(Strict, BitsOfScaledAveragesAreThoseOfTheFoldInRankOrder) {
  const StrictSetting& setting = GetParam();
  Config config;
  config.transport = setting.transport;
  config.algo = setting.algo;
  config.deterministic = Deterministic::kStrict;
  World world(setting.size, config);
  ASSERT_TRUE(world.ok());
  for (const std::size_t count : {3u, 1000u, 50000u, 700001u}) {
    std::vector<float> expected(count);
    for (int rank = 0; rank < setting.size; ++rank) {
      const std::vector<float> next = numbers(rank, count);
      for (std::size_t i = 0; i < count; ++i) {
        expected[i] = rank == 0 ? product(next[i], 0.3) : expected[i] + product(next[i], 0.3);
      }
    }
    for (float& each : expected) each = product(each, 1.7) / static_cast<float>(setting.size);
    world.run([&](Communicator& c) {
      const std::vector<float> in = numbers(c.rank(), count);
      std::vector<float> out(count);
      Call call{Op::kAllReduce, in.data(), out.data(), count, DataType::kFp32, ReduceOp::kAvg};
      call.scale = {0.3, 1.7};
      ASSERT_TRUE(c.operations().run(call).ok());
      EXPECT_EQ(std::memcmp(out.data(), expected.data(), count * sizeof(float)), 0)
          << count << " elements";
      EXPECT_EQ(in, numbers(c.rank(), count)) << "the input was written";
      const auto n = static_cast<std::size_t>(c.size());
      const std::size_t block = count / n;
      call.op = Op::kReduceScatter;
      call.count = block;
      ASSERT_TRUE(c.operations().run(call).ok());
      EXPECT_EQ(
          std::memcmp(out.data(), expected.data() + block * static_cast<std::size_t>(c.rank()),
                      block * sizeof(float)),
          0)
          << block << " elements";
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, Strict,
                         ::testing::Values(StrictSetting{"host_of_two", "auto", "", 2},
                                           StrictSetting{"host_of_five", "auto", "", 5},
                                           StrictSetting{"tcp_of_two", "tcp", "", 2},
                                           StrictSetting{"tcp_of_five", "tcp", "", 5},
                                           StrictSetting{"ring_asked_for", "shm",
                                                         "level0:NA;level1:ring", 4}),
                         [](const auto& info) { return info.param.name; });

// Shows that the test above can fail: without strict, a ring folds in another order.
TEST(Strict, ARingWithoutItGivesOtherBits) {
  Config config;
  config.transport = "tcp";
  config.algo = "level0:NA;level1:ring";
  World world(4, config);
  ASSERT_TRUE(world.ok());
  constexpr std::size_t kCount = 50000;
  const std::vector<float> expected = in_rank_order(4, kCount);
  world.run([&](Communicator& c) {
    std::vector<float> data = numbers(c.rank(), kCount);
    ASSERT_TRUE(c.operations()
                    .run({Op::kAllReduce, data.data(), data.data(), kCount, DataType::kFp32,
                          ReduceOp::kSum, 0, 0})
                    .ok());
    EXPECT_NE(std::memcmp(data.data(), expected.data(), kCount * sizeof(float)), 0);
  });
}

// Ranks that fold in different orders would get different sums.
TEST(Strict, OnOneRankAloneIsRefused) {
  World world(2, Config());
  ASSERT_TRUE(world.ok());
  world.run([](Communicator& c) {
    if (c.rank() == 1) c.settings().deterministic = Deterministic::kStrict;
    std::vector<float> data(1000, 1.0F);
    const Status status = c.operations().run({Op::kAllReduce, data.data(), data.data(), data.size(),
                                              DataType::kFp32, ReduceOp::kSum, 0, 0});
    EXPECT_EQ(status.code(), Code::kPara);
    EXPECT_NE(status.message().find("HCCL_DETERMINISTIC"), std::string::npos) << status.message();
  });
}

}  // namespace
}  // namespace hccl::testing
