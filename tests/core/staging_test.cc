// The memory that operations use besides the caller's buffers: after the first operation of a kind
// they allocate nothing, and they use less than 8 MiB for each rank, for any number of ranks. This
// file sees every allocation of the program.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/config.h"
#include "tests/support/world.h"

// The C library's own functions, which the replacements below call.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t number, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
}

namespace {

// Counts this thread only: the library's own threads keep the communicator alive and may allocate.
thread_local bool counting = false;
thread_local int allocations = 0;

void count() {
  if (counting) ++allocations;
}

}  // namespace

extern "C" {
void* malloc(std::size_t bytes) noexcept {
  count();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t number, std::size_t bytes) noexcept {
  count();
  return __libc_calloc(number, bytes);
}
void* realloc(void* memory, std::size_t bytes) noexcept {
  count();
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  count();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  count();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}

namespace hccl::testing {
namespace {

using core::Communicator;

constexpr Op kOps[] = {Op::kAllReduce,      Op::kBroadcast,  Op::kReduce,   Op::kReduceScatter,
                       Op::kAllGather,      Op::kScatter,    Op::kAllToAll, Op::kBarrier,
                       Op::kReduceScatterV, Op::kAllGatherV, Op::kAllToAllV};

/// Room for the largest operation: a rank's input and output.
struct Buffers {
  Buffers(int ranks, std::size_t most)
      : in(most + static_cast<std::size_t>(ranks), 1.0F),
        out(most + static_cast<std::size_t>(ranks)) {}
  std::vector<float> in;
  std::vector<float> out;
  std::vector<Block> blocks;
};

/// Runs one operation whose larger buffer has `elements` elements.
Status take_part(Communicator& c, Op op, std::size_t elements, Buffers& buffers) {
  const auto ranks = static_cast<std::size_t>(c.size());
  const bool whole = op == Op::kAllReduce || op == Op::kBroadcast || op == Op::kReduce;
  const std::size_t count = whole ? elements : std::max<std::size_t>(1, elements / ranks);
  Call call{op, buffers.in.data(), buffers.out.data(), count, DataType::kFp32, ReduceOp::kSum, 0,
            0};
  if (op == Op::kBroadcast) call.in = call.out;
  if (op == Op::kBarrier) call.count = 0;
  if (has_blocks(op)) {
    for (std::size_t r = 0; r < ranks; ++r) buffers.blocks[r] = {r * count, count};
    if (op == Op::kAllToAllV) call.count = 0;
    if (op != Op::kAllGatherV) call.in_blocks = buffers.blocks;
    if (op != Op::kReduceScatterV) call.out_blocks = buffers.blocks;
  }
  return c.operations().run(call);
}

struct Setting {
  const char* name;
  const char* transport;
  int ranks;
};

class Staging : public ::testing::TestWithParam<Setting> {};

TEST_P(Staging, NothingIsAllocatedAfterTheFirstOfAKind) {
  constexpr std::size_t kSizes[] = {1, 250, 5000, 70000, 600000};
  constexpr int kMany = 1 << 30;
  const bool over_tcp = GetParam().transport == std::string("tcp");
  const int rounds = over_tcp ? 25 : 6;  // a loaded machine disturbs many of them
  World world(GetParam().ranks, quiet_config(GetParam().transport));
  ASSERT_TRUE(world.ok());
  world.run([&](Communicator& c) {
    Buffers buffers(c.size(), kSizes[std::size(kSizes) - 1]);
    buffers.blocks.resize(static_cast<std::size_t>(c.size()));
    for (const Op op : kOps) {
      for (const std::size_t elements : kSizes) {
        int least = kMany;
        int most = 0;
        for (int round = 0; round < rounds; ++round) {
          allocations = 0;
          counting = true;
          for (int i = 0; i < 5; ++i) {
            const Status status = take_part(c, op, elements, buffers);
            if (!status.ok()) ADD_FAILURE() << status.message();
          }
          counting = false;
          if (round == 0) continue;
          least = std::min(least, allocations);
          most = std::max(most, allocations);
        }
        // Over tcp, an operation allocates when more messages come early than ever before.
        EXPECT_EQ(over_tcp ? least : most, 0)
            << hccl::to_string(op) << " of " << elements << " elements";
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Everywhere, Staging,
                         ::testing::Values(Setting{"host_of_two", "auto", 2},
                                           Setting{"host_of_five", "auto", 5},
                                           Setting{"tcp_of_two", "tcp", 2},
                                           Setting{"tcp_of_five", "tcp", 5}),
                         [](const auto& info) { return info.param.name; });

// Shows that the test above can fail.
TEST(Staging, TheCounterCounts) {
  counting = true;
  allocations = 0;
  {
    const std::vector<int> some(100);
  }
  std::free(std::malloc(10));
  counting = false;
  EXPECT_EQ(allocations, 2);
}

/// Bytes that this process has in memory, of its own and shared.
std::size_t resident() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages >> pages;
  return pages * 4096;
}

class Resident : public ::testing::TestWithParam<Setting> {};

/// Every operation on all ranks of the world, with vectors of some lengths up to `most`.
void take_part_in_all(World& world, std::size_t most, std::vector<Buffers>& buffers) {
  world.run([&](Communicator& c) {
    for (const Op op : kOps) {
      for (const std::size_t elements : {std::size_t{1000}, std::size_t{50000}, most}) {
        const Status status =
            take_part(c, op, elements, buffers[static_cast<std::size_t>(c.rank())]);
        ASSERT_TRUE(status.ok()) << status.message();
      }
    }
  });
}

std::vector<Buffers> buffers_for(int ranks, std::size_t most) {
  std::vector<Buffers> buffers;
  for (int r = 0; r < ranks; ++r) {
    buffers.emplace_back(ranks, most);
    buffers.back().blocks.resize(static_cast<std::size_t>(ranks));
  }
  return buffers;
}

TEST_P(Resident, StagingStaysUnderEightMebibytesARank) {
  const int ranks = GetParam().ranks;
  // With few ranks the vectors are long enough to fill all staging buffers.
  const std::size_t most = ranks <= 8 ? 5'000'000 : 700'000;
  {
    // Loads the libraries' code and data first: they are not staging memory.
    std::vector<Buffers> first = buffers_for(2, 50000);
    World world(2, quiet_config(GetParam().transport));
    ASSERT_TRUE(world.ok());
    take_part_in_all(world, 50000, first);
  }
  std::vector<Buffers> buffers = buffers_for(ranks, most);
  // Returns freed memory to the system: otherwise the ranks could reuse it unnoticed.
  ::malloc_trim(0);
  const std::size_t before = resident();
  World world(ranks, quiet_config(GetParam().transport));
  ASSERT_TRUE(world.ok());
  const std::size_t joined = resident();
  take_part_in_all(world, most, buffers);
  const std::size_t used = (resident() - before) / static_cast<std::size_t>(ranks);
  std::printf("%d ranks over %s: %zu KiB a rank, %zu of them from joining\n", ranks,
              GetParam().transport, used >> 10,
              (joined - before) / static_cast<std::size_t>(ranks) >> 10);
  EXPECT_LT(used, std::size_t{8} << 20);
}

INSTANTIATE_TEST_SUITE_P(
    Everywhere, Resident,
    ::testing::Values(Setting{"host_of_two", "auto", 2}, Setting{"host_of_eight", "auto", 8},
                      Setting{"host_of_many", "auto", 64}, Setting{"tcp_of_two", "tcp", 2},
                      Setting{"tcp_of_eight", "tcp", 8}, Setting{"tcp_of_many", "tcp", 64}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hccl::testing
