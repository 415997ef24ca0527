// fold() against the oracle, for every type, operation and shape, and every instruction set of this
// machine.
#include "hccl/kernels/kernels.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "hccl/kernels/store_rule.h"
#include "tests/kernels/kernels_oracle.h"
#include "tests/support/folder.h"

namespace hccl::kernels {
namespace {

constexpr DataType kReducible[] = {
    DataType::kInt8,   DataType::kUint8, DataType::kInt16,  DataType::kUint16,  DataType::kInt32,
    DataType::kUint32, DataType::kInt64, DataType::kUint64, DataType::kInt128,  DataType::kFp32,
    DataType::kFp64,   DataType::kFp16,  DataType::kBfp16,  DataType::kFp8E4M3, DataType::kFp8E5M2,
};
constexpr DataType kIntegers[] = {
    DataType::kInt8,   DataType::kUint8, DataType::kInt16,  DataType::kUint16, DataType::kInt32,
    DataType::kUint32, DataType::kInt64, DataType::kUint64, DataType::kInt128,
};
constexpr DataType kFloats[] = {
    DataType::kFp32,  DataType::kFp64,    DataType::kFp16,
    DataType::kBfp16, DataType::kFp8E4M3, DataType::kFp8E5M2,
};
constexpr DataType kSmallFloats[] = {DataType::kFp16, DataType::kBfp16, DataType::kFp8E4M3,
                                     DataType::kFp8E5M2};

/// The reductions of integers that floats also have (`of_floats`), or that floats lack. Averages
/// are left out: they are sums that are divided.
std::vector<ReduceOp> reductions(bool of_floats) {
  std::vector<ReduceOp> all;
#define HCCL_OP(name, number, word)                                                      \
  if (ReduceOp::name != ReduceOp::kAvg && reducible(DataType::kInt32, ReduceOp::name) && \
      reducible(DataType::kFp32, ReduceOp::name) == of_floats) {                         \
    all.push_back(ReduceOp::name);                                                       \
  }
  HCCL_REDUCE_OPS(HCCL_OP)
#undef HCCL_OP
  return all;
}
const std::vector<ReduceOp> kOps = reductions(true);
const std::vector<ReduceOp> kIntegerOps = reductions(false);

/// Runs `body` once with each instruction set that both this machine and fold() support.
template <class Body>
void on_each_instruction_set(const Body& body) {
  std::set<std::string> seen;
  for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    hwy::GetChosenTarget().Update(left & -left);
    // fold() uses scalar code for an instruction set that it was not compiled for.
    if (seen.insert(instruction_set()).second) {
      SCOPED_TRACE(std::string("instruction set ") + instruction_set());
      body();
    }
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

/// An allocation that ends where its data ends, so that a sanitizer finds an access to the next
/// byte. The data starts `shift` bytes into the allocation, which is aligned for any vector.
class Buffer {
 public:
  Buffer(const std::byte* data, std::size_t bytes, std::size_t shift)
      : memory_(static_cast<std::byte*>(::operator new(bytes + shift, kAlign))), shift_(shift) {
    if (bytes != 0) {
      std::memcpy(this->data(), data, bytes);
    }
  }
  [[nodiscard]] std::byte* data() const { return memory_.get() + shift_; }

 private:
  static constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlign); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t shift_;
};

/// Numbers of ordinary size, random bits, and values at which arithmetic behaves differently.
std::vector<std::byte> mixed_numbers(DataType type, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::size_t size = size_of(type);
  const oracle::FloatFormat* format = oracle::float_format(type);
  std::vector<std::byte> result(count * size);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t low = random(), high = random();
    const std::uint64_t choice = random() % 4;
    if (format != nullptr && choice < 2) {  // within a few powers of two of 1
      const std::uint64_t sign = low & std::uint64_t{1} << (8 * size - 1);
      const std::uint64_t one = (std::uint64_t{1} << (format->exponent_bits - 1)) - 1;
      const std::uint64_t mantissa = low & ((std::uint64_t{1} << format->mantissa_bits) - 1);
      low = sign | (one - 2 + high % 4) << format->mantissa_bits | mantissa;
    } else if (format != nullptr && choice == 2) {
      const std::uint64_t sign = std::uint64_t{1} << (8 * size - 1);
      const std::uint64_t infinity = ((std::uint64_t{1} << format->exponent_bits) - 1)
                                     << format->mantissa_bits;
      const std::uint64_t specials[] = {0,
                                        1,
                                        2,
                                        format->quiet_nan,
                                        infinity,
                                        infinity - 1,
                                        infinity + 1,
                                        std::uint64_t{1} << format->mantissa_bits};
      low = specials[low % 8] | (high % 2 != 0 ? sign : 0);
    } else if (choice == 3) {
      low = low % 7 - 3;
      high = low > 7 ? ~std::uint64_t{0} : 0;
    }
    std::memcpy(&result[i * size], &low, std::min<std::size_t>(size, 8));
    if (size == 16) {
      std::memcpy(&result[i * size + 8], &high, 8);
    }
  }
  return result;
}

using Case = std::tuple<DataType, ReduceOp, int>;

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return std::string(to_string(std::get<0>(info.param))) + "_" +
         std::string(to_string(std::get<1>(info.param))) + "_of_" +
         std::to_string(std::get<2>(info.param));
}

class FoldTest : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr std::size_t kMost = 4099;
  static constexpr int kNewOutput = -1;

  void SetUp() override {
    const auto [type, op, number] = GetParam();
    for (int i = 0; i < number; ++i) {
      numbers_.push_back(mixed_numbers(type, kMost, 1000 + static_cast<std::uint64_t>(i)));
    }
    expected_ = oracle::Folder(type).fold_all(op, pointers(), kMost);
  }

  [[nodiscard]] std::vector<const std::byte*> pointers() const {
    std::vector<const std::byte*> result;
    for (const auto& input : numbers_) {
      result.push_back(input.data());
    }
    return result;
  }

  /// Folds the first `count` elements, with the memory shifted by `shift`; the result replaces
  /// input `in_place`, if that is not negative.
  void check(std::size_t count, std::size_t shift, int in_place,
             Store store = Store::kCached) const {
    const auto [type, op, number] = GetParam();
    const std::size_t bytes = count * size_of(type);
    std::vector<Buffer> buffers;
    std::vector<const std::byte*> inputs;
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      // Each input has a different alignment.
      buffers.emplace_back(numbers_[i].data(), bytes, shift == 0 ? 0 : shift + i);
      inputs.push_back(buffers.back().data());
    }
    const std::vector<std::byte> untouched(bytes, std::byte{0xA5});
    const Buffer fresh(untouched.data(), bytes, shift);
    std::byte* out =
        in_place == kNewOutput ? fresh.data() : buffers[static_cast<std::size_t>(in_place)].data();
    fold(type, op, inputs, out, count, store);
    EXPECT_TRUE(std::equal(out, out + bytes, expected_.begin()))
        << "count " << count << ", shift " << shift << ", in place " << in_place
        << ", first difference at byte "
        << std::mismatch(out, out + bytes, expected_.begin()).first - out;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      EXPECT_TRUE(static_cast<int>(i) == in_place ||
                  std::equal(inputs[i], inputs[i] + bytes, numbers_[i].begin()))
          << "input " << i << " was changed";
    }
  }

 private:
  std::vector<std::vector<std::byte>> numbers_;
  std::vector<std::byte> expected_;
};

TEST(VectorTargetsTest, AreThoseThatHighwaysOwnLibraryDetects) {
  void* const library = ::dlopen("libhwy.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  void* const theirs = ::dlsym(library, "_ZN3hwy16SupportedTargetsEv");
  ASSERT_NE(theirs, nullptr) << ::dlerror();
  std::int64_t used = HWY_TARGETS;
#if HWY_ARCH_X86
  used &= HWY_SSE4 | HWY_AVX2 | HWY_AVX3;
#endif
  EXPECT_EQ(hwy::SupportedTargets() & used,
            reinterpret_cast<decltype(&hwy::SupportedTargets)>(theirs)() & used);
}

TEST_P(FoldTest, EqualsTheOracleOnEveryInstructionSet) {
  const int number = std::get<2>(GetParam());
  on_each_instruction_set([&] {
    for (const std::size_t count : {0,  1,  3,   7,   15,  16,  17,  31,  32,   33,  63,
                                    64, 65, 127, 128, 129, 255, 256, 257, 1023, 4099}) {
      for (const std::size_t shift : {0, 1}) {
        check(count, shift, kNewOutput);
        check(count, shift, 0);
        check(count, shift, number - 1);
      }
      // Streaming stores only need a result that is aligned to its element.
      for (const std::size_t shift :
           {std::size_t{0}, std::size_t{1}, size_of(std::get<0>(GetParam()))}) {
        check(count, shift, kNewOutput, Store::kStream);
      }
      check(count, 0, 0, Store::kStream);  // an unaligned result is slow, but right
    }
  });
}

TEST_P(FoldTest, EqualsTheOracleForEverySmallSize) {
  const auto [type, op, number] = GetParam();
  on_each_instruction_set([&, size = size_of(type), last = number - 1] {
    for (std::size_t count = 0; count * size <= 80; ++count) {
      for (const std::size_t shift : {0, 1, 3}) {
        for (const int place : {kNewOutput, 0, last}) check(count, shift, place);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, FoldTest,
                         ::testing::Combine(::testing::ValuesIn(kReducible),
                                            ::testing::ValuesIn(kOps),
                                            ::testing::Values(1, 2, 3, 4, 8, 17)),
                         case_name);

INSTANTIATE_TEST_SUITE_P(OfIntegers, FoldTest,
                         ::testing::Combine(::testing::ValuesIn(kIntegers),
                                            ::testing::ValuesIn(kIntegerOps),
                                            ::testing::Values(1, 2, 3, 8)),
                         case_name);

/// Sums that are multiplied, divided, or both, before they are rounded.
class FinishTest : public ::testing::TestWithParam<DataType> {};

TEST_P(FinishTest, EqualsTheOracleOnEveryInstructionSet) {
  const DataType type = GetParam();
  const std::size_t size = size_of(type);
  for (const Finish finish : {Finish{1, 3}, Finish{0.3, 1}, Finish{-2.5, 7}}) {
    for (const std::size_t number : {1u, 2u, 3u, 5u}) {
      std::vector<std::vector<std::byte>> numbers;
      std::vector<const std::byte*> inputs;
      for (std::size_t i = 0; i < number; ++i) numbers.push_back(mixed_numbers(type, 1030, 77 + i));
      for (const auto& each : numbers) inputs.push_back(each.data());
      const auto expected = oracle::Folder(type, finish.factor, finish.divisor)
                                .fold_all(ReduceOp::kSum, inputs, 1030);
      on_each_instruction_set([&] {
        for (const std::size_t count : {1u, 7u, 16u, 64u, 1030u}) {
          for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
            std::vector<std::byte> out(count * size);
            fold(type, op, inputs, out.data(), count, Store::kCached, finish);
            EXPECT_TRUE(std::equal(out.begin(), out.end(), expected.begin()))
                << number << " inputs, " << count << " elements, first difference at byte "
                << std::mismatch(out.begin(), out.end(), expected.begin()).first - out.begin();
          }
        }
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FinishTest, ::testing::ValuesIn(kFloats),
                         [](const auto& info) { return std::string(to_string(info.param)); });

/// Folds numbers that are given as bits.
template <class T>
std::vector<T> fold_bits(DataType type, ReduceOp op, const std::vector<std::vector<T>>& inputs) {
  EXPECT_EQ(sizeof(T), size_of(type));
  std::vector<const std::byte*> pointers;
  for (const auto& input : inputs) {
    pointers.push_back(reinterpret_cast<const std::byte*>(input.data()));
  }
  std::vector<T> out(inputs[0].size());
  fold(type, op, pointers, reinterpret_cast<std::byte*>(out.data()), out.size());
  return out;
}

template <class T>
T fold_one(DataType type, ReduceOp op, const std::vector<T>& numbers) {
  std::vector<std::vector<T>> inputs;
  for (const T number : numbers) {
    inputs.push_back({number});
  }
  return fold_bits(type, op, inputs)[0];
}

class SmallFloatTest : public ::testing::TestWithParam<DataType> {
 protected:
  [[nodiscard]] std::size_t codes() const { return std::size_t{1} << (8 * size_of(GetParam())); }

  /// Folds every code with `partner`, and compares with the oracle.
  void check_all_codes_with(std::uint32_t partner) const {
    const DataType type = GetParam();
    const std::size_t size = size_of(type);
    std::vector<std::byte> left(codes() * size), right(codes() * size), out(codes() * size);
    for (std::uint32_t code = 0; code < codes(); ++code) {
      std::memcpy(&left[code * size], &code, size);
      std::memcpy(&right[code * size], &partner, size);
    }
    for (const ReduceOp op : kOps) {
      const std::vector<const std::byte*> inputs{left.data(), right.data()};
      const std::vector<std::byte> expected = oracle_.fold_all(op, inputs, codes());
      on_each_instruction_set([&] {
        fold(type, op, inputs, out.data(), codes());
        EXPECT_TRUE(out == expected)
            << to_string(op) << " with " << std::hex << partner << ", first difference at code "
            << (std::mismatch(out.begin(), out.end(), expected.begin()).first - out.begin()) /
                   static_cast<std::ptrdiff_t>(size);
      });
    }
  }

 private:
  oracle::Folder oracle_{GetParam()};
};

TEST_P(SmallFloatTest, EveryCodeSurvivesAFoldWithItself) {
  const DataType type = GetParam();
  const oracle::FloatFormat& format = *oracle::float_format(type);
  const std::size_t size = size_of(type);
  std::vector<std::byte> all(codes() * size), out(codes() * size);
  for (std::uint32_t code = 0; code < codes(); ++code) {
    std::memcpy(&all[code * size], &code, size);
  }
  const std::uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
  const std::uint32_t last_number =
      format.has_infinity ? infinity : static_cast<std::uint32_t>(format.quiet_nan) - 1;
  on_each_instruction_set([&] {
    for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
      const std::vector<const std::byte*> twice{all.data(), all.data()};
      fold(type, op, twice, out.data(), codes());
      for (std::uint32_t code = 0; code < codes(); ++code) {
        std::uint32_t got = 0;
        std::memcpy(&got, &out[code * size], size);
        const bool is_number = (code & (codes() / 2 - 1)) <= last_number;
        ASSERT_EQ(got, is_number ? code : format.quiet_nan) << to_string(op) << " of code " << code;
      }
    }
  });
}

TEST_P(SmallFloatTest, EveryCodeWithManyPartnersEqualsTheOracle) {
  if (codes() == 256) {  // all possible pairs
    for (std::uint32_t partner = 0; partner < 256; ++partner) {
      check_all_codes_with(partner);
    }
    return;
  }
  // Zeros, denormals, ones, halves that make ties, the largest numbers, infinities, NaNs, and
  // others.
  for (const std::uint32_t partner :
       {0x0000u, 0x8000u, 0x0001u, 0x8001u, 0x3C00u, 0x3F80u, 0x3F81u, 0x3E00u, 0x4B80u, 0x7BFFu,
        0x7F7Fu, 0x7C00u, 0xFC00u, 0x7F80u, 0xFF80u, 0x7E01u, 0xFFC1u, 0x03FFu, 0x1234u, 0xB4D5u}) {
    check_all_codes_with(partner);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SmallFloatTest, ::testing::ValuesIn(kSmallFloats),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(FoldNumbersTest, SmallFloatsAreRoundedOnceAtTheEnd) {
  // In fp16, 2048 + 1 is a tie that rounds to 2048, but 2048 + 1 + 1 is 2050. The same holds for
  // bf16 at 256.
  on_each_instruction_set([] {
    EXPECT_EQ(fold_one<std::uint16_t>(DataType::kFp16, ReduceOp::kSum, {0x6800, 0x3C00, 0x3C00}),
              0x6801);
    EXPECT_EQ(fold_one<std::uint16_t>(DataType::kBfp16, ReduceOp::kSum, {0x4380, 0x3F80, 0x3F80}),
              0x4381);
    // 65504 + 65504 - 65504 overflows only if an intermediate sum is rounded.
    EXPECT_EQ(fold_one<std::uint16_t>(DataType::kFp16, ReduceOp::kSum, {0x7BFF, 0x7BFF, 0xFBFF}),
              0x7BFF);
  });
}

TEST(FoldNumbersTest, AnAverageOfLargeSmallFloatsDoesNotOverflow) {
  const std::uint16_t largest = 0x7BFF;
  const auto* input = reinterpret_cast<const std::byte*>(&largest);
  const std::vector<const std::byte*> inputs(4, input);
  on_each_instruction_set([&] {
    std::uint16_t out = 0;
    fold(DataType::kFp16, ReduceOp::kAvg, inputs, reinterpret_cast<std::byte*>(&out), 1,
         Store::kCached, {1, 4});
    EXPECT_EQ(out, largest);
  });
}

TEST(FoldNumbersTest, AnAverageOfIntegersIsDividedTowardsZero) {
  const auto average = [](DataType type, auto number, double divisor) {
    const auto* input = reinterpret_cast<const std::byte*>(&number);
    auto out = number;
    fold(type, ReduceOp::kAvg, {&input, 1}, reinterpret_cast<std::byte*>(&out), 1, Store::kCached,
         {1, divisor});
    return static_cast<long>(out);
  };
  EXPECT_EQ(average(DataType::kInt8, std::int8_t{-7}, 2), -3);
  EXPECT_EQ(average(DataType::kInt8, std::int8_t{-128}, 200), 0);
  EXPECT_EQ(average(DataType::kUint8, std::uint8_t{250}, 200), 1);
  EXPECT_EQ(average(DataType::kUint16, std::uint16_t{65535}, 70000), 0);
  EXPECT_EQ(average(DataType::kUint64, ~std::uint64_t{0}, 4), (1L << 62) - 1);
  __extension__ typedef __int128 Int128;
  EXPECT_EQ(average(DataType::kInt128, Int128{-7} << 40, 2), (-7L << 40) / 2);
}

TEST(FoldNumbersTest, OnlySomeTypesHaveSomeReductions) {
  for (const DataType type : kReducible) {
    EXPECT_TRUE(reducible(type, ReduceOp::kAvg));
    EXPECT_EQ(reducible(type, ReduceOp::kBitXor), oracle::float_format(type) == nullptr);
    EXPECT_EQ(reducible(type, ReduceOp::kLogicalAnd), oracle::float_format(type) == nullptr);
    EXPECT_TRUE(reducible(type, ReduceOp::kMin));
  }
}

TEST(FoldNumbersTest, TiesGoToTheEvenNeighbour) {
  on_each_instruction_set([] {
    const auto fp16_sum = [](std::uint16_t a, std::uint16_t b) {
      return fold_one<std::uint16_t>(DataType::kFp16, ReduceOp::kSum, {a, b});
    };
    EXPECT_EQ(fp16_sum(0x6800, 0x3C00), 0x6800);  // 2048 + 1 -> 2048
    EXPECT_EQ(fp16_sum(0x6801, 0x3C00), 0x6802);  // 2050 + 1 -> 2052
    EXPECT_EQ(fp16_sum(0x7BFF, 0x4C00), 0x7C00);  // 65504 + 16 -> infinity
    EXPECT_EQ(fp16_sum(0x7BFF, 0x4B80), 0x7BFF);  // 65504 + 15 -> 65504
  });
}

TEST(FoldNumbersTest, EightBitFloatsOverflowAsTheirFormatsSay) {
  on_each_instruction_set([] {
    const auto sum = [](DataType type, std::uint8_t a, std::uint8_t b) {
      return int{fold_one<std::uint8_t>(type, ReduceOp::kSum, {a, b})};
    };
    EXPECT_EQ(sum(DataType::kFp8E4M3, 0x7E, 0x58), 0x7E);  // 448 + 16, a tie, stays 448
    EXPECT_EQ(sum(DataType::kFp8E4M3, 0x7E, 0x59), 0x7F);  // 448 + 18 is too large: NaN
    EXPECT_EQ(sum(DataType::kFp8E4M3, 0xFE, 0xFE), 0x7F);
    EXPECT_EQ(sum(DataType::kFp8E5M2, 0x7B, 0x6B), 0x7B);  // 57344 + 3584 -> 57344
    EXPECT_EQ(sum(DataType::kFp8E5M2, 0x7B, 0x6C), 0x7C);  // 57344 + 4096, a tie -> infinity
    EXPECT_EQ(sum(DataType::kFp8E5M2, 0xFB, 0xFB), 0xFC);
  });
}

/// Names for a few bit patterns of fp32.
constexpr std::uint32_t kZero = 0, kMinusZero = 0x80000000, kOne = 0x3F800000;
constexpr std::uint32_t kInfinity = 0x7F800000, kMinusInfinity = 0xFF800000;
constexpr std::uint32_t kQuietNan = 0x7FC00000, kMinusNan = 0xFFC00000, kOddNan = 0x7F812345;

TEST(FoldNumbersTest, AnyNanGivesTheQuietNan) {
  on_each_instruction_set([] {
    for (const ReduceOp op : kOps) {
      for (const std::uint32_t nan : {kQuietNan, kMinusNan, kOddNan}) {
        for (const std::uint32_t other : {kZero, kOne, kInfinity, kMinusInfinity, kMinusNan}) {
          const auto of = [op](const std::vector<std::uint32_t>& numbers) {
            return fold_one(DataType::kFp32, op, numbers);
          };
          EXPECT_EQ(of({nan, other}), kQuietNan) << to_string(op);
          EXPECT_EQ(of({other, nan}), kQuietNan) << to_string(op);
          EXPECT_EQ(of({other, nan, other, other}), kQuietNan) << to_string(op);
        }
      }
    }
    EXPECT_EQ(fold_one<std::uint32_t>(DataType::kFp32, ReduceOp::kSum, {kInfinity, kMinusInfinity}),
              kQuietNan);
    EXPECT_EQ(fold_one<std::uint32_t>(DataType::kFp32, ReduceOp::kProd, {kInfinity, kMinusZero}),
              kQuietNan);
  });
}

TEST(FoldNumbersTest, MinusZeroIsLessThanZero) {
  on_each_instruction_set([] {
    for (const auto& zeros : {std::vector{kZero, kMinusZero}, std::vector{kMinusZero, kZero}}) {
      EXPECT_EQ(fold_one(DataType::kFp32, ReduceOp::kMax, zeros), kZero);
      EXPECT_EQ(fold_one(DataType::kFp32, ReduceOp::kMin, zeros), kMinusZero);
      EXPECT_EQ(fold_one(DataType::kFp32, ReduceOp::kSum, zeros), kZero);
      EXPECT_EQ(fold_one(DataType::kFp32, ReduceOp::kProd, zeros), kMinusZero);
    }
    EXPECT_EQ(fold_one<std::uint32_t>(DataType::kFp32, ReduceOp::kSum, {kMinusZero, kMinusZero}),
              kMinusZero);
  });
}

TEST(FoldNumbersTest, InputsAreFoldedFromLeftToRight) {
  on_each_instruction_set([] {
    for (const std::size_t count : {1, 1000}) {
      const std::vector<float> huge(count, 1e30f), minus(count, -1e30f), one(count, 1.0f);
      EXPECT_EQ(fold_bits<float>(DataType::kFp32, ReduceOp::kSum, {huge, minus, one}), one);
      EXPECT_EQ(fold_bits<float>(DataType::kFp32, ReduceOp::kSum, {one, huge, minus}),
                std::vector<float>(count, 0.0f));
    }
  });
}

TEST(FoldNumbersTest, IntegersWrapAround) {
  on_each_instruction_set([] {
    EXPECT_EQ(fold_one<std::int8_t>(DataType::kInt8, ReduceOp::kSum, {127, 1}), -128);
    EXPECT_EQ(fold_one<std::uint8_t>(DataType::kUint8, ReduceOp::kProd, {17, 16}), 16);
    EXPECT_EQ(fold_one<std::int32_t>(DataType::kInt32, ReduceOp::kProd, {1 << 16, 1 << 16}), 0);
    constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
    EXPECT_EQ(fold_one<std::int64_t>(DataType::kInt64, ReduceOp::kSum, {kLeast, -1}), ~kLeast);
    EXPECT_EQ(fold_one<std::int64_t>(DataType::kInt64, ReduceOp::kProd, {kLeast, -1}), kLeast);
  });
}

TEST(FoldNumbersTest, OneInputIsCopiedBitForBit) {
  EXPECT_EQ(fold_one<std::uint32_t>(DataType::kFp32, ReduceOp::kSum, {kOddNan}), kOddNan);
  std::uint32_t same = kMinusNan;
  const std::byte* input = reinterpret_cast<const std::byte*>(&same);
  fold(DataType::kFp32, ReduceOp::kMax, {&input, 1}, reinterpret_cast<std::byte*>(&same), 1);
  EXPECT_EQ(same, kMinusNan);
}

// Sanitizers do not check masked loads and stores, so an inaccessible page follows the data.
TEST(FoldNumbersTest, NothingBehindTheEndIsTouched) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  constexpr std::size_t kBuffers = 4;  // three inputs and the result
  auto* const memory = static_cast<std::byte*>(::mmap(
      nullptr, 2 * kBuffers * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  std::vector<std::byte*> ends;
  for (std::size_t i = 0; i < kBuffers; ++i) {
    ends.push_back(memory + (2 * i + 1) * page);
    ASSERT_EQ(::mprotect(ends.back(), page, PROT_NONE), 0);
  }
  on_each_instruction_set([&] {
    for (const DataType type : kReducible) {
      const std::size_t size = size_of(type);
      for (std::size_t count = 1; count * size <= 600; ++count) {
        const std::size_t bytes = count * size;
        std::vector<const std::byte*> near_end, elsewhere;
        std::vector<std::vector<std::byte>> inputs;
        for (std::size_t i = 0; i < 3; ++i) inputs.push_back(mixed_numbers(type, count, i));
        for (std::size_t i = 0; i < 3; ++i) {
          std::memcpy(ends[i] - bytes, inputs[i].data(), bytes);
          near_end.push_back(ends[i] - bytes);
          elsewhere.push_back(inputs[i].data());
        }
        for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kSum}) {
          std::vector<std::byte> expected(bytes);
          fold(type, op, elsewhere, expected.data(), count);
          std::byte* const out = ends[3] - bytes;
          out[-1] = std::byte{0x5A};
          fold(type, op, near_end, out, count);
          ASSERT_EQ(std::memcmp(out, expected.data(), bytes), 0)
              << to_string(type) << " x " << count;
          ASSERT_EQ(out[-1], std::byte{0x5A}) << to_string(type) << " x " << count;
        }
      }
    }
  });
  ::munmap(memory, 2 * kBuffers * page);
}

TEST(CopyTest, CopiesAllBytesAndNoMore) {
  const std::vector<std::byte> data = mixed_numbers(DataType::kUint8, 5000, 7);
  on_each_instruction_set([&] {
    for (const Store store : {Store::kCached, Store::kStream}) {
      for (const std::size_t bytes :
           {0, 1, 15, 16, 63, 64, 65, 127, 255, 256, 257, 1000, 2047, 2048, 2049, 4099}) {
        for (const std::size_t shift : {0, 1, 4, 63}) {
          const Buffer from(data.data(), bytes, 63 - shift);
          const std::vector<std::byte> untouched(bytes + 64, std::byte{0xA5});
          const Buffer to(untouched.data(), bytes + 64, shift);
          copy(from.data(), to.data(), bytes, store);
          EXPECT_TRUE(std::equal(to.data(), to.data() + bytes, data.begin()))
              << bytes << " bytes, shift " << shift;
          EXPECT_TRUE(std::equal(to.data() + bytes, to.data() + bytes + 64, untouched.begin()))
              << bytes << " bytes, shift " << shift;
        }
      }
      // The result must not depend on the positions of input and output in their pages.
      constexpr std::size_t kPage = 4096;
      alignas(kPage) static std::array<std::byte, 3 * kPage> from, to;
      std::copy(data.begin(), data.end(), from.begin());
      for (const std::size_t behind : {0, 1, 16, 63, 64, 4033, 4095}) {
        for (const std::size_t bytes : {2047, 2048, 2049, 4999}) {
          to.fill(std::byte{0xA5});
          copy(from.data(), to.data() + behind, bytes, store);
          EXPECT_TRUE(std::equal(to.data() + behind, to.data() + behind + bytes, data.begin()))
              << bytes << " bytes, " << behind << " behind";
          EXPECT_EQ(std::count(to.begin(), to.begin() + behind, std::byte{0xA5}), behind);
          EXPECT_EQ(to[behind + bytes], std::byte{0xA5});
        }
      }
      Buffer same(data.data(), 100, 0);
      copy(same.data(), same.data(), 100, store);
      EXPECT_TRUE(std::equal(same.data(), same.data() + 100, data.begin()));
    }
  });
}

/// Describes one cache in the way of Linux.
void add_cache(const hccl::testing::Folder& folder, int index, const char* level, const char* type,
               const char* size, const char* map) {
  const std::string cache = "cpu0/cache/index" + std::to_string(index);
  std::filesystem::create_directories(folder / cache);
  folder.write(cache + "/level", level);
  folder.write(cache + "/type", type);
  folder.write(cache + "/size", size);
  folder.write(cache + "/shared_cpu_map", map);
}

TEST(StoreRuleTest, LeavesEachRankItsShareOfTheLastCache) {
  const hccl::testing::Folder files;
  add_cache(files, 0, "1", "Data", "48K", "00000000,00000001");
  add_cache(files, 1, "1", "Instruction", "32K", "00000000,00000001");
  add_cache(files, 2, "2", "Unified", "1024K", "00000000,00000001");
  std::string all_cores = "ffffffff";
  for (int i = 1; i < 64; ++i) all_cores += ",ffffffff";
  add_cache(files, 3, "3", "Unified", "32768K", all_cores.c_str());
  // More cores share the cache than this machine has, so all ranks of the host share it.
  const auto most = [&](int ranks) {
    return StoreRule::of_this_machine(ranks, files.path()).cached_most;
  };
  EXPECT_EQ(most(1), std::size_t{20} << 20);
  EXPECT_EQ(most(2), std::size_t{10} << 20);
  EXPECT_EQ(most(8), std::size_t{5} << 19);
  const StoreRule rule = StoreRule::of_this_machine(2, files.path());
  EXPECT_EQ(rule.store(std::size_t{10} << 20), Store::kCached);
  EXPECT_EQ(rule.store((std::size_t{10} << 20) + 1), Store::kStream);
}

TEST(StoreRuleTest, NeverStreamsWhereCachesAreUnknown) {
  const hccl::testing::Folder none, odd;
  constexpr std::size_t kMuch = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(StoreRule::of_this_machine(2, none.path()).store(kMuch), Store::kCached);
  add_cache(odd, 0, "3", "Unified", "lots", "x");
  EXPECT_EQ(StoreRule::of_this_machine(2, odd.path()).store(kMuch), Store::kCached);
}

TEST(KernelsTest, TypesWithoutAgreedSumsAreNotReducible) {
  for (const DataType type : kReducible) {
    EXPECT_TRUE(reducible(type)) << to_string(type);
  }
  EXPECT_FALSE(reducible(DataType::kHif8));
  EXPECT_FALSE(reducible(DataType::kFp8E8M0));
}

TEST(KernelsTest, InstructionSetNamesWhatIsInUse) {
  const std::string best = instruction_set();
  EXPECT_NE(best, "");
  EXPECT_NE(best, "Unknown");
  std::set<std::string> names;
  on_each_instruction_set([&] { names.insert(instruction_set()); });
  EXPECT_EQ(names.count(best), 1u);
  EXPECT_EQ(instruction_set(), best) << "the choice is made anew afterwards";
}

}  // namespace
}  // namespace hccl::kernels
