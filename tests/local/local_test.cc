// Local algorithms alone. The ranks of one host are threads, with a shared region of plain memory
// and one device heap. Every algorithm runs random operations on buffers at random places. The
// oracle computes each element of each rank's result from the ranks' numbers.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include "hccl/local/algorithm.h"
#include "hccl/local/region.h"
#include "tests/support/local_ranks.h"
#include "tests/support/sanitizers.h"

namespace hccl::local {
namespace {

using exec::LocalEngine;
using testing::LocalRanks;
using testing::LocalSetting;

/// Runs a call by the named algorithm if that can run it; otherwise the selector chooses one.
Status run_by(LocalEngine& engine, std::string_view name, const Call& call, std::uint64_t number) {
  const Algorithm* const algorithm = find(call.op, name);
  const Envelope sent = envelope(call, number, 0);
  return engine.run(call, sent, algorithm);
}
std::string_view taken(const LocalEngine& engine) {
  return engine.last_choice() == nullptr ? "" : engine.last_choice()->algorithm->name;
}

/// Element i of the input of `rank` in operation `number`.
std::uint32_t element(std::uint64_t number, int rank, std::uint64_t i) {
  std::uint64_t h = number * 1000003 + static_cast<std::uint64_t>(rank) * 7919 + i;
  h *= 0x9E3779B97F4A7C15u;
  return static_cast<std::uint32_t>(h >> 32);
}

/// One operation, as all ranks know it.
struct Planned {
  Op op = Op::kBarrier;
  std::uint64_t count = 0;
  int root = 0;
  bool in_place = false;
  bool heap = false;                                // all ranks' buffers are in device memory
  bool odd_one = false;                             // except rank 0's
  std::vector<std::vector<std::uint64_t>> lengths;  // lengths[from][to], for the V operations
};

/// One rank's buffers, in device memory and in private memory.
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

// Runs one rank's part of an operation and checks the result. Fails at the first difference.
::testing::AssertionResult take_part(LocalEngine& engine, std::string_view algorithm,
                                     const Planned& plan, std::uint64_t number, int rank, int size,
                                     Buffers& buffers) {
  const bool heap = plan.heap && !(plan.odd_one && rank == 0);
  const auto n = static_cast<std::uint64_t>(size);
  const auto me = static_cast<std::uint64_t>(rank);
  std::uint32_t* in = buffers.in(heap);
  std::uint32_t* out = buffers.out(heap);
  Call call{.op = plan.op, .count = plan.count, .type = DataType::kUint32, .root = plan.root};
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
  const Status status = run_by(engine, algorithm, call, number);
  if (!status.ok()) return ::testing::AssertionFailure() << status.message();

  const auto check = [&](std::uint64_t at, std::uint32_t expected) {
    if (out[at] == expected) return ::testing::AssertionResult(true);
    return ::testing::AssertionFailure()
           << "operation " << number << " (" << hccl::to_string(plan.op) << ", " << plan.count
           << " elements, " << taken(engine) << ") gave rank " << rank << " " << out[at] << " for "
           << expected << " at " << at;
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

Planned random_plan(std::mt19937_64& random, int size, std::uint64_t most) {
  constexpr Op kOps[] = {Op::kAllReduce, Op::kAllReduce,     Op::kAllReduce,      Op::kBroadcast,
                         Op::kReduce,    Op::kReduceScatter, Op::kAllGather,      Op::kScatter,
                         Op::kAllToAll,  Op::kBarrier,       Op::kReduceScatterV, Op::kAllGatherV,
                         Op::kAllToAllV};
  const auto below = [&](std::uint64_t n) { return random() % n; };
  Planned plan;
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

/// The ranks of a host, and how they stage data.
struct Setting {
  const char* name;
  int size;
  std::size_t chunk = std::size_t{1} << 17;
  bool shared_cores = true;
  bool streams = false;
};
constexpr Setting kSettings[] = {
    {"two_own_cores", 2, 1 << 17, false},        {"two_small_chunks", 2, 64},
    {"three_streaming", 3, 5000, true, true},    {"five_chunks", 5, 1 << 14},
    {"eight_streaming", 8, 1 << 17, true, true}, {"eight", 8},
};

struct Trial {
  std::string_view algorithm;
  Setting setting;
};

// Each algorithm in each setting in which it runs a short operation in device memory.
std::vector<Trial> trials() {
  std::vector<Trial> all;
  for (const Setting& setting : kSettings) {
    const Topology topology{setting.size, setting.shared_cores, true};
    std::set<std::string_view> here;
    for (const Algorithm& each : algorithms()) {
      for (int op = 0; op <= static_cast<int>(Op::kAllToAllV); ++op) {
        const Case c{static_cast<Op>(op), DataType::kUint32, 4, true, true};
        if (!each.operations.contains(c.op) || !each.refuse(c, topology).empty()) continue;
        if (here.insert(each.name).second) all.push_back({each.name, setting});
      }
    }
  }
  return all;
}

class EveryAlgorithm : public ::testing::TestWithParam<Trial> {};

TEST_P(EveryAlgorithm, RandomOperationsGiveWhatTheyShould) {
  const auto& [algorithm, setting] = GetParam();
  constexpr std::uint64_t kMost = 300000;
  constexpr int kOperations = testing::kThreadSanitizer ? 40 : 120;
  LocalSetting ranks{.size = setting.size, .shared_cores = setting.shared_cores};
  ranks.tuning.chunk = setting.chunk;
  if (setting.streams) {
    ranks.stores.cached_most = 0;
    ranks.tuning.stream_from = 0;
  }
  LocalRanks host(ranks);
  std::atomic<int> failures{0};
  std::atomic<int> by_it{0};
  host.run_open([&](int rank, LocalEngine& engine) {
    std::mt19937_64 random(42);
    Buffers buffers(*host.heap(), kMost + 1000);
    for (std::uint64_t number = 1; number <= kOperations && failures == 0; ++number) {
      const Planned plan = random_plan(random, setting.size, kMost);
      const auto result = take_part(engine, algorithm, plan, number, rank, setting.size, buffers);
      if (!result) {
        ++failures;
        ADD_FAILURE() << result.message();
      }
      if (taken(engine) == algorithm) ++by_it;
    }
  });
  EXPECT_GT(by_it, 0);
}

INSTANTIATE_TEST_SUITE_P(Local, EveryAlgorithm, ::testing::ValuesIn(trials()),
                         [](const auto& info) {
                           return std::string(info.param.algorithm) + "_" + info.param.setting.name;
                         });

/// `count` elements in device memory or in private memory.
template <class T>
class Vector {
 public:
  Vector(memory::Heap* heap, std::size_t count) : heap_(heap), private_(heap ? 0 : count) {
    data_ = heap ? static_cast<T*>(heap->allocate(count * sizeof(T)).value()) : private_.data();
  }
  ~Vector() {
    if (heap_ != nullptr) static_cast<void>(heap_->free(data_));
  }
  T* data() { return data_; }

 private:
  memory::Heap* heap_;
  std::vector<T> private_;
  T* data_;
};

// Calls body(algorithm, count, heap) for each algorithm of allreduce. `count` is a number of
// elements, at most `most`, that the algorithm accepts; `heap`: whether it needs device memory.
// Algorithms that refuse the type are included.
template <class Body>
void for_each_allreduce(int size, std::size_t element, std::uint64_t most, const Body& body) {
  const Topology topology{size, true, true};
  for (const Algorithm& each : algorithms()) {
    if (!each.operations.contains(Op::kAllReduce)) continue;
    const auto refuses = [&](std::uint64_t count, bool reachable) {
      const Case c{Op::kAllReduce, DataType::kFp32, count * element, reachable, reachable};
      return !each.refuse(c, topology).empty();
    };
    std::uint64_t count = most;
    while (count > 1 && refuses(count, true)) count /= 2;
    SCOPED_TRACE(each.name);
    ASSERT_FALSE(refuses(count, true));
    body(each, count, refuses(count, false));
  }
}

// Folding must be in rank order: 1e8 - 1e8 + 1 gives 0 or 1, depending on the order.
TEST(Local, FoldsInRankOrderByEveryAlgorithm) {
  for_each_allreduce(3, sizeof(float), 10000, [](const Algorithm& by, auto count, bool heap) {
    LocalRanks host({.size = 3, .tuning = {.chunk = 1 << 12}});
    host.run_open([&](int rank, LocalEngine& engine) {
      Vector<float> data(heap ? host.heap() : nullptr, count);
      const float value[] = {1e8F, -1e8F, 1.0F};
      std::fill(data.data(), data.data() + count, value[rank]);
      Call call{Op::kAllReduce, data.data(), data.data(), count, DataType::kFp32};
      ASSERT_TRUE(run_by(engine, by.name, call, 1).ok());
      ASSERT_EQ(taken(engine), by.name);
      for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(data.data()[i], 1.0F) << by.name << i;
    });
  });
}

// 16-bit floats are rounded once, after all additions: 1 + 4 * 2^-9 is a bf16 number. If each
// addition rounded, each 2^-9 would be lost. An algorithm that rounds at each addition refuses.
TEST(Local, RoundsOnceByEveryAlgorithm) {
  for_each_allreduce(
      5, sizeof(std::uint16_t), 100000, [](const Algorithm& by, auto count, bool heap) {
        LocalRanks host({.size = 5, .tuning = {.chunk = 1 << 12}});
        host.run_open([&](int rank, LocalEngine& engine) {
          Vector<std::uint16_t> data(heap ? host.heap() : nullptr, count);
          std::fill(data.data(), data.data() + count, rank == 0 ? 0x3F80 : 0x3B00);  // 1, 2^-9
          Call call{Op::kAllReduce, data.data(), data.data(), count, DataType::kBfp16};
          ASSERT_TRUE(run_by(engine, by.name, call, 1).ok());
          const Case c{call.op, call.type, 2 * count, true, true};
          EXPECT_EQ(taken(engine) == by.name, by.refuse(c, engine.topology()).empty()) << by.name;
          for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(data.data()[i], 0x3F81) << by.name;
        });
      });
}

// If a direct copy by the kernel is slow, the data is copied through another buffer, in several
// pieces.
TEST(Local, TheKernelCopiesWhereverBuffersLieInTheirPages) {
  LocalRanks host({.size = 2});
  host.run_open([&](int rank, LocalEngine& engine) {
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
    for (const Op op : {Op::kAllToAll, Op::kScatter}) {  // the sender copies; the receiver does
      for (const std::size_t in_at : {0, 4, 1020}) {
        for (const std::size_t out_at : {0, 1, 4, 15, 16, 20, 1023}) {
          ++number;
          std::uint32_t* const in = pages(in_memory) + in_at;
          std::uint32_t* const out = pages(out_memory) + out_at;
          for (std::uint64_t i = 0; i < 2 * kBlock; ++i) in[i] = element(number, rank, i);
          Call call{op, in, out, kBlock, DataType::kUint32};
          ASSERT_TRUE(run_by(engine, "cma", call, number).ok());
          ASSERT_EQ(taken(engine), "cma");
          const auto me = static_cast<std::uint64_t>(rank);
          for (int from = 0; from < (op == Op::kScatter ? 1 : 2); ++from) {
            for (std::uint64_t i = 0; i < kBlock; ++i) {
              ASSERT_EQ(out[static_cast<std::uint64_t>(from) * kBlock + i],
                        element(number, from, me * kBlock + i))
                  << hccl::to_string(op) << " from " << from << ", element " << i << ", in at "
                  << in_at << ", out at " << out_at;
            }
          }
        }
      }
    }
  });
}

// There are more chunks than fit into a staging buffer, which holds 16, and more ranks than these.
// The next operation begins while other ranks still copy the last chunk.
TEST(Local, TurnsGoRoundTheStagingBuffer) {
  for (const int size : {2, 5, testing::kThreadSanitizer ? 17 : 40}) {
    LocalRanks host({.size = size});
    host.run([&](int rank, LocalEngine& engine) {
      constexpr std::uint64_t kLong = 1 << 20;
      std::vector<std::uint32_t> data(kLong);
      std::uint64_t number = 0;
      for (const std::uint64_t count : {kLong, kLong - 77, std::uint64_t{50000}, kLong}) {
        ++number;
        for (std::uint64_t i = 0; i < count; ++i) data[i] = element(number, rank, i);
        Call call{Op::kAllReduce, data.data(), data.data(), count, DataType::kUint32};
        const char* const name = count == 50000 ? "slots" : "turns";
        ASSERT_TRUE(run_by(engine, name, call, number).ok());
        EXPECT_EQ(taken(engine), name);
        for (std::uint64_t i = 0; i < count; i += 61) {
          std::uint32_t sum = 0;
          for (int r = 0; r < size; ++r) sum += element(number, r, i);
          ASSERT_EQ(data[i], sum) << "element " << i << " of operation " << number;
        }
      }
    });
  }
}

// Operations without blocks and with blocks alternate: an operation must not use the ranks' tables
// of the previous one.
TEST(Local, AnAlltoallvOfNothingEndsForAllBeforeTheNext) {
  constexpr int kSize = 4;
  LocalRanks host({.size = kSize, .tuning = {.chunk = 1 << 12}});
  host.run([&](int rank, LocalEngine& engine) {
    std::vector<std::uint32_t> in(64, static_cast<std::uint32_t>(rank));
    std::vector<std::uint32_t> out(64);
    for (std::uint64_t number = 1; number <= 400; ++number) {
      const std::uint64_t each = number % 2;
      std::vector<Block> blocks;
      for (std::uint64_t r = 0; r < kSize; ++r) blocks.push_back({16 * r, 16 * each});
      Call call{.op = Op::kAllToAllV,
                .in = in.data(),
                .out = out.data(),
                .type = DataType::kUint32,
                .in_blocks = blocks,
                .out_blocks = blocks};
      const Status status = engine.run(call, envelope(call, number, 0));
      ASSERT_TRUE(status.ok()) << status.message();
      for (std::uint64_t i = 0; i < 64 * each; ++i) ASSERT_EQ(out[i], i / 16);
    }
  });
}

// The flight recorder records a quick operation without reading the clock.
TEST(Local, IsQuickOnlyIfNoRankCameLate) {
  constexpr int kTries = 5;
  for (const bool shared_cores : {false, true}) {
    LocalRanks host({.size = 2, .shared_cores = shared_cores});
    int quick = 0;
    host.run([&](int rank, LocalEngine& engine) {
      std::vector<float> data(1 << 14);
      const auto is_quick = [&](std::uint64_t number, std::uint64_t count, bool late) {
        if (late && rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        Call call{Op::kAllReduce, data.data(), data.data(), count};
        EXPECT_TRUE(run_by(engine, "slots", call, number).ok());
        return engine.quick();
      };
      std::uint64_t number = 0;
      for (const std::uint64_t count : {1u, 64u, 1u << 14}) {
        int after_wait = 0;  // on a busy machine rank 0 may be late itself, though not each time
        for (int i = 0; i < kTries; ++i) after_wait += is_quick(++number, count, true) ? 1 : 0;
        EXPECT_TRUE(after_wait < kTries || rank == 1) << count;
      }
      EXPECT_FALSE(is_quick(++number, 1 << 14, false));
      for (int i = 0; i < 2000; ++i) {
        const bool one = is_quick(++number, 1, false);
        if (rank == 0) quick += one ? 1 : 0;
      }
    });
    EXPECT_EQ(quick > 0, !shared_cores);
  }
}

// The bytes of a region for `ranks` ranks that have physical memory after one rank has opened it.
std::size_t mapped(int ranks) {
  HostMemory memory;
  for (int rank = 0; rank < ranks; ++rank) memory.ranks.push_back(rank);
  memory.peers.resize(memory.ranks.size());
  const std::size_t bytes = Region::bytes(ranks);
  void* const area =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(area, MAP_FAILED);
  static_cast<void>(::madvise(area, bytes, MADV_NOHUGEPAGE));  // one would hold whole buffers
  memory.area = {static_cast<std::byte*>(area), bytes};
  Region region(memory, testing::patient(), WaitPolicy{});
  region.map_all();
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  EXPECT_EQ(::mincore(area, bytes, pages.data()), 0);
  ::munmap(area, bytes);
  const auto here = [](unsigned char each) { return (each & 1) != 0; };
  return page * static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(), here));
}

// If each of N ranks mapped all staging buffers while it joins, N^2 would be mapped.
TEST(Region, MapsNoStagingBufferIfRanksAreMany) {
  EXPECT_GE(mapped(8), 8 * Staging::kBytes);
  EXPECT_LT(mapped(9), Staging::kBytes);
}

}  // namespace
}  // namespace hccl::local
