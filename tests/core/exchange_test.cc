// Operations with blocks of different lengths, and batches of sends and receives: over every
// transport, with threads as ranks or processes under mpirun, against exact results.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "hccl/kernels/kernels.h"
#include "tests/core/transports.h"
#include "tests/support/config.h"
#include "tests/support/numbers.h"
#include "tests/support/one_message.h"
#include "tests/support/sanitizers.h"
#include "tests/support/world.h"

namespace hccl::testing {
namespace {

using core::Communicator;
using exec::Transfer;

using Blocks = std::vector<Block>;
using Bytes = std::vector<std::byte>;

constexpr std::byte kUntouched{0xEE};

Config little_staging(const std::string& transport) {
  Config config = quiet_config(transport);
  config.buffer_mb = 1;  // a small staging buffer, so that reductions run in pieces
  return config;
}

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

// Small numbers that differ by sender, receiver and place; their sums over eight ranks fit into
// eight-bit floats.
std::uint64_t value(DataType type, int from, int to, std::uint64_t i) {
  const std::uint64_t mixed =
      (i + index(from) * 7 + index(to) * 31 + 1) * 0x9E3779B97F4A7C15u >> 40;
  if (size_of(type) == 1 && float_format(type).exponent_bits != 0) return mixed & 1;
  return (mixed & 7) + 1;
}

std::uint64_t reduced(DataType type, ReduceOp op, int to, std::uint64_t i, int size) {
  return fold(op, size, [&](int from) { return value(type, from, to, i); });
}

// The number of elements that one rank sends to another.
using Counts = std::function<std::uint64_t(int from, int to, int size)>;

struct Pattern {
  const char* name;
  Counts counts;
};

const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> all = {
      {"nothing", [](int, int, int) -> std::uint64_t { return 0; }},
      {"one each", [](int, int, int) -> std::uint64_t { return 1; }},
      {"uneven with empty blocks",
       [](int from, int to, int) -> std::uint64_t {
         return (from + 2 * to) % 3 == 1 ? 0 : index(from) * 100 + index(to) * 37 + 5;
       }},
      {"all for the last",
       [](int, int to, int size) -> std::uint64_t { return to == size - 1 ? 70001 : 0; }},
      {"large and small",
       [](int from, int to, int) -> std::uint64_t { return (from + to) % 2 == 0 ? 150001 : 3; }},
  };
  return all;
}

// Blocks with gaps of odd lengths, in the order of ranks or in reverse order.
Blocks spread(const std::vector<std::uint64_t>& counts, bool backwards) {
  Blocks blocks(counts.size());
  std::uint64_t at = 3;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::size_t rank = backwards ? counts.size() - 1 - i : i;
    blocks[rank] = {at, counts[rank]};
    at += counts[rank] + (i % 2 == 0 ? 1 : 0);
  }
  return blocks;
}

// Unaligned memory for these blocks, filled with kUntouched.
class Buffer {
 public:
  Buffer(const Blocks& blocks, DataType type) : element_(size_of(type)), type_(type) {
    std::uint64_t elements = 0;
    for (const Block& block : blocks) elements = std::max(elements, block.at + block.count);
    bytes_.assign(elements * element_ + 9, kUntouched);
  }
  std::byte* data() { return bytes_.data() + 1; }
  std::byte* at(const Block& block) { return data() + block.at * element_; }
  template <class Number>
  void fill(const Block& block, const Number& number) {
    for (std::uint64_t i = 0; i < block.count; ++i) put(type_, at(block), i, number(i));
  }
  template <class Number>
  bool holds_all(const Block& block, const Number& number) {
    for (std::uint64_t i = 0; i < block.count; ++i) {
      if (!holds(type_, at(block), i, number(i))) return false;
    }
    return true;
  }
  /// Returns whether only these blocks were written.
  bool gaps_untouched(const Blocks& blocks) {
    Bytes copy = bytes_;
    for (const Block& block : blocks) {
      std::fill_n(copy.begin() + 1 + static_cast<std::ptrdiff_t>(block.at * element_),
                  block.count * element_, kUntouched);
    }
    const Bytes untouched(copy.size(), kUntouched);
    return std::memcmp(copy.data(), untouched.data(), copy.size()) == 0;
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  std::size_t element_;
  DataType type_;
  Bytes bytes_;
};

Call call_of(Op op, const void* in, void* out, std::uint64_t count, DataType type, ReduceOp reduce,
             const Blocks& in_blocks, const Blocks& out_blocks) {
  Call call{op, in, out, count, type, reduce, 0, 0};
  call.in_blocks = in_blocks;
  call.out_blocks = out_blocks;
  return call;
}

void all_gather_v(Communicator& c, const Counts& counts, DataType type, bool in_place) {
  std::vector<std::uint64_t> lengths;
  for (int r = 0; r < c.size(); ++r) lengths.push_back(counts(r, 0, c.size()));
  const Blocks blocks = spread(lengths, c.size() % 2 == 0);
  const Block own = blocks[index(c.rank())];
  Buffer out(blocks, type);
  Buffer in({{0, own.count}}, type);
  const auto mine = [&](std::uint64_t i) { return value(type, c.rank(), 0, i); };
  if (in_place) out.fill(own, mine);
  in.fill({0, own.count}, mine);
  const Bytes before = in.bytes();
  const void* const from = in_place ? out.at(own) : in.data();
  const Status status = c.operations().run(
      call_of(Op::kAllGatherV, from, out.data(), own.count, type, ReduceOp::kSum, {}, blocks));
  ASSERT_TRUE(status.ok()) << status.message();
  for (int r = 0; r < c.size(); ++r) {
    EXPECT_TRUE(
        out.holds_all(blocks[index(r)], [&](std::uint64_t i) { return value(type, r, 0, i); }))
        << "block " << r << " on rank " << c.rank();
  }
  EXPECT_TRUE(out.gaps_untouched(blocks));
  EXPECT_EQ(before, in.bytes()) << "the send buffer was written";
}

void reduce_scatter_v(Communicator& c, const Counts& counts, DataType type, ReduceOp op) {
  std::vector<std::uint64_t> lengths;
  for (int r = 0; r < c.size(); ++r) lengths.push_back(counts(0, r, c.size()));
  const Blocks blocks = spread(lengths, c.size() % 2 == 1);
  const Block own{0, blocks[index(c.rank())].count};
  Buffer in(blocks, type);
  Buffer out({own}, type);
  for (int r = 0; r < c.size(); ++r) {
    in.fill(blocks[index(r)], [&](std::uint64_t i) { return value(type, c.rank(), r, i); });
  }
  const Bytes before = in.bytes();
  const Status status = c.operations().run(
      call_of(Op::kReduceScatterV, in.data(), out.data(), own.count, type, op, blocks, {}));
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(
      out.holds_all(own, [&](std::uint64_t i) { return reduced(type, op, c.rank(), i, c.size()); }))
      << "rank " << c.rank();
  EXPECT_TRUE(out.gaps_untouched({own}));
  EXPECT_EQ(before, in.bytes()) << "the send buffer was written";
}

void all_to_all_v(Communicator& c, const Counts& counts, DataType type) {
  std::vector<std::uint64_t> sent, received;
  for (int r = 0; r < c.size(); ++r) {
    sent.push_back(counts(c.rank(), r, c.size()));
    received.push_back(counts(r, c.rank(), c.size()));
  }
  const Blocks out_of = spread(sent, c.rank() % 2 == 0);
  const Blocks into = spread(received, c.rank() % 2 == 1);
  Buffer in(out_of, type), out(into, type);
  for (int r = 0; r < c.size(); ++r) {
    in.fill(out_of[index(r)], [&](std::uint64_t i) { return value(type, c.rank(), r, i); });
  }
  const Status status = c.operations().run(
      call_of(Op::kAllToAllV, in.data(), out.data(), 0, type, ReduceOp::kSum, out_of, into));
  ASSERT_TRUE(status.ok()) << status.message();
  for (int r = 0; r < c.size(); ++r) {
    EXPECT_TRUE(
        out.holds_all(into[index(r)], [&](std::uint64_t i) { return value(type, r, c.rank(), i); }))
        << "block of " << r << " on rank " << c.rank();
  }
  EXPECT_TRUE(out.gaps_untouched(into));
}

struct WorldKind {
  std::string transport;
  int size;
};

void PrintTo(const WorldKind& p, std::ostream* out) { *out << p.transport << " " << p.size; }

std::vector<WorldKind> everywhere() {
  std::vector<WorldKind> out;
  for (const auto& name : transports()) {
    for (const int size : World::sizes()) {
      if (size > 4 && size != 8) continue;
      if (kThreadSanitizer && size == 8 && name != "auto") continue;
      out.push_back({name, size});
    }
  }
  return out;
}

class Exchange : public ::testing::TestWithParam<WorldKind> {
 protected:
  Exchange() : world_(GetParam().size, little_staging(GetParam().transport)) {}
  World world_;
};

TEST_P(Exchange, BlocksOfAnyLengthsArriveWhereTheyBelong) {
  ASSERT_TRUE(world_.ok());
  world_.run([](Communicator& c) {
    for (const Pattern& pattern : patterns()) {
      SCOPED_TRACE(pattern.name);
      for (const bool in_place : {false, true}) {
        all_gather_v(c, pattern.counts, DataType::kFp32, in_place);
      }
      reduce_scatter_v(c, pattern.counts, DataType::kFp32, ReduceOp::kSum);
      all_to_all_v(c, pattern.counts, DataType::kFp32);
    }
  });
}

TEST_P(Exchange, EveryTypeAndReduction) {
  ASSERT_TRUE(world_.ok());
  const Counts& counts = patterns()[2].counts;
  world_.run([&](Communicator& c) {
    for (const DataType type : kAllTypes) {
      SCOPED_TRACE(to_string(type));
      all_gather_v(c, counts, type, false);
      all_to_all_v(c, counts, type);
      if (!kernels::reducible(type)) continue;
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProd}) {
        // Products only for integers, which wrap around: products of eight ranks do not fit into
        // all floats.
        if (op == ReduceOp::kProd && float_format(type).exponent_bits != 0) continue;
        SCOPED_TRACE(to_string(op));
        reduce_scatter_v(c, counts, type, op);
      }
    }
  });
}

std::uint16_t rounded_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
float widened(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Sums that must be rounded have the bits of a fold in rank order: fp32 rounds at each addition,
// bf16 adds in fp32 and rounds once.
TEST_P(Exchange, RoundedSumsAreThoseOfAFoldInRankOrder) {
  ASSERT_TRUE(world_.ok());
  constexpr std::size_t kCount = 90001;
  const auto inexact = [](int rank, int block, std::size_t i) {
    return 1.0f / static_cast<float>(1 + i % 977 + 13 * index(rank) + 5 * index(block));
  };
  world_.run([&](Communicator& c) {
    const int n = c.size();
    const Blocks blocks = spread(std::vector<std::uint64_t>(index(n), kCount), true);
    std::vector<float> floats(blocks[0].at + kCount + 8);
    std::vector<std::uint16_t> halves(floats.size());
    for (int r = 0; r < n; ++r) {
      for (std::size_t i = 0; i < kCount; ++i) {
        floats[blocks[index(r)].at + i] = inexact(c.rank(), r, i);
        halves[blocks[index(r)].at + i] = rounded_bf16(inexact(c.rank(), r, i));
      }
    }
    std::vector<float> sums(kCount);
    std::vector<std::uint16_t> short_sums(kCount);
    ASSERT_TRUE(c.operations()
                    .run(call_of(Op::kReduceScatterV, floats.data(), sums.data(), kCount,
                                 DataType::kFp32, ReduceOp::kSum, blocks, {}))
                    .ok());
    ASSERT_TRUE(c.operations()
                    .run(call_of(Op::kReduceScatterV, halves.data(), short_sums.data(), kCount,
                                 DataType::kBfp16, ReduceOp::kSum, blocks, {}))
                    .ok());
    for (std::size_t i = 0; i < kCount; ++i) {
      float sum = inexact(0, c.rank(), i);
      float wide = widened(rounded_bf16(inexact(0, c.rank(), i)));
      for (int r = 1; r < n; ++r) {
        sum += inexact(r, c.rank(), i);
        wide += widened(rounded_bf16(inexact(r, c.rank(), i)));
      }
      ASSERT_EQ(std::bit_cast<std::uint32_t>(sums[i]), std::bit_cast<std::uint32_t>(sum)) << i;
      ASSERT_EQ(short_sums[i], rounded_bf16(wide)) << i;
    }
  });
}

// The contents of message number k with `count` elements from one rank to another.
std::vector<int> letter(int from, int to, int k, std::size_t count) {
  std::vector<int> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = from * 1000000 + to * 10000 + k * 100 + static_cast<int>(i % 97);
  }
  return out;
}

Transfer sending(int peer, std::vector<int>& data) {
  return {true, peer, data.data(), data.size(), DataType::kInt32, 0};
}
Transfer receiving(int peer, std::vector<int>& data) {
  return {false, peer, data.data(), data.size(), DataType::kInt32, 0};
}

TEST_P(Exchange, ARingOfSendsNeedsNoOrderInABatch) {
  world_.run([](Communicator& c) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{777}, std::size_t{400000}}) {
      const int next = (c.rank() + 1) % c.size();
      const int before = (c.rank() - 1 + c.size()) % c.size();
      std::vector<int> out = letter(c.rank(), next, 0, count);
      std::vector<int> in(count, -1);
      std::vector<Transfer> batch{sending(next, out), receiving(before, in)};
      const Status status = c.operations().exchange(batch);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(in, letter(before, c.rank(), 0, count));
    }
  });
}

// Every rank sends several letters of different sizes to every rank, itself included; the list of
// receives has another order than the list of sends.
TEST_P(Exchange, ManyItemsBetweenAllPairsAndToOneself) {
  constexpr int kLetters = 5;
  const auto length = [](int k) {
    return k == 2 ? std::size_t{150000} : std::size_t{3} + 40 * index(k);
  };
  world_.run([&](Communicator& c) {
    for (int round = 0; round < 3; ++round) {
      std::vector<std::vector<int>> out, in;
      std::vector<Transfer> batch;
      for (int peer = 0; peer < c.size(); ++peer) {
        for (int k = 0; k < kLetters; ++k) {
          out.push_back(letter(c.rank(), peer, k + round, length(k)));
          in.emplace_back(length(k), -1);
        }
      }
      std::size_t at = 0;
      for (int peer = 0; peer < c.size(); ++peer) {
        for (int k = 0; k < kLetters; ++k) batch.push_back(sending(peer, out[at++]));
      }
      for (int peer = c.size() - 1; peer >= 0; --peer) {
        for (int k = 0; k < kLetters; ++k) {
          batch.push_back(receiving(peer, in[index(peer) * kLetters + index(k)]));
        }
      }
      const Status status = c.operations().exchange(batch);
      ASSERT_TRUE(status.ok()) << status.message();
      for (int peer = 0; peer < c.size(); ++peer) {
        for (int k = 0; k < kLetters; ++k) {
          EXPECT_EQ(in[index(peer) * kLetters + index(k)],
                    letter(peer, c.rank(), k + round, length(k)));
        }
      }
    }
  });
}

TEST_P(Exchange, ABatchPairsWithSingleSendsAndReceives) {
  if (GetParam().size < 2) GTEST_SUCCEED();
  world_.run([](Communicator& c) {
    if (c.size() < 2 || c.rank() > 1) return;
    std::vector<int> a = letter(c.rank(), 1 - c.rank(), 0, 1000);
    std::vector<int> b = letter(c.rank(), 1 - c.rank(), 1, 2000);
    std::vector<int> x(1000), y(2000);
    if (c.rank() == 0) {
      std::vector<Transfer> batch{sending(1, a), sending(1, b), receiving(1, x), receiving(1, y)};
      ASSERT_TRUE(c.operations().exchange(batch).ok());
    } else {
      ASSERT_TRUE(send_one(c, 0, a.data(), a.size(), DataType::kInt32).ok());
      ASSERT_TRUE(recv_one(c, 0, x.data(), x.size(), DataType::kInt32).ok());
      ASSERT_TRUE(recv_one(c, 0, y.data(), y.size(), DataType::kInt32).ok());
      ASSERT_TRUE(send_one(c, 0, b.data(), b.size(), DataType::kInt32).ok());
    }
    EXPECT_EQ(x, letter(1 - c.rank(), c.rank(), 0, 1000));
    EXPECT_EQ(y, letter(1 - c.rank(), c.rank(), 1, 2000));
  });
}

INSTANTIATE_TEST_SUITE_P(Exchanges, Exchange, ::testing::ValuesIn(everywhere()),
                         [](const auto& info) {
                           return info.param.transport + "_" + std::to_string(info.param.size) +
                                  "_ranks";
                         });

// A call that fails on all ranks with a text that names the difference.
struct Disagreement {
  const char* name;
  std::function<Status(Communicator&)> call;
  std::vector<std::string> named;  // in every rank's text, or in that of the two ranks concerned
};

std::vector<Disagreement> disagreements() {
  const auto blocks = [](Communicator& c, std::uint64_t of_last) {
    std::vector<std::uint64_t> counts(index(c.size()), 10);
    counts.back() = of_last;
    return spread(counts, false);
  };
  return {
      {"allgatherv",
       [=](Communicator& c) {
         const Blocks mine = blocks(c, c.rank() == 0 ? 11 : 12);
         std::vector<float> in(64), out(4096);
         return c.operations().run(call_of(Op::kAllGatherV, in.data(), out.data(),
                                           mine[index(c.rank())].count, DataType::kFp32,
                                           ReduceOp::kSum, {}, mine));
       },
       {"allgather_v", "displacements"}},
      {"allgatherv: same counts elsewhere",
       [=](Communicator& c) {
         Blocks mine = blocks(c, 10);
         if (c.rank() == 0) mine.back().at += 1;
         std::vector<float> in(64), out(4096);
         return c.operations().run(call_of(Op::kAllGatherV, in.data(), out.data(), 10,
                                           DataType::kFp32, ReduceOp::kSum, {}, mine));
       },
       {"allgather_v", "displacements"}},
      {"reducescatterv: reduction",
       [=](Communicator& c) {
         const Blocks mine = blocks(c, 10);
         std::vector<float> in(4096), out(64);
         return c.operations().run(
             call_of(Op::kReduceScatterV, in.data(), out.data(), 10, DataType::kFp32,
                     c.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax, mine, {}));
       },
       {"reduce_scatter_v", "sum", "max"}},
      {"alltoallv: one pair",
       [=](Communicator& c) {
         const Blocks in_blocks = spread(std::vector<std::uint64_t>(index(c.size()), 20), false);
         Blocks out_blocks = in_blocks;
         if (c.rank() == 0) out_blocks[1].count = 17;
         std::vector<float> in(4096), out(4096);
         return c.operations().run(call_of(Op::kAllToAllV, in.data(), out.data(), 0,
                                           DataType::kFp32, ReduceOp::kSum, in_blocks, out_blocks));
       },
       {"alltoall_v", "17", "20"}},
      {"alltoallv against allreduce",
       [=](Communicator& c) {
         const Blocks all = spread(std::vector<std::uint64_t>(index(c.size()), 20), false);
         std::vector<float> in(4096), out(4096);
         if (c.rank() == 0) {
           return c.operations().run(
               {Op::kAllReduce, in.data(), out.data(), 64, DataType::kFp32, ReduceOp::kSum, 0, 0});
         }
         return c.operations().run(call_of(Op::kAllToAllV, in.data(), out.data(), 0,
                                           DataType::kFp32, ReduceOp::kSum, all, all));
       },
       {"alltoall_v", "allreduce"}},
  };
}

TEST(Exchanges, ADisagreementIsAnErrorOfAllRanks) {
  const int size = World::sizes().size() == 1 ? World::sizes().front() : 4;
  for (const char* transport : {"auto", "tcp"}) {
    for (const Disagreement& each : disagreements()) {
      SCOPED_TRACE(std::string(each.name) + " over " + transport);
      World world(size, little_staging(transport));
      world.run([&](Communicator& c) {
        const Status status = each.call(c);
        EXPECT_EQ(status.code(), Code::kPara) << "rank " << c.rank() << ": " << status.message();
        for (const std::string& word : each.named) {
          EXPECT_NE(status.message().find(word), std::string::npos)
              << word << " is not in: " << status.message();
        }
      });
    }
  }
}

TEST(Exchanges, ItemsThatDoNotPairAreAnErrorOfBothSides) {
  World world(World::sizes().size() == 1 ? World::sizes().front() : 2, little_staging("auto"));
  world.run([](Communicator& c) {
    if (c.size() < 2 || c.rank() > 1) return;
    std::vector<int> good(8), other(c.rank() == 0 ? 8 : 9);
    std::vector<Transfer> batch;
    const int peer = 1 - c.rank();
    for (std::vector<int>* data : {&good, &other}) {
      batch.push_back(c.rank() == 0 ? sending(peer, *data) : receiving(peer, *data));
    }
    const Status status = c.operations().exchange(batch);
    EXPECT_EQ(status.code(), Code::kPara) << status.message();
    for (const char* word : {"send #2 (count 8", "recv #2 (count 9"}) {
      EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
    }
  });
}

}  // namespace
}  // namespace hccl::testing
