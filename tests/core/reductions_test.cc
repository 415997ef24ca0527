// Averages, bitwise and logical reductions, and factors: every remote algorithm and the local ones,
// against results computed here.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "hccl/schedule/algorithm.h"
#include "tests/support/sanitizers.h"
#include "tests/support/world.h"

namespace hccl::testing {
namespace {

using core::Communicator;

struct ReductionSetting {
  std::string transport;
  std::string algorithm;
  int size;
};

void PrintTo(const ReductionSetting& s, std::ostream* out) {
  *out << s.transport << " " << s.algorithm;
}

std::vector<ReductionSetting> settings() {
  std::vector<ReductionSetting> all;
  for (const int size : {1, 2, 3, 5}) all.push_back({"auto", "", size});
  std::set<std::string> seen;
  for (const auto& algorithm : schedule::algorithms()) {
    if (!reduces(algorithm.op) || !algorithm.refuse(4).empty()) continue;
    // collectives_test runs the other algorithms under the thread sanitizer.
    if (kThreadSanitizer && algorithm.name != "ring" && algorithm.name != "double_tree") continue;
    if (seen.insert(std::string(algorithm.name)).second) {
      all.push_back({"shm", "level0:NA;level1:" + std::string(algorithm.name), 4});
    }
  }
  all.push_back({"tcp", "level0:NA;level1:ring", 3});
  all.push_back({"tcp", "level0:NA", 1});
  return all;
}

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

// Zero on some ranks; for some elements zero on all ranks.
std::uint32_t bits(int rank, std::size_t i) {
  const auto mixed =
      static_cast<std::uint32_t>((i + 1) * 2654435761u + at(rank) * 40503u * (i + 7));
  return i % 5 == 0 || (i + at(rank)) % 3 == 0 ? 0 : mixed;
}

std::uint32_t folded(ReduceOp op, std::size_t i, int size) {
  const auto input = [&](int rank) { return logical(op) ? bits(rank, i) != 0 : bits(rank, i); };
  std::uint32_t out = input(0);
  for (int r = 1; r < size; ++r) {
    if (op == ReduceOp::kBitAnd || op == ReduceOp::kLogicalAnd) out &= input(r);
    if (op == ReduceOp::kBitOr || op == ReduceOp::kLogicalOr) out |= input(r);
    if (op == ReduceOp::kBitXor || op == ReduceOp::kLogicalXor) out ^= input(r);
  }
  return out;
}

class Reductions : public ::testing::TestWithParam<ReductionSetting> {
 protected:
  World world_{GetParam().size, [] {
                 Config config;
                 config.transport = GetParam().transport;
                 config.algo = GetParam().algorithm;
                 config.exec_timeout = std::chrono::seconds(60);
                 config.flight_recorder_dir = "off";
                 return config;
               }()};
};

// Runs allreduce, reduce and reduce-scatter; expected(i, x) returns whether x is right at element
// i.
template <class T, class Expected>
void check(Communicator& c, Call call, const std::vector<T>& in, const Expected& expected) {
  const std::size_t count = in.size() / at(c.size());
  // Each rank is a thread. Under the thread sanitizer, new memory for each call would take longer
  // than the call.
  thread_local std::vector<T> out;
  const auto run = [&](Op op, std::size_t elements, std::size_t first, bool takes) {
    out.assign(elements, T{});
    call.op = op;
    call.in = in.data();
    call.out = takes ? out.data() : nullptr;
    call.count = elements;
    call.root = op == Op::kReduce ? c.size() - 1 : 0;
    const Status status = c.operations().run(call);
    ASSERT_TRUE(status.ok()) << status.message();
    std::size_t right = 0;
    while (takes && right < elements && expected(first + right, out[right])) ++right;
    ASSERT_TRUE(!takes || right == elements)
        << to_string(op) << ", element " << right << ": " << +out[right];
  };
  run(Op::kAllReduce, in.size(), 0, true);
  run(Op::kReduce, in.size(), 0, c.rank() == c.size() - 1);
  run(Op::kReduceScatter, count, count * at(c.rank()), true);
  out = in;
  call.op = Op::kAllReduce;
  call.in = call.out = out.data();
  call.count = out.size();
  ASSERT_TRUE(c.operations().run(call).ok());
  std::size_t right = 0;
  while (right < out.size() && expected(right, out[right])) ++right;
  ASSERT_EQ(right, out.size()) << "in place, element " << right;
}

constexpr std::size_t kCounts[] = {1, 9, 1000, 40001};

TEST_P(Reductions, OfBitsAndTruth) {
  ASSERT_TRUE(world_.ok());
  world_.run([&](Communicator& c) {
    for (const std::size_t count : kCounts) {
      std::vector<std::uint32_t> in(count * at(c.size()));
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = bits(c.rank(), i);
      for (const ReduceOp op :
           {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor, ReduceOp::kLogicalAnd,
            ReduceOp::kLogicalOr, ReduceOp::kLogicalXor}) {
        SCOPED_TRACE(to_string(op));
        Call call;
        call.type = DataType::kUint32;
        call.reduce = op;
        check(c, call, in,
              [&](std::size_t i, std::uint32_t got) { return got == folded(op, i, c.size()); });
      }
    }
  });
}

TEST_P(Reductions, AverageAndFactors) {
  ASSERT_TRUE(world_.ok());
  struct Case {
    ReduceOp op;
    Scale scale;
  };
  world_.run([&](Communicator& c) {
    const auto value = [](int rank, std::size_t i) {
      return static_cast<double>((i * 37 + at(rank) * 11) % 101) / 8 - 5;
    };
    for (const std::size_t count : kCounts) {
      std::vector<double> in(count * at(c.size()));
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = value(c.rank(), i);
      for (const Case& each : {Case{ReduceOp::kAvg, {}}, Case{ReduceOp::kSum, {0.3, 1}},
                               Case{ReduceOp::kSum, {1, -7.5}}, Case{ReduceOp::kAvg, {0.25, 3}}}) {
        Call call;
        call.type = DataType::kFp64;
        call.reduce = each.op;
        call.scale = each.scale;
        check(c, call, in, [&](std::size_t i, double got) {
          double sum = 0, size = 0;
          for (int r = 0; r < c.size(); ++r) {
            sum += value(r, i) * each.scale.before;
            size += std::abs(value(r, i));
          }
          sum *= each.scale.after;
          if (each.op == ReduceOp::kAvg) sum /= c.size();
          return std::abs(got - sum) <= (size + 1) * 10 * 0x1p-52;
        });
      }
    }
  });
}

// The sum wraps around in the type, and the division rounds towards zero.
template <class T>
void check_average(Communicator& c, DataType type) {
  const auto value = [](int rank, std::size_t i) {
    return static_cast<T>((i * 7919 + at(rank) * 104729) * 2654435761u);
  };
  for (const std::size_t count : kCounts) {
    std::vector<T> in(count * at(c.size()));
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = value(c.rank(), i);
    Call call;
    call.type = type;
    call.reduce = ReduceOp::kAvg;
    check(c, call, in, [&](std::size_t i, T got) {
      std::uint64_t sum = 0;
      for (int r = 0; r < c.size(); ++r) sum += static_cast<std::uint64_t>(value(r, i));
      return got == static_cast<T>(static_cast<T>(sum) / static_cast<T>(c.size()));
    });
  }
}

TEST_P(Reductions, AverageOfIntegers) {
  ASSERT_TRUE(world_.ok());
  world_.run([](Communicator& c) {
    check_average<std::int8_t>(c, DataType::kInt8);
    check_average<std::uint16_t>(c, DataType::kUint16);
    check_average<std::int32_t>(c, DataType::kInt32);
    check_average<std::uint32_t>(c, DataType::kUint32);
    check_average<std::int64_t>(c, DataType::kInt64);
    check_average<std::uint64_t>(c, DataType::kUint64);
  });
}

// The largest fp16 number: the average of such numbers is the same number, though their sum is more
// than the type can hold.
TEST_P(Reductions, AverageInsideAHostAccumulatesInFp32) {
  if (GetParam().transport != "auto") return;
  world_.run([](Communicator& c) {
    for (const std::size_t count : kCounts) {
      std::vector<std::uint16_t> data(count, 0x7BFF);
      ASSERT_TRUE(c.operations()
                      .run({Op::kAllReduce, data.data(), data.data(), count, DataType::kFp16,
                            ReduceOp::kAvg, 0, 0})
                      .ok());
      EXPECT_EQ(data, std::vector<std::uint16_t>(count, 0x7BFF));
    }
  });
}

TEST_P(Reductions, AverageOfBlocksOfManyLengths) {
  world_.run([](Communicator& c) {
    std::vector<Block> blocks;
    std::uint64_t end = 0;
    for (int r = 0; r < c.size(); ++r) {
      blocks.push_back({end, at(r) * 1000});
      end += blocks.back().count;
    }
    const Block own = blocks[at(c.rank())];
    std::vector<float> in(end);
    for (std::size_t i = 0; i < end; ++i) in[i] = static_cast<float>(i % 64 * at(c.rank()));
    std::vector<float> out(own.count, -1);
    Call call{Op::kReduceScatterV, in.data(),       out.data(),
              own.count,           DataType::kFp32, ReduceOp::kAvg};
    call.in_blocks = blocks;
    ASSERT_TRUE(c.operations().run(call).ok());
    for (std::size_t i = 0; i < own.count; ++i) {
      ASSERT_EQ(out[i],
                static_cast<float>((own.at + i) % 64) * static_cast<float>(c.size() - 1) / 2);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Everywhere, Reductions, ::testing::ValuesIn(settings()),
                         [](const auto& info) {
                           std::string name = info.param.transport + "_" + info.param.algorithm +
                                              "_" + std::to_string(info.param.size);
                           std::erase_if(name, [](char c) { return !std::isalnum(c) && c != '_'; });
                           return name;
                         });

}  // namespace
}  // namespace hccl::testing
