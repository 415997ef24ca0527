// The fusion interface: the sums do not depend on order, memory or segments; wrong calls are named
// and do no harm; traces have the events.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "hccl/hccl_framework.h"
#include "hccl/hccl_fusion.h"
#include "hccl/hcom.h"
#include "tests/support/api_world.h"
#include "tests/support/calls.h"
#include "tests/support/folder.h"
#include "tests/support/gradients.h"

// Counts all memory that C++ code allocates, including the library's: live_bytes is the memory that
// has not been freed.
namespace {
std::atomic<std::int64_t> live_bytes{0};
}

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  live_bytes += static_cast<std::int64_t>(::malloc_usable_size(memory));
  return memory;
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](std::size_t bytes, const std::nothrow_t& tag) noexcept {
  return operator new(bytes, tag);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  live_bytes -= static_cast<std::int64_t>(::malloc_usable_size(memory));
  std::free(memory);
}
void operator delete[](void* memory) noexcept { operator delete(memory); }
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
void operator delete[](void* memory, std::size_t) noexcept { operator delete(memory); }

namespace hccl::testing {
namespace {

HcclFusionOptions serial() {
  HcclFusionOptions options{};
  options.dataType = HCCL_DATA_TYPE_FP32;
  options.op = HCCL_REDUCE_SUM;
  return options;
}

HcclFusionOptions parallel() {
  HcclFusionOptions options = serial();
  options.hcomParallel = 1;
  return options;
}

HcclFusionOptions cut(HcclFusionOptions options, const Indices& last_indices) {
  options.lastIndices = last_indices.data();
  options.segmentNum = static_cast<std::uint32_t>(last_indices.size());
  return options;
}

std::vector<std::uint32_t> order_of(std::uint32_t size, unsigned seed) {
  std::vector<std::uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0u);
  std::mt19937 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

// Whole numbers whose sum is exact in any order.
float whole(int rank, std::size_t e, int iteration) {
  return static_cast<float>((rank + 1) * static_cast<int>(e % 101) + iteration);
}

// Numbers whose sum depends on the order of the additions.
float odd(int rank, std::size_t e) {
  return 1.0F / static_cast<float>(3 + rank * 7 + static_cast<int>(e % 997)) *
         (e % 3 == 0 ? 1e4F : 1.0F);
}

const std::vector<std::size_t> kSizes = {3, 1, 0, 700, 20, 5, 64, 0, 1, 9000, 2, 33};

TEST(Fusion, AnySplitAnyOrderAnyMemoryGivesTheExactSums) {
  const std::vector<Indices> splits = {
      {11}, {0, 11}, {2, 7, 11}, {3, 4, 5, 9, 11}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};
  ApiWorld world(3);
  for (const bool contiguous : {true, false}) {
    for (const auto& base : {serial(), parallel()}) {
      for (std::size_t s = 0; s < splits.size(); ++s) {
        world.on_all([&](int rank) {
          Gradients gradients(kSizes, contiguous);
          const auto options = cut(base, splits[s]);
          HcclFusion fusion = create(world.comm(rank), gradients, &options);
          for (int iteration = 0; iteration < 4; ++iteration) {
            gradients.fill([&](std::size_t e) { return whole(rank, e, iteration); });
            // Each rank marks its gradients in another order.
            const auto seed = static_cast<unsigned>(rank * 100 + iteration);
            for (const auto i : order_of(gradients.size(), seed)) OK(HcclFusionReady(fusion, i));
            OK(HcclFusionWait(fusion));
            const Floats sums = gradients.values();
            for (std::size_t e = 0; e < sums.size(); ++e) {
              ASSERT_EQ(sums[e],
                        whole(0, e, iteration) + whole(1, e, iteration) + whole(2, e, iteration))
                  << "element " << e << " segments " << s;
            }
          }
          OK(HcclFusionDestroy(fusion));
        });
      }
    }
  }
}

TEST(Fusion, BitsOfRealNumbersDependOnNeitherOrderNorMemoryNorThread) {
  const Indices split = {3, 8, 11};
  ApiWorld world(3);
  std::vector<Floats> first(3);
  unsigned seed = 1;
  for (const bool contiguous : {true, false}) {
    for (const auto& base : {serial(), parallel(), serial(), parallel()}) {
      ++seed;
      world.on_all([&](int rank) {
        Gradients gradients(kSizes, contiguous);
        const auto options = cut(base, split);
        HcclFusion fusion = create(world.comm(rank), gradients, &options);
        gradients.fill([&](std::size_t e) { return odd(rank, e); });
        for (const auto i : order_of(gradients.size(), seed + static_cast<unsigned>(rank))) {
          OK(HcclFusionReady(fusion, i));
        }
        OK(HcclFusionWait(fusion));
        OK(HcclFusionDestroy(fusion));
        const Floats sums = gradients.values();
        Floats& expected = first[static_cast<std::size_t>(rank)];
        if (expected.empty()) expected = sums;
        ASSERT_EQ(std::memcmp(sums.data(), expected.data(), sums.size() * sizeof(float)), 0);
      });
    }
  }
  EXPECT_EQ(first[0], first[1]);
  EXPECT_EQ(first[0], first[2]);
}

TEST(Fusion, SegmentsCanBeWaitedForOneByOne) {
  const Indices split = {3, 4, 11};
  for (const auto& base : {serial(), parallel()}) {
    ApiWorld world(3);
    world.on_all([&](int rank) {
      Gradients gradients(kSizes, true);
      const auto options = cut(base, split);
      HcclFusion fusion = create(world.comm(rank), gradients, &options);
      for (int iteration = 0; iteration < 3; ++iteration) {
        gradients.fill([&](std::size_t e) { return whole(rank, e, iteration); });
        OK(HcclFusionReady(fusion, 0));
        SAYS(HcclFusionWaitSegment(fusion, 0), HCCL_E_PARA, "segment 0 is not ready");
        for (std::uint32_t i = 1; i < gradients.size(); ++i) OK(HcclFusionReady(fusion, i));
        std::size_t e = 0;
        std::uint32_t next = 0;
        for (std::uint32_t segment = 0; segment < split.size(); ++segment) {
          OK(HcclFusionWaitSegment(fusion, segment));
          for (; next <= split[segment]; ++next) {
            for (std::size_t i = 0; i < gradients.count(next); ++i, ++e) {
              ASSERT_EQ(gradients.data(next)[i],
                        whole(0, e, iteration) + whole(1, e, iteration) + whole(2, e, iteration));
            }
          }
        }
        SAYS(HcclFusionWaitSegment(fusion, 3), HCCL_E_PARA, "segment 3");
        OK(HcclFusionWait(fusion));
      }
      OK(HcclFusionDestroy(fusion));
    });
  }
}

TEST(Fusion, NewestFirstHasEveryElementOnceAndIsTheSameOnAllRanks) {
  constexpr std::size_t kRanks = 3;
  ApiWorld world(kRanks);
  std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> messages(kRanks);
  world.on_all([&](int rank) {
    Gradients gradients(kSizes, true);
    const auto options = serial();
    HcclFusion fusion = create(world.comm(rank), gradients, &options);
    HcclFusionOrder order{};
    SAYS(HcclFusionPlanNewestFirst(fusion, &order), HCCL_E_PARA, "between two iterations");
    for (int iteration = 0; iteration < 3; ++iteration) {
      for (std::uint32_t i = 0; i < gradients.size(); ++i) OK(HcclFusionReady(fusion, i));
      OK(HcclFusionWait(fusion));
    }
    OK(HcclFusionPlanNewestFirst(fusion, &order));
    EXPECT_GE(order.wait, 0);
    for (std::uint32_t i = 0; i < order.messageNum; ++i)
      messages[static_cast<std::size_t>(rank)].emplace_back(order.messages[i].begin,
                                                            order.messages[i].end);
    OK(HcclFusionDestroy(fusion));
  });
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_EQ(messages[0], messages[2]);
  std::sort(messages[0].begin(), messages[0].end());
  std::uint64_t next = 0;
  for (const auto& [begin, end] : messages[0]) {
    EXPECT_EQ(begin, next);
    EXPECT_GT(end, begin);
    next = end;
  }
  EXPECT_EQ(next, std::accumulate(kSizes.begin(), kSizes.end(), std::uint64_t{0}));
}

TEST(Fusion, OtherTypesAndReductions) {
  ApiWorld world(2);
  world.on_all([&](int rank) {
    std::vector<double> a(4, 1.5 + rank), b(3, -2.0 * rank);
    const HcclFusionGradient gradients[] = {{nullptr, a.data(), 4}, {nullptr, b.data(), 3}};
    HcclFusionOptions options = parallel();
    options.dataType = HCCL_DATA_TYPE_FP64;
    options.op = HCCL_REDUCE_MAX;
    HcclFusion fusion = nullptr;
    OK(HcclFusionCreate(world.comm(rank), gradients, 2, &options, &fusion));
    OK(HcclFusionReady(fusion, 1));
    OK(HcclFusionReady(fusion, 0));
    OK(HcclFusionWait(fusion));
    EXPECT_EQ(a, std::vector<double>(4, 2.5));
    EXPECT_EQ(b, std::vector<double>(3, 0.0));
    OK(HcclFusionDestroy(fusion));
  });
}

// ---- mistakes ----

TEST(Fusion, MistakesInAnIterationAreNamedAndTheIterationGoesOn) {
  const Indices split = {1, 4};
  for (const auto& base : {serial(), parallel()}) {
    ApiWorld world(2);
    world.on_all([&](int rank) {
      Gradients gradients({2, 3, 4, 5, 6}, true);
      const auto options = cut(base, split);
      HcclFusion fusion = create(world.comm(rank), gradients, &options);
      SAYS(HcclFusionWait(fusion), HCCL_E_PARA, "0 (layer0), 1 (layer1), 2 (layer2)");
      for (int iteration = 0; iteration < 3; ++iteration) {
        gradients.fill([&](std::size_t e) { return whole(rank, e, iteration); });
        OK(HcclFusionReady(fusion, 4));
        SAYS(HcclFusionReady(fusion, 4), HCCL_E_PARA, "gradient 4 (layer4) is marked twice");
        SAYS(HcclFusionReady(fusion, 5), HCCL_E_PARA, "gradient 5 does not exist");
        SAYS(HcclFusionReady(fusion, 0xFFFFFFFF), HCCL_E_PARA, "gradient 4294967295");
        OK(HcclFusionReady(fusion, 0));
        OK(HcclFusionReady(fusion, 1));
        SAYS(HcclFusionWait(fusion), HCCL_E_PARA, "2 (layer2), 3 (layer3)");
        EXPECT_EQ(std::string(HcclGetLastErrorText()).find("layer1"), std::string::npos);
        SAYS(HcclFusionReady(fusion, 1), HCCL_E_PARA, "layer1");  // its segment may be running
        OK(HcclFusionReady(fusion, 3));
        OK(HcclFusionReady(fusion, 2));
        OK(HcclFusionWait(fusion));
        const Floats sums = gradients.values();
        for (std::size_t e = 0; e < sums.size(); ++e)
          ASSERT_EQ(sums[e], whole(0, e, iteration) + whole(1, e, iteration));
      }
      OK(HcclFusionDestroy(fusion));
    });
    world.expect_usable();
  }
}

TEST(Fusion, CreateRefusesWhatDoesNotFit) {
  ApiWorld world(1);
  const HcclComm comm = world.comm(0);
  Gradients gradients({4, 4, 4}, true);
  HcclFusion fusion = nullptr;
  const auto create = [&](const HcclFusionOptions& options) {
    return HcclFusionCreate(comm, gradients.list(), 3, &options, &fusion);
  };
  SAYS(HcclFusionCreate(nullptr, gradients.list(), 3, nullptr, &fusion), HCCL_E_PTR, "comm");
  SAYS(HcclFusionCreate(&fusion, gradients.list(), 3, nullptr, &fusion), HCCL_E_PARA, "comm");
  SAYS(HcclFusionCreate(comm, nullptr, 3, nullptr, &fusion), HCCL_E_PTR, "gradients");
  SAYS(HcclFusionCreate(comm, gradients.list(), 3, nullptr, nullptr), HCCL_E_PTR, "fusion");
  SAYS(HcclFusionCreate(comm, gradients.list(), 0, nullptr, &fusion), HCCL_E_PARA, "gradientNum");
  HcclFusionGradient wrong[2] = {{"a", nullptr, 0}, {"b", nullptr, 1}};
  SAYS(HcclFusionCreate(comm, wrong, 2, nullptr, &fusion), HCCL_E_PTR, "gradients[1].data");
  wrong[1] = {"b", &fusion, 0x80000000ull};
  SAYS(HcclFusionCreate(comm, wrong, 2, nullptr, &fusion), HCCL_E_PARA, "gradients[1].count");
  HcclFusionOptions options = serial();
  options.dataType = static_cast<HcclDataType>(13);
  SAYS(create(options), HCCL_E_NOT_SUPPORT, "dataType");
  options = serial();
  options.op = HCCL_REDUCE_RESERVED;
  SAYS(create(options), HCCL_E_NOT_SUPPORT, "op");
  SAYS(create(cut(serial(), {0, 1})), HCCL_E_PARA, "2");  // the last gradient's index
  SAYS(create(cut(serial(), {0, 3})), HCCL_E_PARA, "3");
  SAYS(create(cut(serial(), {1, 1, 2})), HCCL_E_PARA, "ascend");
  SAYS(create(cut(serial(), {0, 1, 2, 3})), HCCL_E_PARA, "more than there are gradients");
  options = cut(serial(), {2});
  options.segmentNum = 0;
  SAYS(create(options), HCCL_E_PARA, "");
  const float halves[] = {50, 50};
  options = cut(serial(), {0, 2});
  options.percentages = halves;
  SAYS(create(options), HCCL_E_PARA, "both");
  const float less[] = {50, 40};
  options = serial();
  options.percentages = less;
  options.segmentNum = 2;
  SAYS(create(options), HCCL_E_PARA, "100");
  const std::string long_name(128, 'g');
  options = serial();
  options.group = long_name.c_str();
  SAYS(create(options), HCCL_E_PARA, "group");
  EXPECT_EQ(fusion, nullptr);
  world.expect_usable();
}

TEST(Fusion, HandlesThatAreNoneAreRefused) {
  ApiWorld world(1);
  Gradients gradients({4}, true);
  HcclFusion gone = nullptr;
  OK(HcclFusionCreate(world.comm(0), gradients.list(), 1, nullptr, &gone));
  OK(HcclFusionDestroy(gone));
  HcclFusion here = nullptr;
  OK(HcclFusionCreate(world.comm(0), gradients.list(), 1, nullptr, &here));
  const char* text = nullptr;
  std::uint32_t number = 0;
  for (const HcclFusion each :
       {static_cast<HcclFusion>(nullptr), gone, world.comm(0), static_cast<HcclFusion>(&number)}) {
    const HcclResult expected = each == nullptr ? HCCL_E_PTR : HCCL_E_PARA;
    SAYS(HcclFusionReady(each, 0), expected, "fusion");
    SAYS(HcclFusionRebind(each, world.comm(0)), expected, "fusion");
    SAYS(HcclFusionWait(each), expected, "fusion");
    SAYS(HcclFusionGetSegments(each, nullptr, &number), expected, "fusion");
    SAYS(HcclFusionMark(each, HCCL_FUSION_FP_START), expected, "fusion");
    SAYS(HcclFusionTraceText(each, &text), expected, "fusion");
    SAYS(HcclFusionTraceWrite(each, "/dev/null"), expected, "fusion");
    SAYS(HcclFusionDestroy(each), expected, "fusion");
  }
  SAYS(HcclFusionRebind(here, nullptr), HCCL_E_PTR, "comm");
  SAYS(HcclFusionGetSegments(here, nullptr, nullptr), HCCL_E_PTR, "segmentNum");
  SAYS(HcclFusionTraceText(here, nullptr), HCCL_E_PTR, "text");
  SAYS(HcclFusionTraceWrite(here, nullptr), HCCL_E_PTR, "path");
  SAYS(HcclFusionMark(here, static_cast<HcclFusionPoint>(3)), HCCL_E_PARA, "point");
  OK(HcclFusionDestroy(here));
}

// The two ranks differ in each case, though a segment may have equal numbers of elements.
struct Difference {
  const char* what;
  std::vector<std::size_t> sizes[2];
  Indices split[2];
};

TEST(Fusion, RanksThatDifferHearOfItBeforeAnyDataIsReduced) {
  const std::vector<Difference> differences = {
      {"gradients", {{4, 4}, {5, 3}}, {{1}, {1}}},
      {"number of gradients", {{4, 4}, {4, 2, 2}}, {{1}, {2}}},
      {"segments", {{4, 4, 4}, {4, 4, 4}}, {{0, 2}, {1, 2}}},
      {"segments behind an equal one", {{4, 4, 4}, {4, 4, 4}}, {{0, 2}, {0, 1, 2}}},
  };
  for (const auto& base : {serial(), parallel()}) {
    for (const auto& difference : differences) {
      SCOPED_TRACE(difference.what);
      ApiWorld world(2);
      world.on_all([&](int rank) {
        Gradients gradients(difference.sizes[rank], true);
        gradients.fill([&](std::size_t e) { return whole(rank, e, 5); });
        const Floats before = gradients.values();
        const auto options = cut(base, difference.split[rank]);
        HcclFusion fusion = create(world.comm(rank), gradients, &options);
        for (std::uint32_t i = 0; i < gradients.size(); ++i) OK(HcclFusionReady(fusion, i));
        SAYS(HcclFusionWait(fusion), HCCL_E_PARA, "differ");
        EXPECT_EQ(gradients.values(), before);
        OK(HcclFusionDestroy(fusion));
      });
    }
  }
}

// ---- segments ----

TEST(Fusion, SegmentsByListByShareBySettingAndByDefault) {
  ApiWorld world(1);
  Gradients gradients(std::vector<std::size_t>(160, 8), true);
  const auto segments = [&](const HcclFusionOptions* options) {
    HcclFusion fusion = nullptr;
    EXPECT_EQ(HcclFusionCreate(world.comm(0), gradients.list(), 160, options, &fusion), 0);
    const Indices list = segments_of(fusion);
    EXPECT_EQ(HcclFusionDestroy(fusion), HCCL_SUCCESS);
    return list;
  };
  EXPECT_EQ(segments(nullptr), (Indices{153, 159}));  // HCCL's 96.54 % and 3.46 %
  const Indices own = {20, 100, 159};
  HcclFusionOptions options = cut(serial(), own);
  EXPECT_EQ(segments(&options), own);
  const float shares[] = {60, 20, 20};
  options = serial();
  options.percentages = shares;
  options.segmentNum = 3;
  EXPECT_EQ(segments(&options), (Indices{95, 127, 159}));
  OK(HcomSetGradFusionByIndex("mine", 3, own.data()));
  EXPECT_EQ(segments(nullptr), (Indices{153, 159}));
  options = serial();
  options.group = "mine";
  EXPECT_EQ(segments(&options), own);
  OK(HcomSetGradFusionBySize("mine", 3, shares));
  EXPECT_EQ(segments(&options), (Indices{95, 127, 159}));
  OK(HcomSetGradFusionBySize(nullptr, 3, shares));
  EXPECT_EQ(segments(nullptr), (Indices{95, 127, 159}));
  EXPECT_EQ(HcomDestroy(), HCCL_E_UNAVAIL);  // there was no world, but the settings are gone
  EXPECT_EQ(segments(nullptr), (Indices{153, 159}));
}

TEST(Fusion, GetSegmentsNeedsRoom) {
  ApiWorld world(1);
  Gradients gradients({1, 1, 1}, true);
  const Indices split = {0, 1, 2};
  const auto options = cut(serial(), split);
  HcclFusion fusion = create(world.comm(0), gradients, &options);
  Indices list(3, 77);
  std::uint32_t number = 2;
  SAYS(HcclFusionGetSegments(fusion, list.data(), &number), HCCL_E_PARA, "lastIndices");
  EXPECT_EQ(number, 3u);
  EXPECT_EQ(list, Indices(3, 77));
  SAYS(HcclFusionGetSegments(fusion, nullptr, &number), HCCL_E_PTR, "lastIndices");
  OK(HcclFusionDestroy(fusion));
}

TEST(Fusion, GradientsOfNoSizeAtAll) {
  ApiWorld world(2);
  world.on_all([&](int rank) {
    Gradients gradients({0, 0, 0}, true);
    const Indices split = {0, 2};
    const auto options = cut(rank == 0 ? serial() : parallel(), split);
    HcclFusion fusion = create(world.comm(rank), gradients, &options);
    for (int iteration = 0; iteration < 3; ++iteration) {
      for (const auto i : {2u, 0u, 1u}) OK(HcclFusionReady(fusion, i));
      OK(HcclFusionWait(fusion));
    }
    OK(HcclFusionDestroy(fusion));
  });
  world.expect_usable();
}

// ---- traces ----

std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

TEST(Fusion, ASegmentStartsWhenItsGradientsAreReadyAndTheOnesBeforeHaveStarted) {
  const Indices split = {1, 3, 5};
  Folder folder;
  for (const auto& base : {serial(), parallel()}) {
    ApiWorld world(2);
    world.on_all([&](int rank) {
      Gradients gradients({50, 60, 70, 80, 90, 100}, rank == 0);
      const auto options = cut(base, split);
      HcclFusion fusion = create(world.comm(rank), gradients, &options);
      constexpr int kIterations = 10;
      for (int iteration = 0; iteration < kIterations; ++iteration) {
        for (const auto i : order_of(6, static_cast<unsigned>(iteration))) {
          OK(HcclFusionReady(fusion, i));
        }
        OK(HcclFusionWait(fusion));
      }
      const std::string file = "rank" + std::to_string(rank) + ".csv";
      OK(HcclFusionTraceWrite(fusion, (folder / file).c_str()));
      OK(HcclFusionDestroy(fusion));

      std::int64_t ready[kIterations + 1][6] = {}, start[kIterations + 1][3] = {};
      std::int64_t end[kIterations + 1][3] = {};
      int rows = 0;
      for (const std::string& line : split_at(folder.read(file), '\n')) {
        const auto field = split_at(line, ',');
        if (field[2] != "gradient" && field[2] != "segment") continue;
        ++rows;
        const auto iteration = std::stoul(field[1]);
        ASSERT_LE(iteration, static_cast<unsigned>(kIterations));
        if (field[2] == "gradient") {
          ready[iteration][std::stoul(field[4])] = std::stoll(field[8]);
        } else {
          const auto segment = std::stoul(field[3].substr(std::strlen("allreduce"))) - 1;
          start[iteration][segment] = std::stoll(field[8]);
          end[iteration][segment] = std::stoll(field[9]);
        }
      }
      EXPECT_EQ(rows, kIterations * 9);
      for (int i = 1; i <= kIterations; ++i) {
        for (int s = 0; s < 3; ++s) {
          EXPECT_GE(start[i][s], ready[i][2 * s]);
          EXPECT_GE(start[i][s], ready[i][2 * s + 1]);
          EXPECT_GE(end[i][s], start[i][s]);
          EXPECT_GT(start[i][s], 0);
          EXPECT_GE(start[i][s], s == 0 ? 0 : start[i][s - 1]);
        }
      }
    });
  }
}

TEST(Fusion, TheTraceTellsThePointsInOrder) {
  ApiWorld world(2);
  for (const auto& base : {serial(), parallel()}) {
    world.on_all([&](int rank) {
      Gradients gradients({30, 40, 50}, true);
      const Indices split = {0, 2};
      const auto options = cut(base, split);
      HcclFusion fusion = create(world.comm(rank), gradients, &options);
      const char* text = nullptr;
      OK(HcclFusionTraceText(fusion, &text));
      EXPECT_STREQ(text, "");  // no iteration yet
      for (int iteration = 0; iteration < 3; ++iteration) {
        OK(HcclFusionMark(fusion, HCCL_FUSION_FP_START));
        for (std::uint32_t i = 0; i < 3; ++i) OK(HcclFusionReady(fusion, i));
        OK(HcclFusionMark(fusion, HCCL_FUSION_BP_END));
        OK(HcclFusionWait(fusion));
        OK(HcclFusionMark(fusion, HCCL_FUSION_ITERATION_END));
        OK(HcclFusionTraceText(fusion, &text));
        std::vector<std::string> names;
        std::int64_t last = 0;
        for (const std::string& line : split_at(text, '\n')) {
          const auto words = split_at(line, ' ');
          ASSERT_EQ(words.size(), 2u) << line;
          EXPECT_GE(std::stoll(words[0]), last);
          last = std::stoll(words[0]);
          names.push_back(words[1]);
        }
        std::vector<std::string> expected = {
            "fp_start",         "bp_end",         "allreduce1_start", "allreduce1_end",
            "allreduce2_start", "allreduce2_end", "iteration_end"};
        if (base.hcomParallel != 0) {
          // Backward may end before, between or after the segments.
          std::erase(names, "bp_end");
          std::erase(expected, "bp_end");
        }
        EXPECT_EQ(names, expected);
        EXPECT_EQ(std::string(text).rfind("0 ", 0), 0u);
      }
      OK(HcclFusionDestroy(fusion));
    });
  }
}

TEST(Fusion, TraceFilesOfThreeKindsAndOfNone) {
  Folder folder;
  ApiWorld world(1);
  Gradients gradients({30, 40}, true);
  const Indices split = {0, 1};
  const auto options = cut(serial(), split);
  HcclFusion fusion = create(world.comm(0), gradients, &options);
  for (int iteration = 0; iteration < 3; ++iteration) {
    for (std::uint32_t i = 0; i < 2; ++i) OK(HcclFusionReady(fusion, i));
    OK(HcclFusionWait(fusion));
  }
  OK(HcclFusionTraceWrite(fusion, (folder / "t.json").c_str()));
  const std::string json = folder.read("t.json");
  EXPECT_EQ(json.front(), '{');
  EXPECT_NE(json.find("\"traceEvents\""), std::string::npos);
  EXPECT_NE(json.find("allreduce2"), std::string::npos);
  OK(HcclFusionTraceWrite(fusion, (folder / "t.csv").c_str()));
  // 3 iterations of 4 points, 2 gradients and 2 segments, below a head line.
  EXPECT_EQ(split_at(folder.read("t.csv"), '\n').size(), 1u + 3 * 8);
  OK(HcclFusionTraceWrite(fusion, (folder / "trace").c_str()));
  EXPECT_NE(folder.read("trace").find("layer1"), std::string::npos);
  // hccl-plan's advice needs the name of the group whose strategy the communicator's fusions use.
  EXPECT_NE(folder.read("trace").find("hccl_world_group"), std::string::npos);
  EXPECT_NE(folder.read("trace").front(), '{');

  for (const char* name : {"full.json", "full.csv", "full"}) {
    const std::string link = folder / name;
    ASSERT_EQ(::symlink("/dev/full", link.c_str()), 0);
    SAYS(HcclFusionTraceWrite(fusion, link.c_str()), HCCL_E_OPEN_FILE_FAILURE, link);
  }
  for (const std::string& path : {folder / "no/such/place.json", folder / ".", std::string()}) {
    SAYS(HcclFusionTraceWrite(fusion, path.c_str()), HCCL_E_OPEN_FILE_FAILURE, path);
  }
  OK(HcclFusionDestroy(fusion));
}

// ---- endurance ----

TEST(Fusion, AThousandIterationsDoNotGrowMemory) {
  constexpr int kFull = 1100;  // more iterations than a trace keeps
  ApiWorld world(2);
  std::int64_t before = 0, after = 0;
  world.on_all([&](int rank) {
    Gradients gradients({30, 0, 50, 7}, false);
    const Indices split = {1, 3};
    const auto options = cut(rank == 0 ? parallel() : serial(), split);
    HcclFusion fusion = create(world.comm(rank), gradients, &options);
    for (int iteration = 0; iteration < kFull + 1000; ++iteration) {
      if (iteration == kFull) {
        OK(HcclBarrier(world.comm(rank), nullptr));
        if (rank == 0) before = live_bytes;
        OK(HcclBarrier(world.comm(rank), nullptr));
      }
      for (std::uint32_t i = 0; i < 4; ++i) OK(HcclFusionReady(fusion, i));
      OK(HcclFusionWait(fusion));
    }
    OK(HcclBarrier(world.comm(rank), nullptr));
    if (rank == 0) after = live_bytes;
    OK(HcclBarrier(world.comm(rank), nullptr));
    OK(HcclFusionDestroy(fusion));
  });
  EXPECT_GT(before, 0);
  EXPECT_LT(after - before, 8 * 1024) << "after 1,000 iterations";
}

TEST(Fusion, DestroyFinishesWhatRuns) {
  for (const auto& base : {serial(), parallel()}) {
    ApiWorld world(2);
    Gradients gradients[] = {Gradients({400, 500}, true), Gradients({400, 500}, false)};
    const Indices split = {0, 1};
    const auto options = cut(base, split);
    HcclFusion fusions[2];
    for (int rank = 0; rank < 2; ++rank) {
      gradients[rank].fill([&](std::size_t e) { return whole(rank, e, 0); });
      OK(HcclFusionCreate(world.comm(rank), gradients[rank].list(), 2, &options, &fusions[rank]));
    }
    // Rank 0's first segment has started; its second segment never will.
    OK(HcclFusionReady(fusions[0], 0));
    std::thread destroyer([&] { OK(HcclFusionDestroy(fusions[0])); });
    OK(HcclFusionReady(fusions[1], 0));
    OK(HcclFusionDestroy(fusions[1]));
    destroyer.join();
    const Floats sums = gradients[0].values();
    for (std::size_t e = 0; e < 900; ++e)
      ASSERT_EQ(sums[e], e < 400 ? whole(0, e, 0) + whole(1, e, 0) : whole(0, e, 0));
    world.expect_usable();
  }
}

TEST(Fusion, GoesOnInASmallerCommunicator) {
  for (const auto& base : {serial(), parallel()}) {
    ApiWorld world(3);
    const Indices split = {0, 2};
    world.on_all([&](int rank) {
      Gradients gradients({400, 500, 3}, false);
      const auto options = cut(base, split);
      HcclFusion fusion = nullptr;
      OK(HcclFusionCreate(world.comm(rank), gradients.list(), 3, &options, &fusion));
      const auto reduce = [&] {
        gradients.fill([&](std::size_t e) { return whole(rank, e, 0); });
        for (const std::uint32_t each : {2, 0, 1}) {
          EXPECT_EQ(HcclFusionReady(fusion, each), HCCL_SUCCESS) << HcclGetLastErrorText();
        }
        return HcclFusionWait(fusion);
      };
      OK(reduce());
      if (rank == 1) {  // aborts while the others are in an iteration
        OK(HcclCommAbort(world.comm(rank), "gone"));
        OK(HcclFusionDestroy(fusion));
        return;
      }
      EXPECT_EQ(reduce(), HCCL_E_UNAVAIL);
      const std::uint32_t excluded = 1;
      HcclComm smaller = nullptr;
      OK(HcclCommShrink(world.comm(rank), &excluded, 1, nullptr, &smaller));
      OK(HcclFusionRebind(fusion, smaller));
      for (int iteration = 0; iteration < 2; ++iteration) {
        OK(reduce());
        const Floats sums = gradients.values();
        for (std::size_t e = 0; e < 903; ++e) ASSERT_EQ(sums[e], whole(0, e, 0) + whole(2, e, 0));
      }
      std::uint32_t number = 2;
      Indices last(2);
      OK(HcclFusionGetSegments(fusion, last.data(), &number));
      EXPECT_EQ(last, split);
      OK(HcclFusionDestroy(fusion));
      OK(HcclCommDestroy(smaller));
    });
  }
}

// The wrong order of destruction does no harm.
TEST(Fusion, ACommunicatorDestroyedFirst) {
  ApiWorld world(2);
  world.on_all([&](int rank) {
    Gradients gradients({8}, true);
    HcclFusion fusion = create(world.comm(rank), gradients, nullptr);
    OK(HcclFusionReady(fusion, 0));
    OK(HcclFusionWait(fusion));
    OK(HcclCommDestroy(world.comm(rank)));
    world.comm(rank) = nullptr;
    const char* text = nullptr;
    OK(HcclFusionTraceText(fusion, &text));
    OK(HcclFusionDestroy(fusion));
  });
}

}  // namespace
}  // namespace hccl::testing
