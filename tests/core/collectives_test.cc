// Every collective by every algorithm over every transport, against exact results.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "hccl/exec/chunk_layout.h"
#include "hccl/kernels/kernels.h"
#include "hccl/schedule/algorithm.h"
#include "tests/core/transports.h"
#include "tests/support/config.h"
#include "tests/support/numbers.h"
#include "tests/support/one_message.h"
#include "tests/support/sanitizers.h"
#include "tests/support/world.h"

namespace hccl::testing {
namespace {

using core::Communicator;

Config config_of(const std::string& transport, const std::string& algorithm) {
  Config config = quiet_config(transport);
  if (!algorithm.empty()) config.algo = "level1:" + algorithm;
  return config;
}

// The value of rank r at element i: small, different for each rank and element.
std::uint64_t value(DataType type, ReduceOp op, int rank, std::size_t i, int size) {
  const std::uint64_t mixed =
      (i + static_cast<std::uint64_t>(rank) * 7 + 1) * 0x9E3779B97F4A7C15u >> 40;
  // Eight-bit floats hold few whole numbers; sums and products of eight ranks stay within them.
  if (size_of(type) == 1 && float_format(type).exponent_bits != 0) return mixed & 1;
  if (op == ReduceOp::kProd) return mixed % static_cast<std::uint64_t>(size) == 0 ? 2 : 1;
  return (mixed & 7) + 1;
}

std::uint64_t reduced(DataType type, ReduceOp op, std::size_t i, int size) {
  return fold(op, size, [&](int rank) { return value(type, op, rank, i, size); });
}

// Whether the operation is in place, and how far its buffers are off alignment.
struct Placement {
  bool in_place;
  std::size_t skew;  // bytes off alignment
};

// The buffers of a rank, which all its cases use. Under the thread sanitizer, new memory for each
// case would take longer than the case.
struct Memory {
  std::vector<std::byte> in;
  std::vector<std::byte> out;
  std::vector<std::byte> before;  // what was in `in`
};

// One collective on one rank: fills the buffers, runs, compares. Element j of block b of the vector
// is element b * count + j.
class Case {
 public:
  Case(Memory& memory, Communicator& communicator, Op op, std::uint64_t count, DataType type,
       ReduceOp reduce, int root, Placement placement)
      : memory_(memory),
        c_(communicator),
        op_(op),
        count_(count),
        type_(type),
        reduce_(reduce),
        root_(root),
        place_(placement) {}

  void run() {
    const int n = c_.size();
    const std::uint64_t vector = count_ * static_cast<std::uint64_t>(exec::blocks_of(op_, n));
    const std::uint64_t in_count = op_ == Op::kAllGather ? count_ : vector;
    const std::uint64_t out_count =
        op_ == Op::kReduceScatter || op_ == Op::kScatter ? count_ : vector;
    const bool has_in = op_ != Op::kBroadcast && (op_ != Op::kScatter || c_.rank() == root_);
    const bool has_out = op_ != Op::kBarrier && (op_ != Op::kReduce || c_.rank() == root_);
    memory_.in.assign(in_count * element() + 64, std::byte{});
    memory_.out.assign(out_count * element() + 64, std::byte{0xEE});
    std::byte* in = memory_.in.data() + place_.skew;
    std::byte* out = memory_.out.data() + place_.skew;
    if (place_.in_place && op_ != Op::kAllToAll) alias(in, out, vector);
    if (op_ == Op::kBroadcast) in = out;
    if (has_in) fill(in, in_count);
    if (op_ == Op::kBroadcast && c_.rank() == root_) fill(out, vector);
    memory_.before = memory_.in;

    const Status status =
        c_.operations().run({op_, has_in || op_ == Op::kBroadcast ? in : nullptr,
                             has_out ? out : nullptr, count_, type_, reduce_, root_, 0});
    ASSERT_TRUE(status.ok()) << status.message();
    if (has_out) compare(out, out_count);
    if (!place_.in_place && op_ != Op::kBroadcast) {
      // Not operator==, which compares one std::byte at a time.
      EXPECT_EQ(std::memcmp(memory_.before.data(), memory_.in.data(), memory_.in.size()), 0)
          << "the send buffer was written";
    }
  }

 private:
  std::size_t element() const { return size_of(type_); }

  void alias(std::byte*& in, std::byte*& out, std::uint64_t vector) {
    auto& whole = memory_.in.size() > memory_.out.size() ? memory_.in : memory_.out;
    whole.resize(vector * element() + 64);
    std::byte* base = whole.data() + place_.skew;
    const std::size_t own = static_cast<std::size_t>(c_.rank()) * count_ * element();
    in = base + (op_ == Op::kAllGather ? own : 0);
    out =
        base + (op_ == Op::kReduceScatter || (op_ == Op::kScatter && c_.rank() == root_) ? own : 0);
  }

  std::uint64_t mine(std::size_t i) const { return value(type_, reduce_, c_.rank(), i, c_.size()); }

  void fill(std::byte* in, std::uint64_t elements) const {
    for (std::size_t i = 0; i < elements; ++i) put(type_, in, i, mine(i));
  }

  std::uint64_t expected(std::size_t i) const {
    const auto own = static_cast<std::size_t>(c_.rank());
    switch (op_) {
      case Op::kAllReduce:
      case Op::kReduce:
        return reduced(type_, reduce_, i, c_.size());
      case Op::kReduceScatter:
        return reduced(type_, reduce_, own * count_ + i, c_.size());
      case Op::kBroadcast:
        return value(type_, reduce_, root_, i, c_.size());
      case Op::kScatter:
        return value(type_, reduce_, root_, own * count_ + i, c_.size());
      case Op::kAllGather:
        return value(type_, reduce_, static_cast<int>(i / count_), i % count_, c_.size());
      case Op::kAllToAll:
        return value(type_, reduce_, static_cast<int>(i / count_), own * count_ + i % count_,
                     c_.size());
      case Op::kBarrier:
      case Op::kReduceScatterV:
      case Op::kAllGatherV:
      case Op::kAllToAllV:  // exchange_test.cc
        break;
    }
    return 0;
  }

  void compare(const std::byte* out, std::uint64_t elements) const {
    std::size_t wrong = 0;
    std::size_t first = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      if (holds(type_, out, i, expected(i))) continue;
      if (wrong++ == 0) first = i;
    }
    EXPECT_EQ(wrong, 0u) << "first at element " << first << ", rank " << c_.rank();
  }

  Memory& memory_;
  Communicator& c_;
  Op op_;
  std::uint64_t count_;
  DataType type_;
  ReduceOp reduce_;
  int root_;
  Placement place_;
};

// Joining takes longer than a case, so the last world is kept for cases that need the same one. It
// ends with the tests, before the libraries that it uses.
class KeptWorld : public ::testing::Environment {
 public:
  void TearDown() override { world_.reset(); }

  World& get(const std::string& transport, const std::string& algorithm, int size) {
    const std::string name = transport + " " + algorithm + " " + std::to_string(size);
    if (!world_ || name_ != name) {
      world_.reset();
      world_ = std::make_unique<World>(size, config_of(transport, algorithm));
      name_ = name;
    }
    return *world_;
  }

 private:
  std::string name_;
  std::unique_ptr<World> world_;
};

// GoogleTest deletes this object.
auto* const kept_world =
    static_cast<KeptWorld*>(::testing::AddGlobalTestEnvironment(new KeptWorld));

World& world_of(const std::string& transport, const std::string& algorithm, int size) {
  return kept_world->get(transport, algorithm, size);
}

struct Parameters {
  std::string transport;
  Op op;
  std::string algorithm;
  int size;
};

void PrintTo(const Parameters& p, std::ostream* out) {
  *out << hccl::to_string(p.op) << " by " << p.algorithm;
}

std::string readable(const ::testing::TestParamInfo<Parameters>& info) {
  const auto& p = info.param;
  return std::string(hccl::to_string(p.op)) + "_by_" + p.algorithm + "_over_" + p.transport + "_" +
         std::to_string(p.size) + "_ranks";
}

std::vector<Parameters> all_algorithms() {
  std::vector<Parameters> out;
  for (const auto& transport : transports()) {
    for (const int size : World::sizes()) {
      if (kThreadSanitizer && size > 5) continue;
      for (const auto& algorithm : schedule::algorithms()) {
        if (!algorithm.refuse(size).empty()) continue;
        out.push_back({transport, algorithm.op, std::string(algorithm.name), size});
      }
    }
  }
  // Sorts the cases of one world one after another.
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return std::tie(a.transport, a.size, a.algorithm) < std::tie(b.transport, b.size, b.algorithm);
  });
  return out;
}

class EveryAlgorithm : public ::testing::TestWithParam<Parameters> {};

TEST_P(EveryAlgorithm, GivesExactResultsForEverySize) {
  const auto& p = GetParam();
  World& world = world_of(p.transport, p.algorithm, p.size);
  ASSERT_TRUE(world.ok());
  const auto run = [&](Memory& memory, Communicator& c, std::uint64_t count, Placement placement) {
    SCOPED_TRACE("count " + std::to_string(count) + (placement.in_place ? " in place" : "") +
                 (placement.skew != 0 ? " unaligned" : ""));
    const int root = static_cast<int>(count % static_cast<std::uint64_t>(p.size));
    Case(memory, c, p.op, count, DataType::kFp32, ReduceOp::kSum, root, placement).run();
  };
  world.run([&](Communicator& c) {
    Memory memory;
    const auto blocks = static_cast<std::uint64_t>(exec::blocks_of(p.op, p.size));
    for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{5},
                                      std::uint64_t{1023}, std::uint64_t{1024}, 70001 / blocks}) {
      for (const Placement placement :
           {Placement{false, 0}, Placement{true, 0}, Placement{false, 3}}) {
        run(memory, c, count, placement);
      }
    }
    // Many MiB, so that several slices and messages are needed.
    if (!kSanitized && p.size <= 4)
      run(memory, c, (std::uint64_t{5} << 18) / blocks + 1, Placement{true, 0});
    EXPECT_EQ(c.operations().selection().algorithm(p.op), p.algorithm)
        << "another algorithm was taken";
  });
}

INSTANTIATE_TEST_SUITE_P(Collectives, EveryAlgorithm, ::testing::ValuesIn(all_algorithms()),
                         readable);

struct TypeParameters {
  std::string transport;
  Op op;
  DataType type;
  ReduceOp reduce;
};

std::vector<TypeParameters> all_types() {
  std::vector<TypeParameters> out;
  for (const auto& transport : {std::string("auto"), std::string("tcp")}) {
    for (const Op op : {Op::kAllReduce, Op::kReduceScatter, Op::kReduce, Op::kBroadcast,
                        Op::kAllGather, Op::kScatter, Op::kAllToAll}) {
      const bool reduces = op == Op::kAllReduce || op == Op::kReduceScatter || op == Op::kReduce;
      for (const DataType type : kAllTypes) {
        if (reduces && !kernels::reducible(type)) continue;
        if (kThreadSanitizer && type != DataType::kFp32 && type != DataType::kFp16) continue;
        for (int r = 0; r < (reduces ? 4 : 1); ++r) {
          out.push_back({transport, op, type, static_cast<ReduceOp>(r)});
        }
      }
    }
  }
  return out;
}

void PrintTo(const TypeParameters& p, std::ostream* out) {
  *out << hccl::to_string(p.op) << " of " << to_string(p.type);
}

std::string readable_type(const ::testing::TestParamInfo<TypeParameters>& info) {
  const auto& p = info.param;
  return std::string(hccl::to_string(p.op)) + "_" + std::string(to_string(p.type)) + "_" +
         std::string(to_string(p.reduce)) + "_over_" + p.transport;
}

class EveryType : public ::testing::TestWithParam<TypeParameters> {};

TEST_P(EveryType, GivesExactResults) {
  const auto& p = GetParam();
  World& world = world_of(p.transport, "", World::sizes().size() == 1 ? World::sizes().front() : 4);
  ASSERT_TRUE(world.ok());
  world.run([&](Communicator& c) {
    Memory memory;
    for (const std::uint64_t count : {1u, 333u, 5001u}) {
      for (const Placement placement : {Placement{false, 1}, Placement{true, 0}}) {
        SCOPED_TRACE("count " + std::to_string(count) + (placement.in_place ? " in place" : ""));
        Case(memory, c, p.op, count, p.type, p.reduce, c.size() - 1, placement).run();
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Collectives, EveryType, ::testing::ValuesIn(all_types()), readable_type);

// Sums that must be rounded: every rank has the same bits, each time, and the sums are accurate.
TEST(Collectives, RoundedSumsAreEqualOnAllRanksAndAccurate) {
  const int size = World::sizes().back();
  for (const schedule::Algorithm& algorithm : schedule::algorithms()) {
    if (algorithm.op != Op::kAllReduce || !algorithm.refuse(size).empty()) continue;
    World& world = world_of("auto", std::string(algorithm.name), size);
    world.run([&](Communicator& c) {
      constexpr std::size_t kCount = 4099;
      std::vector<float> first;
      for (int repeat = 0; repeat < 3; ++repeat) {
        std::vector<float> data(kCount);
        for (std::size_t i = 0; i < kCount; ++i) {
          data[i] = 1.0f / static_cast<float>(1 + i + 17 * static_cast<std::size_t>(c.rank()));
        }
        ASSERT_TRUE(c.operations()
                        .run({Op::kAllReduce, data.data(), data.data(), kCount, DataType::kFp32,
                              ReduceOp::kSum, 0, 0})
                        .ok());
        if (repeat == 0) first = data;
        EXPECT_EQ(first, data) << "not the same bits again";
        for (std::size_t i = 0; i < kCount; ++i) {
          double sum = 0;
          for (int r = 0; r < c.size(); ++r) {
            sum += static_cast<double>(
                1.0f / static_cast<float>(1 + i + 17 * static_cast<std::size_t>(r)));
          }
          ASSERT_NEAR(data[i], sum, sum * c.size() * 0x1p-24) << i;
        }
      }
      std::vector<float> least = first;
      std::vector<float> most = first;
      ASSERT_TRUE(c.operations()
                      .run({Op::kAllReduce, least.data(), least.data(), kCount, DataType::kFp32,
                            ReduceOp::kMin, 0, 0})
                      .ok());
      ASSERT_TRUE(c.operations()
                      .run({Op::kAllReduce, most.data(), most.data(), kCount, DataType::kFp32,
                            ReduceOp::kMax, 0, 0})
                      .ok());
      EXPECT_EQ(least, most) << "ranks differ";
    });
  }
}

class EveryTransport : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryTransport, SendsAndReceivesBetweenAllPairs) {
  const int size = World::sizes().back();
  World& world = world_of(GetParam(), "", size);
  world.run([&](Communicator& c) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{777}, std::size_t{300000}}) {
      for (int distance = 1; distance < c.size(); ++distance) {
        const int to = (c.rank() + distance) % c.size();
        const int from = (c.rank() - distance + c.size()) % c.size();
        std::vector<int> out(count, c.rank() * 1000 + to);
        std::vector<int> in(count, -1);
        const auto send = [&] { return send_one(c, to, out.data(), count, DataType::kInt32); };
        const auto recv = [&] { return recv_one(c, from, in.data(), count, DataType::kInt32); };
        // In a ring of sends one rank must receive first: a rank whose receiver's number wraps
        // around does.
        const bool sends_first = (c.rank() / distance) % 2 == 0 && c.rank() + distance < c.size();
        const Status one = sends_first ? send() : recv();
        ASSERT_TRUE(one.ok()) << one.message();
        const Status two = sends_first ? recv() : send();
        ASSERT_TRUE(two.ok()) << two.message();
        EXPECT_EQ(in, std::vector<int>(count, from * 1000 + c.rank()));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Collectives, EveryTransport, ::testing::ValuesIn(transports()),
                         [](const auto& info) { return info.param; });

TEST(Collectives, BarrierHoldsEverybodyBack) {
  const int size = World::sizes().back();
  World& world = world_of("auto", "", size);
  std::vector<std::atomic<int>> arrived(static_cast<std::size_t>(size));
  const bool threads = World::sizes().size() > 1;
  world.run([&](Communicator& c) {
    for (int round = 1; round <= 100; ++round) {
      arrived[static_cast<std::size_t>(c.rank())] = round;
      ASSERT_TRUE(c.operations().run({}).ok());
      for (const auto& each : arrived) {
        if (threads) {
          ASSERT_GE(each.load(), round);
        }
      }
    }
  });
}

TEST(Collectives, GroupsOfSomeRanksWorkBesideTheWorld) {
  const int size = World::sizes().back();
  if (size < 2) return;
  World& world = world_of("auto", "", size);
  world.run([&](Communicator& c) {
    // Even and odd ranks each have a group; the even ranks are in reverse order.
    std::vector<int> ranks;
    for (int r = c.rank() % 2; r < c.size(); r += 2) ranks.push_back(r);
    if (c.rank() % 2 == 0) std::reverse(ranks.begin(), ranks.end());
    auto group = c.group(c.rank() % 2 == 0 ? "even" : "odd", ranks, 0);
    ASSERT_TRUE(group.ok()) << group.status().message();
    Communicator& g = **group;
    EXPECT_EQ(g.membership().ranks[static_cast<std::size_t>(g.rank())], c.rank());
    int sum = c.rank();
    ASSERT_TRUE(g.operations()
                    .run({Op::kAllReduce, &sum, &sum, 1, DataType::kInt32, ReduceOp::kSum, 0, 0})
                    .ok());
    int expected = 0;
    for (const int r : ranks) expected += r;
    EXPECT_EQ(sum, expected);
    int whole = 1;
    ASSERT_TRUE(
        c.operations()
            .run({Op::kAllReduce, &whole, &whole, 1, DataType::kInt32, ReduceOp::kSum, 0, 0})
            .ok());
    EXPECT_EQ(whole, c.size());
  });
}

}  // namespace
}  // namespace hccl::testing
