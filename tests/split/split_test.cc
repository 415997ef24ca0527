// Segments by index, by size and by default: HCCL's known results, a second version of the rule in
// integers on random inputs, and every refusal.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "split/strategy.h"

namespace hccl::split {
namespace {

using Bytes = std::vector<std::uint64_t>;
using Percentages = std::vector<float>;

/// The sizes of thirty gradients of a ResNet block, in bytes.
const Bytes kG30 = {4096,    8257536, 8704,    8704,    4194304, 2560,    2560,    9437184,
                    2560,    2560,    4194304, 8704,    8704,    4194304, 2560,    2560,
                    9437184, 2560,    2560,    4194304, 8704,    8704,    8388608, 4194304,
                    2560,    2560,    9437184, 2560,    2560,    2097152};

Bytes equal(std::size_t n, std::uint64_t size) { return Bytes(n, size); }

Segments by_size(const Bytes& bytes, const Percentages& percentages) {
  auto segments = segments_by_size(bytes, percentages);
  EXPECT_TRUE(segments.ok()) << segments.status().message();
  return segments.ok() ? *segments : Segments{};
}
Segments by_default(const Bytes& bytes) {
  auto segments = default_segments(bytes);
  EXPECT_TRUE(segments.ok()) << segments.status().message();
  return segments.ok() ? *segments : Segments{};
}

/// Expects that the status is kPara, and that its text contains all these words.
void expect_refused(const Status& status, const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), Code::kPara);
  for (const auto& word : words)
    EXPECT_NE(status.message().find(word), std::string::npos)
        << "'" << word << "' not in: " << status.message();
}
template <class T>
void expect_refused(const Result<T>& result, const std::vector<std::string>& words) {
  ASSERT_FALSE(result.ok());
  expect_refused(result.status(), words);
}

// --- known answers ---

struct Known {
  Bytes bytes;
  Percentages percentages;
  Segments expected;
};

TEST(BySize, GivesTheKnownSegments) {
  std::vector<Known> cases = {
      {kG30, {20, 40, 40}, {6, 18, 29}},
      {kG30, {96, 2, 2}, {25, 28, 29}},
      {kG30, {60, 20, 20}, {18, 23, 29}},
      {kG30, {80, 20}, {23, 29}},
      {kG30, {50, 50}, {15, 29}},
      {kG30, {1, 99}, {0, 29}},
      {{512}, {50, 50}, {0}},
      {{10, 20, 30, 40}, {50, 50}, {2, 3}},
      {{40, 30, 20, 10}, {50, 50}, {0, 3}},
  };
  for (const std::uint64_t size : {1u, 4u, 7u, 4000u, 4194304u, 1000000007u}) {
    cases.insert(cases.end(), {
                                  {equal(160, size), {60, 20, 20}, {95, 127, 159}},
                                  {equal(160, size), {80, 20}, {127, 159}},
                                  {equal(160, size), {25, 25, 25, 25}, {39, 79, 119, 159}},
                                  {equal(3, size), {63, 37}, {0, 2}},  // a cut at 1 is nearer
                                  {equal(3, size), {67, 33}, {1, 2}},
                                  {equal(7, size), {28, 72}, {0, 6}},  // a cut at 1 is nearer
                                  {equal(4, size), {0, 100}, {0, 3}},
                                  {equal(4, size), {100, 0}, {3}},
                                  {equal(3, size), {10, 10, 80}, {0, 1, 2}},
                              });
  }
  for (const auto& known : cases)
    EXPECT_EQ(by_size(known.bytes, known.percentages), known.expected)
        << known.bytes.size() << " gradients of " << known.bytes[0] << "... bytes, "
        << ::testing::PrintToString(known.percentages);
}

TEST(Default, GivesTheKnownSegments) {
  EXPECT_EQ(by_default(kG30), (Segments{25, 29}));
  EXPECT_EQ(by_default({512}), (Segments{0}));
  for (const std::uint64_t size : {1u, 4000u, 4194304u}) {
    EXPECT_EQ(by_default(equal(160, size)), (Segments{153, 159}));
    EXPECT_EQ(by_default(equal(2, size)), (Segments{1}));
    EXPECT_EQ(by_default(equal(3, size)), (Segments{2}));
    EXPECT_EQ(by_default(equal(4, size)), (Segments{3}));
  }
}

/// The 161 gradients of ResNet-50 in fp32, in the order of backward (weights and batch norms, no
/// biases but the last layer's).
Bytes resnet50() {
  Bytes forward = {64 * 3 * 49, 64, 64};
  std::uint64_t in = 64;
  std::uint64_t width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      forward.insert(forward.end(), {in * width, width, width, width * width * 9, width, width,
                                     width * width * 4, width * 4, width * 4});
      if (block == 0) forward.insert(forward.end(), {in * width * 4, width * 4, width * 4});
      in = width * 4;
    }
    width *= 2;
  }
  forward.insert(forward.end(), {2048 * 1000, 1000});
  for (auto& size : forward) size *= 4;
  return {forward.rbegin(), forward.rend()};
}

TEST(Default, CutsResNet50AfterGradient107) {
  const Bytes bytes = resnet50();
  ASSERT_EQ(bytes.size(), 161u);
  EXPECT_EQ(by_default(bytes), (Segments{107, 160}));
}

TEST(ByIndex, GivesTheListBack) {
  EXPECT_EQ(segments_by_index(equal(5, 8), Segments{1, 4}).value(), (Segments{1, 4}));
  EXPECT_EQ(segments_by_index(equal(160, 8), Segments{20, 100, 159}).value(),
            (Segments{20, 100, 159}));
}

TEST(Segments, MoreThanEightWork) {
  Segments all(160);
  for (std::uint32_t i = 0; i < 160; ++i) all[i] = i;
  EXPECT_EQ(segments_by_index(equal(160, 8), all).value(), all);
  EXPECT_EQ(by_size(equal(160, 8), Percentages(16, 6.25f)),
            (Segments{9, 19, 29, 39, 49, 59, 69, 79, 89, 99, 109, 119, 129, 139, 149, 159}));
}

TEST(Segments, TextIsTheDocumentedOne) {
  EXPECT_EQ(segments_text(Segments{107, 159}),
            "segment num: 2, segment index list: [0,107] [108,159]");
  EXPECT_EQ(segments_text(Segments{0}), "segment num: 1, segment index list: [0,0]");
}

// --- exact numbers ---

TEST(BySize, SumsAreExactBeyondTheMantissaOfAFloat) {
  // In 32-bit floats every sum would stay at 2^24, so no cut could be found.
  Bytes bytes(101, 1);
  bytes[0] = std::uint64_t{1} << 24;
  EXPECT_EQ(by_size(bytes, {99.9997f, 0.0003f}).back(), 100u);
  // 4 GiB less one byte: the two halves are exactly equal.
  const std::uint64_t half = (std::uint64_t{1} << 32) - 1;
  EXPECT_EQ(by_size({half - 2, 1, 1, 1, half - 1}, {50, 50}), (Segments{2, 4}));
  // 8 PB, the largest accepted size.
  EXPECT_EQ(by_size(equal(8, std::uint64_t{1} << 50), {25, 75}), (Segments{1, 7}));
}

TEST(BySize, PercentagesMeanTheirDecimals) {
  // 14.3f is a little more than 14.3; the boundary at exactly 14.3 % must still be met.
  EXPECT_EQ(by_size(equal(1000, 40000000), {14.2f, 14.3f, 14.3f, 14.3f, 14.3f, 14.3f, 14.3f}),
            (Segments{141, 284, 427, 570, 713, 856, 999}));
  for (int tenths = 1; tenths < 1000; ++tenths) {
    const float first = static_cast<float>(tenths) / 10;
    const float second = static_cast<float>(1000 - tenths) / 10;
    EXPECT_EQ(by_size(equal(1000, 12345678), {first, second}),
              (Segments{static_cast<std::uint32_t>(tenths - 1), 999}));
  }
}

TEST(BySize, ThirdsAreAccepted) {
  EXPECT_EQ(by_size(equal(9, 64), {33.333f, 33.333f, 33.333f}).back(), 8u);
  EXPECT_EQ(by_size(equal(9, 64), {33.3334f, 33.3333f, 33.3333f}).back(), 8u);
}

// --- a second version of the rule ---

/// The rule in integers: all quantities are bytes times 100, percentages are whole numbers.
Segments integer_rule(const Bytes& bytes, const std::vector<int>& percentages) {
  std::vector<std::int64_t> acc;
  for (const std::uint64_t size : bytes)
    acc.push_back((acc.empty() ? 0 : acc.back()) + 100 * static_cast<std::int64_t>(size));
  const auto n = static_cast<std::int64_t>(bytes.size());
  const auto near = [&](std::int64_t target) -> std::int64_t {
    std::int64_t lo = 0, hi = n - 1, mid = 0;
    while (lo <= hi) {
      mid = (lo + hi) / 2;
      if (acc[mid] == target) return mid;
      if (acc[mid] < target)
        lo = mid + 1;
      else
        hi = mid - 1;
    }
    if (mid == 0) return 0;
    return target - acc[mid - 1] <= acc[mid] - target ? mid - 1 : mid;
  };
  Segments out;
  std::int64_t target = 0;  // where the shares so far should have ended
  for (const int percentage : percentages) {
    target += percentage * (acc.back() / 100);
    do {
      std::int64_t i = near(target);
      if (!out.empty() && i <= out.back()) i = out.back() + std::int64_t{1};
      out.push_back(static_cast<std::uint32_t>(i));
    } while (out.back() != n - 1 && acc[out.back() + 1] <= target);
    if (out.back() == n - 1) break;
  }
  return out;
}

std::vector<int> random_percentages(std::mt19937_64& random) {
  std::vector<int> marks = {0, 100};
  for (auto k = random() % 9; k > 0; --k) marks.push_back(static_cast<int>(random() % 101));
  std::sort(marks.begin(), marks.end());
  std::vector<int> percentages;
  for (std::size_t k = 1; k < marks.size(); ++k) percentages.push_back(marks[k] - marks[k - 1]);
  return percentages;
}

TEST(BySize, EqualsTheIntegerRuleOnRandomGradients) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20000; ++round) {
    const std::uint64_t scale = std::uint64_t{1} << (random() % 34);
    Bytes bytes(1 + random() % 60);
    const bool same = random() % 3 == 0;
    for (auto& size : bytes) size = same ? scale : random() % (scale + 1);  // zeroes too
    const auto percentages = random_percentages(random);
    const Segments segments = by_size(bytes, Percentages(percentages.begin(), percentages.end()));
    ASSERT_EQ(segments, integer_rule(bytes, percentages))
        << ::testing::PrintToString(bytes) << ::testing::PrintToString(percentages);
    ASSERT_EQ(segments.back(), bytes.size() - 1);
    for (std::size_t k = 1; k < segments.size(); ++k) ASSERT_LT(segments[k - 1], segments[k]);
  }
}

TEST(BySize, NoGradientIsLostWhateverThePercentages) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<float> part(0, 1);
  for (int round = 0; round < 20000; ++round) {
    Percentages percentages(1 + random() % 12);
    float sum = 0;
    for (auto& p : percentages) sum += p = part(random);
    for (auto& p : percentages) p *= 100 / sum;
    if (!check_percentages(percentages).ok()) continue;
    Bytes bytes(1 + random() % 40);
    for (auto& size : bytes) size = random() % 4 == 0 ? 0 : random() % 100000;
    const Segments segments = by_size(bytes, percentages);
    ASSERT_EQ(segments.back(), bytes.size() - 1);
    for (std::size_t k = 1; k < segments.size(); ++k) ASSERT_LT(segments[k - 1], segments[k]);
  }
}

TEST(Default, IsTheFirstCutOfTheRuleAndTheRest) {
  std::mt19937_64 random(13);
  for (int round = 0; round < 5000; ++round) {
    Bytes bytes(1 + random() % 60);
    for (auto& size : bytes) size = 1 + random() % 1000000;
    const Segments segments = by_default(bytes);
    const std::uint32_t first = by_size(bytes, {96.54f, 3.46f}).front();
    const auto last = static_cast<std::uint32_t>(bytes.size() - 1);
    ASSERT_EQ(segments, first == last ? Segments{last} : (Segments{first, last}));
  }
}

// ---- unknown shape ----

constexpr std::uint64_t kMiB = 1 << 20;

TEST(UnknownShape, CutsBelowTheShares) {
  // 96.54 % are 154.464 gradients. The segment does not get more than its share.
  EXPECT_EQ(default_segments(equal(160, 1000), 200 * kMiB).value(), (Segments{153, 159}));
  // The nearest cut would be after the last gradient; rounding down leaves that gradient to the
  // second segment.
  EXPECT_EQ(default_segments(equal(4, 1000), 200 * kMiB).value(), (Segments{2, 3}));
}

TEST(UnknownShape, NoSegmentExceedsTheBufferUnlessOneGradientDoes) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 5000; ++round) {
    Bytes bytes(1 + random() % 60);
    for (auto& size : bytes) size = 1 + random() % (4 * kMiB);
    const std::uint64_t cap = (1 + random() % 16) * kMiB;
    const Percentages thirds = {33, 33, 34};
    for (const Segments& segments : {default_segments(bytes, cap + kMiB).value(),
                                     segments_by_size(bytes, thirds, cap + kMiB).value()}) {
      std::uint32_t first = 0;
      for (const std::uint32_t last : segments) {
        ASSERT_LE(first, last);
        std::uint64_t sum = 0;
        for (std::uint32_t i = first; i <= last; ++i) sum += bytes[i];
        ASSERT_TRUE(sum <= cap || first == last) << sum << " bytes, cap " << cap;
        first = last + 1;
      }
      ASSERT_EQ(segments.back(), bytes.size() - 1);
    }
  }
}

TEST(UnknownShape, BoundsAUsersPercentages) {
  const Bytes five = equal(5, 199 * kMiB / 2);
  EXPECT_EQ(segments_by_size(five, Percentages{60, 40}).value(), (Segments{2, 4}));
  EXPECT_EQ(segments_by_size(five, Percentages{60, 40}, 200 * kMiB).value(), (Segments{1, 2, 4}));
  // 63 % are 2.52 gradients: the nearest cut takes three of four, the cut below takes two.
  EXPECT_EQ(segments_by_size(equal(4, 1000), Percentages{63, 37}, 200 * kMiB).value(),
            (Segments{1, 3}));
}

TEST(UnknownShape, WithoutABufferEveryGradientIsAlone) {
  EXPECT_EQ(default_segments(equal(4, 1000), kMiB).value(), (Segments{0, 1, 2, 3}));
  EXPECT_EQ(default_segments(equal(4, 1000), 0).value(), (Segments{0, 1, 2, 3}));
}

// --- refusals ---

TEST(Refused, NamesTheArgumentAndWhatIsExpected) {
  const Bytes five = equal(5, 8);
  expect_refused(segments_by_index(five, Segments{}), {"segment index list is empty"});
  expect_refused(segments_by_index(five, Segments{1, 4, 3}),
                 {"segment index list[2] is 3", "must be 4"});
  expect_refused(segments_by_index(five, Segments{1, 1, 4}),
                 {"segment index list[1] is 1", "must be 4"});
  expect_refused(segments_by_index(equal(160, 8), Segments{20, 100}),
                 {"segment index list[1] is 100", "must be 159", "160 gradients"});
  expect_refused(segments_by_index(five, Segments{1, 5}),
                 {"segment index list[1] is 5", "must be 4"});
  expect_refused(segments_by_index(five, Segments{0, 1, 2, 3, 4, 5}),
                 {"6 segments", "more than there are gradients", "5 gradients"});
  expect_refused(segments_by_index({}, Segments{0}), {"no gradients"});

  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  expect_refused(segments_by_size(five, Percentages{}), {"percentages is empty"});
  expect_refused(segments_by_size(five, Percentages{20, 20, 20}), {"sum to 60", "must be 100"});
  expect_refused(segments_by_size(five, Percentages{50, 49.99f}), {"sum to 99.99", "must be 100"});
  expect_refused(segments_by_size(five, Percentages{50, 50.01f}), {"sum to 100.01", "must be 100"});
  expect_refused(segments_by_size(five, Percentages{120, -20}), {"percentages[1] is -20"});
  expect_refused(segments_by_size(five, Percentages{kNan, 100}), {"percentages[0] is nan"});
  expect_refused(segments_by_size(five, Percentages{0, 50, kInfinity}), {"percentages[2] is inf"});
  expect_refused(segments_by_size({}, Percentages{100}), {"no gradients"});
  expect_refused(default_segments({}), {"no gradients"});
  expect_refused(default_segments({}, 200 * kMiB), {"no gradients"});
  expect_refused(default_segments(Bytes{8, std::numeric_limits<std::uint64_t>::max()}),
                 {"gradient sizes[1]", "2^53"});
}

// --- table ---

TEST(Table, SizeBeatsIndexBeatsDefault) {
  StrategyTable table;
  const Bytes bytes = equal(160, 8);
  EXPECT_TRUE(table.resolve("g", bytes)->is_default);
  EXPECT_EQ(table.resolve("g", bytes)->last_indices, (Segments{153, 159}));

  ASSERT_TRUE(table.set_by_index("g", Segments{10, 159}).ok());
  Resolved resolved = table.resolve("g", bytes).value();
  EXPECT_FALSE(resolved.is_default);
  EXPECT_EQ(resolved.last_indices, (Segments{10, 159}));

  ASSERT_TRUE(table.set_by_size("g", Percentages{50, 50}).ok());
  resolved = table.resolve("g", bytes).value();
  EXPECT_FALSE(resolved.is_default);
  EXPECT_EQ(resolved.last_indices, (Segments{79, 159}));

  EXPECT_TRUE(table.resolve("other", bytes)->is_default) << "settings belong to their group";
}

TEST(Table, ASecondCallReplacesTheFirst) {
  StrategyTable table;
  const Bytes bytes = equal(160, 8);
  ASSERT_TRUE(table.set_by_index("g", Segments{10, 159}).ok());
  ASSERT_TRUE(table.set_by_index("g", Segments{20, 159}).ok());
  EXPECT_EQ(table.resolve("g", bytes)->last_indices, (Segments{20, 159}));
  ASSERT_TRUE(table.set_by_size("g", Percentages{50, 50}).ok());
  ASSERT_TRUE(table.set_by_size("g", Percentages{80, 20}).ok());
  EXPECT_EQ(table.resolve("g", bytes)->last_indices, (Segments{127, 159}));
  expect_refused(table.set_by_size("g", Percentages{80, 30}), {"sum to 110"});
  EXPECT_EQ(table.resolve("g", bytes)->last_indices, (Segments{127, 159}))
      << "a refused call changed it";
}

TEST(Table, ForceSizeDoesNotLookAtTheIndexSetting) {
  StrategyTable table;
  const Bytes bytes = equal(160, 8);
  ASSERT_TRUE(table.set_by_index("g", Segments{10, 99}).ok()) << "checked at use";
  EXPECT_TRUE(table.resolve("g", bytes, Force::kSize)->is_default);
  expect_refused(table.resolve("g", bytes), {"group g", "by index", "must be 159"});
  ASSERT_TRUE(table.set_by_size("g", Percentages{80, 20}).ok());
  expect_refused(table.resolve("g", bytes), {"group g", "by index", "must be 159"});
  EXPECT_EQ(table.resolve("g", bytes, Force::kSize)->last_indices, (Segments{127, 159}));
}

TEST(Table, ClearForgets) {
  StrategyTable table;
  const Bytes bytes = equal(160, 8);
  for (const char* group : {"a", "b"})
    ASSERT_TRUE(table.set_by_size(group, Percentages{80, 20}).ok());
  table.clear();
  EXPECT_TRUE(table.resolve("a", bytes)->is_default);
  EXPECT_TRUE(table.resolve("b", bytes)->is_default);
}

TEST(Table, UnknownShapeConcernsSharesButNoIndices) {
  StrategyTable table;
  const Bytes bytes = equal(5, 199 * kMiB / 2);
  const auto resolved = [&] {
    return table.resolve("g", bytes, Force::kNone, 200 * kMiB)->last_indices;
  };
  EXPECT_EQ(resolved(), (Segments{1, 3, 4}));
  ASSERT_TRUE(table.set_by_index("g", std::vector<std::uint32_t>{3, 4}).ok());
  EXPECT_EQ(resolved(), (Segments{3, 4}));
  ASSERT_TRUE(table.set_by_size("g", Percentages{60, 40}).ok());
  EXPECT_EQ(resolved(), (Segments{1, 2, 4}));
  EXPECT_EQ(table.resolve("g", bytes)->last_indices, (Segments{2, 4}));
}

}  // namespace
}  // namespace hccl::split
