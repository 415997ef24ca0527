// The host path by itself: threads stand for the ranks of one host, with an area of plain memory
// and one device heap. Random operations in random places, every way; the oracle computes each
// element of each rank's result from the ranks' numbers.
#include "hccl/exec/host/host_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "hccl/schedule/algorithm.h"
#include "tests/support/host_ranks.h"

namespace hccl::exec::host {
namespace {

using testing::HostRanks;

/// Element i of the input of `rank` in operation `number`.
std::uint32_t element(std::uint64_t number, int rank, std::uint64_t i) {
  std::uint64_t h = number * 1000003 + static_cast<std::uint64_t>(rank) * 7919 + i;
  h *= 0x9E3779B97F4A7C15u;
  return static_cast<std::uint32_t>(h >> 32);
}

/// What every rank knows of one operation; the same on all of them.
struct Plan {
  Op op = Op::kBarrier;
  std::uint64_t count = 0;
  int root = 0;
  bool in_place = false;
  bool heap = false;                                // buffers in device memory
  bool odd_one = false;                             // but for rank 0's
  std::vector<std::vector<std::uint64_t>> lengths;  // [from][to], of the V operations
};

/// One rank's buffers, in device memory and out of it.
class Buffers {
 public:
  Buffers(memory::Heap& heap, std::size_t elements) : heap_(heap), private_(2 * elements) {
    device_ = static_cast<std::uint32_t*>(heap.allocate(2 * elements * 4).value());
    elements_ = elements;
  }
  ~Buffers() { static_cast<void>(heap_.free(device_)); }
  std::uint32_t* in(bool heap) { return heap ? device_ : private_.data(); }
  std::uint32_t* out(bool heap) { return in(heap) + elements_; }

 private:
  memory::Heap& heap_;
  std::vector<std::uint32_t> private_;
  std::uint32_t* device_;
  std::size_t elements_;
};

bool folds(Op op) {
  return op == Op::kAllReduce || op == Op::kReduce || op == Op::kReduceScatter ||
         op == Op::kReduceScatterV;
}

// Runs one operation as one rank and checks its result. False at the first difference.
::testing::AssertionResult take_part(HostPath& path, const Plan& plan, std::uint64_t number,
                                     int rank, int size, Buffers& buffers) {
  const bool heap = plan.heap && !(plan.odd_one && rank == 0);
  const auto n = static_cast<std::uint64_t>(size);
  const auto me = static_cast<std::uint64_t>(rank);
  std::uint32_t* in = buffers.in(heap);
  std::uint32_t* out = buffers.out(heap);
  Call call;
  call.op = plan.op;
  call.count = plan.count;
  call.type = DataType::kUint32;
  call.root = plan.root;
  std::vector<Block> in_blocks;
  std::vector<Block> out_blocks;
  std::uint64_t input = plan.count;
  switch (plan.op) {
    case Op::kReduceScatter:
      input = plan.count * n;
      if (plan.in_place) out = in + me * plan.count;
      break;
    case Op::kAllGather:
      if (plan.in_place) in = out + me * plan.count;
      break;
    case Op::kScatter:
      input = plan.count * n;
      if (plan.in_place && rank == plan.root) out = in + me * plan.count;
      break;
    case Op::kAllToAll:
      input = plan.count * n;
      break;
    case Op::kBroadcast:
      out = in;
      break;
    case Op::kReduceScatterV:
    case Op::kAllGatherV:
    case Op::kAllToAllV: {
      // Gaps between the blocks.
      std::uint64_t at = 1;
      std::uint64_t back = 2;
      for (std::uint64_t r = 0; r < n; ++r) {
        const auto given = plan.lengths[plan.op == Op::kAllToAllV ? me : 0][r];
        const auto taken = plan.op == Op::kAllToAllV ? plan.lengths[r][me] : plan.lengths[0][r];
        in_blocks.push_back({at, given});
        out_blocks.push_back({back, taken});
        at += given + 1;
        back += taken + 3;
      }
      input = at;
      call.count = plan.op == Op::kAllToAllV ? 0 : plan.lengths[0][me];
      if (plan.op == Op::kAllGatherV) input = call.count;
      if (plan.op != Op::kAllGatherV) call.in_blocks = in_blocks;
      if (plan.op != Op::kReduceScatterV) call.out_blocks = out_blocks;
      break;
    }
    default:
      if (plan.in_place) out = in;
  }
  const bool gives = !(plan.op == Op::kBroadcast || plan.op == Op::kScatter) || rank == plan.root;
  for (std::uint64_t i = 0; gives && i < input; ++i) in[i] = element(number, rank, i);
  call.in = in;
  call.out = out;
  const Status status = path.run(call, envelope(call, number, 0));
  if (!status.ok()) return ::testing::AssertionFailure() << status.message();

  const auto check = [&](std::uint64_t at, std::uint32_t expected) {
    if (out[at] == expected) return ::testing::AssertionResult(true);
    return ::testing::AssertionFailure()
           << "operation " << number << " (" << hccl::words(plan.op) << ", " << plan.count
           << " elements, " << words(path.way()) << ") gave rank " << rank << " " << out[at]
           << " for " << expected << " at " << at;
  };
  const auto sum = [&](std::uint64_t i) {
    std::uint32_t total = 0;
    for (int r = 0; r < size; ++r) total += element(number, r, i);
    return total;
  };
  const std::uint64_t stride = plan.count > 3000 ? 17 : 1;
  if (folds(plan.op)) {
    if (plan.op == Op::kReduce && rank != plan.root) return ::testing::AssertionSuccess();
    std::uint64_t first = 0;
    if (plan.op == Op::kReduceScatter) first = me * plan.count;
    if (plan.op == Op::kReduceScatterV) first = in_blocks[me].at;
    for (std::uint64_t i = 0; i < call.count; i += stride) {
      if (auto same = check(i, sum(first + i)); !same) return same;
    }
    if (call.count != 0) return check(call.count - 1, sum(first + call.count - 1));
    return ::testing::AssertionSuccess();
  }
  for (int from = 0; from < size && plan.op != Op::kBarrier; ++from) {
    const auto r = static_cast<std::uint64_t>(from);
    std::uint64_t at = 0;
    std::uint64_t source = 0;
    std::uint64_t length = plan.count;
    switch (plan.op) {
      case Op::kAllGather:
        at = r * plan.count;
        break;
      case Op::kAllToAll:
        at = r * plan.count;
        source = me * plan.count;
        break;
      case Op::kScatter:
        source = me * plan.count;
        break;
      case Op::kAllGatherV:
        at = out_blocks[r].at;
        length = out_blocks[r].count;
        break;
      case Op::kAllToAllV: {
        at = out_blocks[r].at;
        length = out_blocks[r].count;
        source = 1;
        for (std::uint64_t to = 0; to < me; ++to) source += plan.lengths[r][to] + 1;
        break;
      }
      default:
        break;
    }
    if ((plan.op == Op::kBroadcast || plan.op == Op::kScatter) && from != plan.root) continue;
    for (std::uint64_t i = 0; i < length; i += stride) {
      if (auto same = check(at + i, element(number, from, source + i)); !same) return same;
    }
  }
  return ::testing::AssertionSuccess();
}

Plan random_plan(std::mt19937_64& random, int size, std::uint64_t most) {
  constexpr Op kOps[] = {Op::kAllReduce, Op::kAllReduce,     Op::kAllReduce,      Op::kBroadcast,
                         Op::kReduce,    Op::kReduceScatter, Op::kAllGather,      Op::kScatter,
                         Op::kAllToAll,  Op::kBarrier,       Op::kReduceScatterV, Op::kAllGatherV,
                         Op::kAllToAllV};
  const auto below = [&](std::uint64_t n) { return random() % n; };
  Plan plan;
  plan.op = kOps[below(std::size(kOps))];
  const std::uint64_t bounds[] = {1, 4, 15, 30, 600, most / 20 + 1, most};
  plan.count = below(bounds[below(std::size(bounds))] + 1);
  const bool whole =
      plan.op == Op::kAllReduce || plan.op == Op::kBroadcast || plan.op == Op::kReduce;
  if (!whole) plan.count /= static_cast<std::uint64_t>(size);
  plan.root = static_cast<int>(below(static_cast<std::uint64_t>(size)));
  plan.in_place = below(2) == 0;
  plan.heap = below(3) != 0;
  plan.odd_one = below(4) == 0;
  plan.lengths.assign(static_cast<std::size_t>(size), {});
  for (auto& row : plan.lengths) {
    for (int to = 0; to < size; ++to) row.push_back(below(3) == 0 ? 0 : below(plan.count + 1));
  }
  return plan;
}

struct Setting {
  const char* name;
  int size;
  std::size_t ring_most;
  std::size_t pull_most;
  std::size_t chunk;
  bool shared_cores;
  bool streams = false;
  std::size_t chain_from = 0;
  std::size_t cma_from = 0;
  int cores = 0;  // that the ranks are bound to in turn; 0: to none
};

/// The places on each of so many cores.
std::vector<std::vector<int>> in_turn(int size, int cores) {
  std::vector<std::vector<int>> groups(static_cast<std::size_t>(cores));
  for (int place = 0; cores != 0 && place < size; ++place) {
    groups[static_cast<std::size_t>(place % cores)].push_back(place);
  }
  return groups;
}

class EveryWay : public ::testing::TestWithParam<Setting> {};

TEST_P(EveryWay, RandomOperationsGiveWhatTheyShould) {
  const Setting& setting = GetParam();
  constexpr std::uint64_t kMost = 300000;
  constexpr int kOperations = 120;
  Ways ways;
  ways.ring_most = setting.ring_most;
  ways.pull_most = setting.pull_most;
  ways.chunk = setting.chunk;
  ways.chain_from = setting.chain_from;
  ways.cma_moves_from = ways.cma_folds_from = setting.cma_from;
  ways.cma_moves_most = ways.cma_folds_most = 1 << 20;
  kernels::StoreRule stores;
  if (setting.streams) stores.cached_most = 0;
  HostRanks host(setting.size, ways, setting.shared_cores, stores);
  std::atomic<int> failures{0};
  std::array<std::atomic<int>, kWays> taken{};
  host.run([&](int rank, HostPath& path) {
    std::mt19937_64 random(42);
    Buffers buffers(*host.heap(), kMost + 1000);
    const auto attached = path.attach();
    ASSERT_TRUE(attached.ok()) << attached.status().message();
    ASSERT_TRUE(*attached);
    ASSERT_TRUE(path.map_rings().ok());
    path.set_core_groups(in_turn(setting.size, setting.cores));
    if (setting.streams) path.set_ring_store(kernels::Store::kStream);
    for (std::uint64_t number = 1; number <= kOperations && failures == 0; ++number) {
      if (number == kOperations * 2 / 3) path.set_core_groups({});
      const Plan plan = random_plan(random, setting.size, kMost);
      const auto result = take_part(path, plan, number, rank, setting.size, buffers);
      if (!result) {
        ++failures;
        ADD_FAILURE() << result.message();
      }
      ++taken[static_cast<std::size_t>(path.way())];
    }
  });
  EXPECT_GT(taken[static_cast<std::size_t>(Way::kPost)], 0);
  EXPECT_GT(taken[static_cast<std::size_t>(setting.cma_from != 0 ? Way::kCma : Way::kStage)], 0);
  EXPECT_GT(taken[static_cast<std::size_t>(Way::kPull)], 0);
  if (setting.ring_most > 100) {
    EXPECT_GT(taken[static_cast<std::size_t>(Way::kRing)], 0);
  }
  if (setting.pull_most < 1000) {
    EXPECT_GT(taken[static_cast<std::size_t>(Way::kPush)], 0);
  }
  if (setting.chain_from != 0) {
    EXPECT_GT(taken[static_cast<std::size_t>(Way::kChain)], 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Host, EveryWay,
    ::testing::Values(Setting{"two", 2, 1 << 18, 1 << 25, 1 << 17, false},
                      Setting{"two_push", 2, 64, 0, 1 << 12, true},
                      Setting{"two_small_chunks", 2, 0, 1 << 25, 64, true},
                      Setting{"two_streaming", 2, 64, 1 << 25, 1 << 17, true, true},
                      Setting{"three", 3, 1 << 14, 1 << 25, 1 << 14, true},
                      Setting{"three_streaming", 3, 64, 1 << 16, 5000, true, true},
                      Setting{"four_push", 4, 2048, 0, 1 << 17, true},
                      Setting{"five", 5, 4096, 1 << 16, 5000, true},
                      Setting{"eight", 8, 2048, 0, 1 << 17, true},
                      Setting{"two_chain", 2, 64, 0, 1 << 17, false, false, 1},
                      Setting{"three_chain", 3, 1 << 14, 0, 5000, true, true, 1 << 16},
                      Setting{"eight_chain", 8, 2048, 0, 1 << 17, true, false, 4096},
                      Setting{"three_chain_on_two", 3, 64, 0, 5000, true, true, 64, 0, 2},
                      Setting{"four_chain_on_two", 4, 64, 0, 5000, true, false, 4096, 0, 2},
                      Setting{"eight_chain_on_three", 8, 64, 0, 5000, true, false, 64, 0, 3},
                      Setting{"five_on_two", 5, 1 << 14, 1 << 16, 5000, true, false, 0, 0, 2},
                      Setting{"eight_on_three", 8, 1 << 15, 0, 1 << 17, true, true, 0, 0, 3},
                      Setting{"two_cma", 2, 64, 0, 1 << 17, false, false, 0, 1},
                      Setting{"five_cma", 5, 4096, 1 << 16, 5000, true, true, 0, 1 << 12},
                      Setting{"eight_cma", 8, 64, 0, 1 << 17, false, false, 0, 1}),
    [](const auto& info) { return info.param.name; });

// Of ranks that are bound to cores they share. What does not fit takes another way.
TEST(HostPath, ShortInputsTravelWithThePost) {
  constexpr int kSize = 5;
  HostRanks host(kSize, Ways::for_host(kSize, true), true);
  host.run([&](int rank, HostPath& path) {
    path.set_core_groups(in_turn(kSize, 2));
    const std::size_t most = path.posted_most();
    EXPECT_EQ(most, Post::kMost / 3);
    std::uint64_t sequence = 0;
    for (const std::size_t bytes :
         {most / 4 * 4, most / 4 * 4 + 4, std::size_t{56}, std::size_t{60}}) {
      std::vector<std::uint32_t> data(bytes / 4, static_cast<std::uint32_t>(rank + 1));
      Call call;
      call.op = Op::kAllReduce;
      call.in = call.out = data.data();
      call.count = data.size();
      call.type = DataType::kUint32;
      ASSERT_TRUE(path.run(call, envelope(call, ++sequence, 0)).ok());
      EXPECT_EQ(path.way(), bytes <= most ? Way::kPost : Way::kRing);
      EXPECT_EQ(std::count(data.begin(), data.end(), 15u), static_cast<long>(data.size()));
    }
  });
}

// Rank order and one rounding, whatever the way: 1e8 + 1 - 1e8 is 0 or 1 by the order alone. Of
// ranks that are bound to cores a chain keeps it where it is asked to.
TEST(HostPath, FoldsInRankOrderWhateverTheWay) {
  struct Case {
    std::size_t ring_most;
    std::size_t chain_from;
    std::size_t cma_from;
    std::size_t pull_most;
    bool heap;
    int cores = 0;
    bool strict = false;
  };
  for (const Case& each :
       {Case{1 << 20, 0, 0, 0, false}, Case{0, 0, 0, 0, false}, Case{0, 1, 0, 0, false},
        Case{0, 0, 1, 0, false}, Case{0, 0, 0, 1 << 25, true}, Case{0, 0, 0, 0, true},
        Case{0, 1, 0, 0, false, 2, true}, Case{0, 1, 0, 0, false, 2, false}}) {
    Ways ways;
    ways.ring_most = each.ring_most;
    ways.chain_from = each.chain_from;
    ways.cma_folds_from = each.cma_from;
    ways.cma_folds_most = 1 << 20;
    ways.pull_most = each.pull_most;
    ways.chunk = 1 << 12;
    HostRanks host(3, ways, true);
    host.run([&](int rank, HostPath& path) {
      ASSERT_TRUE(path.attach().ok());
      path.set_core_groups(in_turn(3, each.cores));
      constexpr std::uint64_t kCount = 10000;
      std::vector<float> mine(kCount);
      auto* data = mine.data();
      void* device = nullptr;
      if (each.heap) {
        device = host.heap()->allocate(kCount * sizeof(float)).value();
        data = static_cast<float*>(device);
      }
      const float value[] = {1e8F, -1e8F, 1.0F};
      std::fill(data, data + kCount, value[rank]);
      Call call;
      call.op = Op::kAllReduce;
      call.in = call.out = data;
      call.count = kCount;
      call.type = DataType::kFp32;
      ASSERT_TRUE(path.run(call, envelope(call, 1, each.strict ? kInRankOrder : 0)).ok());
      // Else on core after core, from either one: 1e8 + 1 - 1e8, and -1e8 + 1e8 + 1.
      const bool in_order = each.cores == 0 || each.strict;
      for (std::uint64_t i = 0; i < kCount && in_order; ++i) ASSERT_EQ(data[i], 1.0F) << i;
      if (!in_order) {
        EXPECT_EQ(data[0], 0.0F);
        EXPECT_EQ(data[kCount - 1], 1.0F);
      }
      if (device != nullptr) {
        ASSERT_TRUE(host.heap()->free(device).ok());
      }
    });
  }
}

// 16-bit floats are rounded once, after all have been added, by every way: 1 + 3 * 2^-9 is halfway
// between two bf16 above 1 + 2^-7, each 2^-9 alone is lost.
TEST(HostPath, RoundsOnceWhateverTheWay) {
  for (const bool cma : {false, true}) {
    Ways ways;
    ways.chain_from = 1;
    ways.cma_folds_from = 1;
    ways.cma_folds_most = 1 << 20;
    ways.chunk = 1 << 12;
    HostRanks host(5, ways, true);
    host.run([&](int rank, HostPath& path) {
      if (cma) {
        ASSERT_TRUE(path.attach().ok());
      }
      std::vector<std::uint16_t> data(100000, rank == 0 ? 0x3F80 : 0x3B00);  // 1, 2^-9
      Call call;
      call.op = Op::kAllReduce;
      call.in = call.out = data.data();
      call.count = data.size();
      call.type = DataType::kBfp16;
      ASSERT_TRUE(path.run(call, envelope(call, 1, 0)).ok());
      EXPECT_EQ(path.way(), cma ? Way::kCma : Way::kStage);
      for (const std::uint16_t value : data) ASSERT_EQ(value, 0x3F81);  // 1 + 2^-7
    });
  }
}

// Copies of the kernel that would be slow take a detour, of several pieces.
TEST(HostPath, TheKernelCopiesWhereverBuffersLieInTheirPages) {
  Ways ways;
  ways.cma_moves_from = 1;
  ways.cma_moves_most = std::size_t{1} << 30;
  HostRanks host(2, ways, true);
  host.run([&](int rank, HostPath& path) {
    ASSERT_TRUE(path.attach().ok());
    constexpr std::uint64_t kBlock = (1 << 17) + 1024;  // elements: whole pages, and not of pieces
    constexpr std::size_t kPage = 4096, kWord = sizeof(std::uint32_t);
    const auto pages = [](std::vector<std::uint32_t>& memory) {
      void* begin = memory.data();
      std::size_t room = memory.size() * kWord;
      return static_cast<std::uint32_t*>(
          std::align(kPage, 2 * kBlock * kWord + kPage, begin, room));
    };
    std::vector<std::uint32_t> in_memory(2 * kBlock + 2 * kPage), out_memory(in_memory.size());
    std::uint64_t number = 0;
    for (const Op op : {Op::kAllToAll, Op::kScatter}) {  // the giver copies, the taker does
      for (const std::size_t in_at : {0, 4, 1020}) {
        for (const std::size_t out_at : {0, 1, 4, 15, 16, 20, 1023}) {
          ++number;
          std::uint32_t* const in = pages(in_memory) + in_at;
          std::uint32_t* const out = pages(out_memory) + out_at;
          for (std::uint64_t i = 0; i < 2 * kBlock; ++i) in[i] = element(number, rank, i);
          Call call;
          call.op = op;
          call.in = in;
          call.out = out;
          call.count = kBlock;
          call.type = DataType::kUint32;
          ASSERT_TRUE(path.run(call, envelope(call, number, 0)).ok());
          ASSERT_EQ(path.way(), Way::kCma);
          const auto me = static_cast<std::uint64_t>(rank);
          for (int from = 0; from < (op == Op::kScatter ? 1 : 2); ++from) {
            for (std::uint64_t i = 0; i < kBlock; ++i) {
              ASSERT_EQ(out[static_cast<std::uint64_t>(from) * kBlock + i],
                        element(number, from, me * kBlock + i))
                  << hccl::words(op) << " from " << from << ", element " << i << ", in at "
                  << in_at << ", out at " << out_at;
            }
          }
        }
      }
    }
  });
}

// More chunks than the ring holds, and more ranks than chunks of the usual length; the next
// operation begins while others still copy the last.
TEST(HostPath, TurnsGoRoundTheRing) {
  for (const int size : {2, 5, 40}) {
    Ways ways;
    ways.ring_most = 1 << 18;
    ways.chain_from = 1;
    HostRanks host(size, ways, true);
    host.run([&](int rank, HostPath& path) {
      constexpr std::uint64_t kLong = 1 << 20;
      std::vector<std::uint32_t> data(kLong);
      std::uint64_t number = 0;
      for (const std::uint64_t count : {kLong, kLong - 77, std::uint64_t{50000}, kLong}) {
        ++number;
        for (std::uint64_t i = 0; i < count; ++i) data[i] = element(number, rank, i);
        Call call;
        call.op = Op::kAllReduce;
        call.in = call.out = data.data();
        call.count = count;
        call.type = DataType::kUint32;
        ASSERT_TRUE(path.run(call, envelope(call, number, 0)).ok());
        EXPECT_EQ(path.way(), count == 50000 ? Way::kRing : Way::kChain);
        for (std::uint64_t i = 0; i < count; i += 61) {
          std::uint32_t sum = 0;
          for (int r = 0; r < size; ++r) sum += element(number, r, i);
          ASSERT_EQ(data[i], sum) << "element " << i << " of operation " << number;
        }
      }
    });
  }
}

// One rank of a core folds, the others copy its result: of this operation, wherever the rings are,
// and not overwritten by the next. Among operations that do so and others that do not.
TEST(HostPath, RanksThatShareACoreShareResults) {
  constexpr int kSize = 6;
  Ways ways;
  ways.ring_most = 1 << 17;
  ways.chunk = 1 << 12;
  HostRanks host(kSize, ways, true);
  host.run([&](int rank, HostPath& path) {
    std::mt19937_64 random(7);
    std::vector<std::uint32_t> in(1 << 15);
    std::vector<std::uint32_t> out(in.size());
    for (std::uint64_t number = 1; number <= 600; ++number) {
      const std::uint64_t count = 1 + random() % (std::uint64_t{1} << random() % 16);
      const bool in_place = random() % 2 == 0;
      const bool everybody = random() % 8 != 0;
      for (std::uint64_t i = 0; i < count; ++i) in[i] = element(number, rank, i);
      Call call;
      call.op = everybody ? Op::kAllReduce : Op::kReduce;
      call.in = in.data();
      call.out = in_place ? in.data() : out.data();
      call.count = count;
      call.type = DataType::kUint32;
      const Status status = path.run(call, envelope(call, number, 0));
      ASSERT_TRUE(status.ok()) << status.message();
      if (!everybody && rank != 0) continue;
      for (std::uint64_t i = 0; i < count; ++i) {
        std::uint32_t sum = 0;
        for (int r = 0; r < kSize; ++r) sum += element(number, r, i);
        ASSERT_EQ(static_cast<const std::uint32_t*>(call.out)[i], sum)
            << "element " << i << " of operation " << number;
      }
    }
  });
}

// No blocks at all, then some: the ranks' tables of one operation are not those of the next.
TEST(HostPath, AnAlltoallvOfNothingEndsForAllBeforeTheNext) {
  constexpr int kSize = 4;
  Ways ways;
  ways.chunk = 1 << 12;
  HostRanks host(kSize, ways, true);
  host.run([&](int rank, HostPath& path) {
    std::vector<std::uint32_t> in(64, static_cast<std::uint32_t>(rank));
    std::vector<std::uint32_t> out(64);
    for (std::uint64_t number = 1; number <= 400; ++number) {
      const std::uint64_t each = number % 2;
      std::vector<Block> blocks;
      for (std::uint64_t r = 0; r < kSize; ++r) blocks.push_back({16 * r, 16 * each});
      Call call;
      call.op = Op::kAllToAllV;
      call.in = in.data();
      call.out = out.data();
      call.type = DataType::kUint32;
      call.in_blocks = call.out_blocks = blocks;
      const Status status = path.run(call, envelope(call, number, 0));
      ASSERT_TRUE(status.ok()) << status.message();
      for (std::uint64_t i = 0; i < 64 * each; ++i) ASSERT_EQ(out[i], i / 16);
    }
  });
}

// What is called brief is recorded without a look at the clock.
TEST(HostPath, IsBriefOnlyIfNobodyCameLate) {
  for (const bool shared_cores : {false, true}) {
    Ways ways;
    ways.ring_most = 1 << 17;
    HostRanks host(2, ways, shared_cores);
    int brief = 0;
    host.run([&](int rank, HostPath& path) {
      std::vector<float> data(1 << 14);
      const auto is_brief = [&](std::uint64_t number, std::uint64_t count, bool late) {
        if (late && rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        Call call;
        call.op = Op::kAllReduce;
        call.in = call.out = data.data();
        call.count = count;
        const host::Run run = path.enter(call, envelope(call, number, 0));
        EXPECT_TRUE(path.finish(run).ok());
        return path.brief(run);
      };
      std::uint64_t number = 0;
      for (const std::uint64_t count : {1u, 64u, 1u << 14}) {
        const bool late = is_brief(++number, count, true);
        EXPECT_FALSE(late && rank == 0) << count;
      }
      EXPECT_FALSE(is_brief(++number, 1 << 14, false));
      for (int i = 0; i < 2000; ++i) {
        const bool one = is_brief(++number, 1, false);
        if (rank == 0) brief += one ? 1 : 0;
      }
    });
    EXPECT_EQ(brief > 0, !shared_cores);
  }
}

}  // namespace
}  // namespace hccl::exec::host
