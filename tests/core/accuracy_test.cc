// The error of 16-bit sums: the bounds of hccl/README.md, for every remote algorithm by its name,
// and for the library's own choices. A double holds the exact sums, because the inputs' exponents
// are close together.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "hccl/schedule/algorithm.h"
#include "tests/support/config.h"
#include "tests/support/world.h"

namespace hccl::testing {
namespace {

using core::Communicator;

struct Format {
  DataType type;
  int mantissa;  // explicit bits
  int bias;

  double decode(std::uint16_t bits) const {
    const int exponent = (bits & 0x7FFF) >> mantissa;
    const int fraction = bits & ((1 << mantissa) - 1);
    const double value = exponent == 0
                             ? std::ldexp(fraction, 1 - bias - mantissa)
                             : std::ldexp((1 << mantissa) + fraction, exponent - bias - mantissa);
    return (bits & 0x8000) != 0 ? -value : value;
  }
  /// Rounds towards zero; the number must be neither tiny nor huge.
  std::uint16_t encode(double value) const {
    if (value == 0) return 0;
    int exponent = 0;
    const double fraction = std::frexp(std::abs(value), &exponent);  // 0.5 to 1
    const int digits = static_cast<int>(std::ldexp(fraction, mantissa + 1)) - (1 << mantissa);
    const int bits = (exponent - 1 + bias) << mantissa | digits;
    return static_cast<std::uint16_t>(bits | (value < 0 ? 0x8000 : 0));
  }
  double half_ulp(double value) const {
    int exponent = 0;
    static_cast<void>(std::frexp(value, &exponent));
    return std::ldexp(1, std::max(exponent - 1, 1 - bias) - mantissa - 1);
  }
};
constexpr Format kFormats[] = {{DataType::kBfp16, 7, 127}, {DataType::kFp16, 10, 15}};

int log2_up(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

/// The largest number of times that an input is rounded on its way into the sum.
int roundings(const std::string& algorithm, int n) {
  const bool power = std::has_single_bit(static_cast<unsigned>(n));
  const int k = std::bit_width(static_cast<unsigned>(n)) - 1;
  if (algorithm == "ring" || algorithm == "chain") return n - 1;
  if (algorithm == "recursive_doubling" || algorithm == "halving_doubling") return k + !power;
  if (algorithm == "paired_doubling" || algorithm == "bruck" || algorithm == "binomial" ||
      algorithm == "double_tree") {
    return log2_up(n);
  }
  if (algorithm == "two_level") return 2;
  return 1;  // the owner folds all inputs at once
}

/// The input of a rank. At every third element the last rank cancels most of the other ranks' sum.
class Inputs {
 public:
  Inputs(const Format& format, int ranks, std::size_t count) {
    std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same numbers every time
    of_.assign(static_cast<std::size_t>(ranks), std::vector<std::uint16_t>(count));
    exact_.assign(count, 0);
    size_.assign(count, 0);
    for (std::size_t i = 0; i < count; ++i) {
      for (auto& input : of_) {
        const auto draw = static_cast<unsigned>(random());
        const unsigned exponent = static_cast<unsigned>(format.bias) - 4 + (draw >> 16) % 9;
        const unsigned fraction = draw & ((1u << format.mantissa) - 1);
        input[i] =
            static_cast<std::uint16_t>((draw >> 31) << 15 | exponent << format.mantissa | fraction);
        if (&input == &of_.back() && i % 3 == 0) input[i] = format.encode(-exact_[i]);
        exact_[i] += format.decode(input[i]);
        size_[i] += std::abs(format.decode(input[i]));
      }
    }
  }
  const std::vector<std::uint16_t>& of(int rank) const {
    return of_[static_cast<std::size_t>(rank)];
  }
  double exact(std::size_t i) const { return exact_[i]; }
  double size(std::size_t i) const { return size_[i]; }

 private:
  std::vector<std::vector<std::uint16_t>> of_;
  std::vector<double> exact_, size_;
};

/// |error| <= half an ulp of the result + ((1 + u)^(h - 1) - 1) * sum|x| + ceil(log2 n) * 2^-24 *
/// sum|x|: the last of h roundings gives the result, and each earlier one adds u at most.
void expect_close(const Format& format, const Inputs& inputs, std::size_t i, std::uint16_t bits,
                  int h, int n) {
  const double got = format.decode(bits), error = std::abs(got - inputs.exact(i));
  const double before = std::pow(1 + std::ldexp(1, -format.mantissa - 1), h - 1) - 1;
  const double bound = format.half_ulp(std::max(std::abs(got), std::abs(inputs.exact(i)))) +
                       (before + log2_up(n) * 0x1p-24) * inputs.size(i);
  ASSERT_LE(error, bound) << "element " << i << ": " << got << ", exactly " << inputs.exact(i)
                          << ", of numbers that add up to " << inputs.size(i);
}

/// Runs each reduction of `operations` over the world, and compares the results with the bound.
void check(Communicator& c, std::size_t count, const std::set<Op>& operations, int most) {
  const int n = c.size();
  for (const Format& format : kFormats) {
    const Inputs inputs(format, n, count);
    for (const Op op : operations) {
      const std::size_t mine =
          op == Op::kReduceScatter ? count / static_cast<std::size_t>(n) : count;
      const std::size_t first =
          op == Op::kReduceScatter ? mine * static_cast<std::size_t>(c.rank()) : 0;
      std::vector<std::uint16_t> out(mine);
      Call call{op, inputs.of(c.rank()).data(), out.data(), mine, format.type};
      call.root = op == Op::kReduce ? n - 1 : 0;
      const Status status = c.operations().run(call);
      ASSERT_TRUE(status.ok()) << status.message();
      if (op == Op::kReduce && c.rank() != call.root) continue;
      const int h = most > 0 ? most : roundings(c.operations().selection().algorithm(op), n);
      SCOPED_TRACE(std::string(to_string(op)) + " of " + std::string(to_string(format.type)) +
                   " by " + c.operations().selection().algorithm(op) + ", " + std::to_string(n) +
                   " ranks, rounded " + std::to_string(h) + " times");
      for (std::size_t i = 0; i < mine; ++i) {
        expect_close(format, inputs, first + i, out[i], h, n);
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

const std::set<Op> kAll = {Op::kAllReduce, Op::kReduce, Op::kReduceScatter};
// A number of elements that 2 to 8 divide.
constexpr std::size_t kDivisible = 840 * 5;

std::vector<std::string> names() {
  std::set<std::string> all;
  for (const auto& each : schedule::algorithms()) {
    if (reduces(each.op)) all.emplace(each.name);
  }
  return {all.begin(), all.end()};
}

class Named : public ::testing::TestWithParam<std::string> {};

TEST_P(Named, KeepsItsBound) {
  for (int n = 2; n <= 8; ++n) {
    Config config = quiet_config("tcp");
    config.algo = "level0:NA;level1:" + GetParam();
    World world(n, config);
    ASSERT_TRUE(world.ok());
    world.run([](Communicator& c) { check(c, kDivisible, kAll, 0); });
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Named, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

struct Chosen {
  const char* name;
  const char* transport;
  Deterministic deterministic;
  std::set<Op> operations;
};
void PrintTo(const Chosen& chosen, std::ostream* out) { *out << chosen.name; }

class ByItself : public ::testing::TestWithParam<Chosen> {};

// A short, a medium and a long vector.
TEST_P(ByItself, RoundsOnce) {
  for (const int n : {2, 3, 4, 5, 8}) {
    Config config = quiet_config(GetParam().transport);
    config.deterministic = GetParam().deterministic;
    World world(n, config);
    ASSERT_TRUE(world.ok());
    for (const std::size_t count : {std::size_t{840}, 40 * kDivisible}) {
      world.run([&](Communicator& c) { check(c, count, GetParam().operations, 1); });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Library, ByItself,
    ::testing::Values(
        Chosen{"inside_a_host", "auto", Deterministic::kOff, kAll},
        Chosen{"by_messages", "tcp", Deterministic::kOff, {Op::kReduce, Op::kReduceScatter}},
        Chosen{"strict", "tcp", Deterministic::kStrict, kAll}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hccl::testing
