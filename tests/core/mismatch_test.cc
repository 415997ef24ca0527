// Ranks whose calls differ: every rank gets the parameter error with both calls in its text within
// seconds, and no rank gets a result that looks right. One rank deviates; ranks are threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <thread>

#include "hccl/base/call.h"
#include "tests/support/config.h"
#include "tests/support/load.h"
#include "tests/support/one_message.h"
#include "tests/support/world.h"

namespace hccl::testing {
namespace {

using std::chrono::seconds;

constexpr std::uint64_t kCount = 60;
constexpr seconds kSoon{3};

// The operation that all ranks but one call, and how it is run.
struct Agreed {
  const char* name;
  Op op;
  const char* algorithm;
};

void PrintTo(const Agreed& agreed, std::ostream* out) { *out << agreed.name; }

constexpr Agreed kAllreduceRing{"allreduce_ring", Op::kAllReduce, "ring"};
constexpr Agreed kAllreduceDoubling{"allreduce_doubling", Op::kAllReduce, "H-D_R"};
constexpr Agreed kAllreduceTree{"allreduce_tree", Op::kAllReduce, "double_tree"};
constexpr Agreed kAllreduceDirect{"allreduce_direct", Op::kAllReduce, ""};
constexpr Agreed kBroadcast{"broadcast", Op::kBroadcast, ""};
constexpr Agreed kReduce{"reduce", Op::kReduce, ""};
constexpr Agreed kReduceScatter{"reduce_scatter", Op::kReduceScatter, ""};
constexpr Agreed kAllGather{"allgather", Op::kAllGather, ""};
constexpr Agreed kAllToAll{"alltoall", Op::kAllToAll, ""};
constexpr Agreed kScatter{"scatter", Op::kScatter, ""};

// The change by which the odd rank's call differs.
struct Deviation {
  const char* name;
  void (*change)(Call& call);
};

const Deviation kDeviations[] = {
    {"count", [](Call& call) { call.count += 2; }},
    {"much_larger_count", [](Call& call) { call.count *= 2000; }},
    {"count_0", [](Call& call) { call.count = 0; }},
    {"type_of_the_same_size", [](Call& call) { call.type = DataType::kInt32; }},
    {"type_of_another_size", [](Call& call) { call.type = DataType::kFp16; }},
    {"reduction", [](Call& call) { call.reduce = ReduceOp::kMax; }},
    {"scale", [](Call& call) { call.scale.after = 0.1; }},
    {"average", [](Call& call) { call.reduce = ReduceOp::kAvg; }},
    {"root", [](Call& call) { call.root = 1 - call.root; }},
    {"allreduce_instead", [](Call& call) { call.op = Op::kAllReduce; }},
    {"broadcast_instead", [](Call& call) { call.op = Op::kBroadcast; }},
    {"barrier_instead", [](Call& call) { call.op = Op::kBarrier; }},
    {"allgather_instead", [](Call& call) { call.op = Op::kAllGather; }},
    {"plan", [](Call& call) { call.plan = 4711; }},
};

Config config_with(const std::string& transport, const std::string& algorithm) {
  Config config = quiet_config(transport);
  if (!algorithm.empty()) config.algo = "level0:NA;level1:" + algorithm;
  return config;
}

// Buffers for `count` elements of each rank; no call has a wider type than fp32.
struct CallBuffers {
  CallBuffers(std::uint64_t count, int size)
      : in(count * static_cast<std::size_t>(size) + 64, 1.0F), out(in.size()) {}
  std::vector<float> in;
  std::vector<float> out;
};

struct Seen {
  Status status;
  Status later;
  std::chrono::nanoseconds took{0};
};

bool has(const Status& status, const std::string& words) {
  return status.message().find(words) != std::string::npos;
}

class Mismatch : public ::testing::TestWithParam<std::tuple<Agreed, std::string, int>> {};

TEST_P(Mismatch, IsAParameterErrorOnAllRanks) {
  const auto& [agreed, transport, size] = GetParam();
  const Load load;
  std::chrono::nanoseconds worst{0};
  int turn = 0;
  for (const Deviation& deviation : kDeviations) {
    const int odd = turn++ % size;  // each rank is the odd one in turn
    const Call common{.op = agreed.op, .count = kCount};
    Call deviating = common;
    deviation.change(deviating);
    const Envelope sent = envelope(deviating, 1, 0);
    if (sent == envelope(common, 1, 0)) continue;  // the change does not affect this operation
    SCOPED_TRACE(std::string(deviation.name) + " on rank " + std::to_string(odd));
    World world(size, config_with(transport, agreed.algorithm));
    ASSERT_TRUE(world.ok());
    std::vector<Seen> seen(static_cast<std::size_t>(size));
    world.run([&](core::Communicator& communicator) {
      Seen& mine = seen[static_cast<std::size_t>(communicator.rank())];
      CallBuffers buffers(std::max(common.count, deviating.count), size);
      const auto begun = Deadline::Clock::now();
      Call call = communicator.rank() == odd ? deviating : common;
      call.in = buffers.in.data();
      call.out = call.op == Op::kBroadcast ? buffers.in.data() : buffers.out.data();
      mine.status = communicator.operations().run(call);
      mine.took = Deadline::Clock::now() - begun;
      call = common;
      call.in = call.out = buffers.in.data();
      mine.later = communicator.operations().run(call);
    });
    const std::string odd_words = to_string(sent);
    const std::string common_words = to_string(envelope(common, 1, 0));
    for (int r = 0; r < size; ++r) {
      const Seen& mine = seen[static_cast<std::size_t>(r)];
      EXPECT_EQ(mine.status.code(), Code::kPara) << "rank " << r << ": " << mine.status.message();
      EXPECT_EQ(mine.later.code(), Code::kPara) << "rank " << r << ": " << mine.later.message();
      EXPECT_TRUE(has(mine.status, odd_words)) << mine.status.message() << "\nlacks " << odd_words;
      EXPECT_TRUE(has(mine.status, common_words))
          << mine.status.message() << "\nlacks " << common_words;
      EXPECT_LE(mine.took, load.allows(kSoon));
      worst = std::max(worst, mine.took);
    }
  }
  std::cout << "  slowest: " << std::chrono::duration<double>(worst).count() << " s\n";
}

class PointToPointMismatch : public ::testing::TestWithParam<std::string> {};

// Three ranks: the sender, the receiver, and a rank that takes no part.
TEST_P(PointToPointMismatch, IsAParameterErrorOnAllRanks) {
  struct Odd {
    std::uint64_t count;
    DataType type;
    const char* words;
  };
  const Load load;
  for (const Odd& odd :
       {Odd{kCount + 2, DataType::kFp32, "count 62"},
        Odd{2000 * kCount, DataType::kFp32, "count 120000"}, Odd{0, DataType::kFp32, "count 0"},
        Odd{kCount, DataType::kInt32, "int32"}, Odd{kCount, DataType::kFp16, "fp16"}}) {
    for (const int odd_rank : {0, 1}) {
      SCOPED_TRACE(std::string(odd.words) + " on rank " + std::to_string(odd_rank));
      World world(3, config_with(GetParam(), ""));
      ASSERT_TRUE(world.ok());
      std::vector<Seen> seen(3);
      world.run([&](core::Communicator& communicator) {
        const int rank = communicator.rank();
        Seen& mine = seen[static_cast<std::size_t>(rank)];
        CallBuffers buffers(std::max(odd.count, kCount), 1);
        const std::uint64_t count = rank == odd_rank ? odd.count : kCount;
        const DataType type = rank == odd_rank ? odd.type : DataType::kFp32;
        const auto begun = Deadline::Clock::now();
        if (rank == 0) mine.status = send_one(communicator, 1, buffers.in.data(), count, type);
        if (rank == 1) mine.status = recv_one(communicator, 0, buffers.out.data(), count, type);
        Call barrier;
        mine.later = communicator.operations().run(barrier);
        if (rank == 2) mine.status = mine.later;
        mine.took = Deadline::Clock::now() - begun;
      });
      for (const Seen& mine : seen) {
        EXPECT_EQ(mine.status.code(), Code::kPara) << mine.status.message();
        EXPECT_EQ(mine.later.code(), Code::kPara) << mine.later.message();
        EXPECT_TRUE(has(mine.status, odd.words)) << mine.status.message();
        EXPECT_TRUE(has(mine.status, "count 60, fp32")) << mine.status.message();
        EXPECT_LE(mine.took, load.allows(kSoon));
      }
    }
  }
}

// The ranks wait for each other: one sends and the others are in a collective, or each sends to the
// next rank before it receives. Rank 0 may compute for longer, and then all go well.
TEST_P(PointToPointMismatch, ACircleOfWaitsIsAParameterErrorOnAllRanks) {
  constexpr seconds kPeerTimeout{2};
  const Load load;
  for (const bool ring : {false, true}) {
    Config config = config_with(GetParam(), "");
    config.peer_timeout = kPeerTimeout;
    World world(3, config);
    ASSERT_TRUE(world.ok());
    std::vector<Seen> seen(3);
    world.run([&](core::Communicator& communicator) {
      const int rank = communicator.rank();
      Seen& mine = seen[static_cast<std::size_t>(rank)];
      CallBuffers buffers(kCount, 1);
      if (rank == 0) std::this_thread::sleep_for(kPeerTimeout + seconds(1));
      EXPECT_TRUE(communicator.operations().run(Call()).ok());
      const auto begun = Deadline::Clock::now();
      if (ring || rank == 0) {
        const int next = (rank + 1) % 3;
        mine.status = send_one(communicator, next, buffers.in.data(), kCount, DataType::kFp32);
      } else {
        Call call{.op = Op::kAllReduce, .count = kCount};
        call.in = call.out = buffers.in.data();
        mine.status = communicator.operations().run(call);
      }
      mine.took = Deadline::Clock::now() - begun;
    });
    for (const Seen& mine : seen) {
      EXPECT_EQ(mine.status.code(), Code::kPara) << mine.status.message();
      EXPECT_TRUE(has(mine.status, "rank 0 waits for rank 1 in send #1 ")) << mine.status.message();
      const std::string last =
          ring ? "rank 2 waits for rank 0 in send #1 (count 60, fp32)"
               : "rank 1 waits for rank 0 in allreduce #2 (count 60, fp32, sum)";
      EXPECT_TRUE(has(mine.status, last)) << mine.status.message();
      EXPECT_LE(mine.took, load.allows(kPeerTimeout + kSoon));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, PointToPointMismatch, ::testing::Values("auto", "tcp"),
                         [](const auto& info) { return info.param; });

std::string name_of(const ::testing::TestParamInfo<Mismatch::ParamType>& info) {
  const auto& [agreed, transport, size] = info.param;
  return std::string(agreed.name) + "_" + transport + "_" + std::to_string(size);
}

INSTANTIATE_TEST_SUITE_P(Calls, Mismatch,
                         ::testing::Combine(::testing::Values(kAllreduceRing, kAllreduceDoubling,
                                                              kAllreduceTree, kAllreduceDirect,
                                                              kBroadcast, kReduce, kReduceScatter,
                                                              kAllGather, kAllToAll, kScatter),
                                            ::testing::Values("auto", "tcp"),
                                            ::testing::Values(2, 3, 4)),
                         name_of);

}  // namespace
}  // namespace hccl::testing
