// Allreduce over several hosts. The ranks are threads of this process that behave as if they were
// on different hosts, with real shared memory inside a host and real sockets between them.
#include "hccl/exec/two_level.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string_view>
#include <vector>

#include "hccl/memory/heap.h"
#include "tests/support/ranks.h"
#include "tests/support/sanitizers.h"
#include "transport/routed.h"

namespace hccl::exec {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Rank;
using testing::run_ranks;

/// One rank's mesh, local engine and allreduce between hosts, as a communicator sets them up.
struct Member {
  Member(Rank& rank, int ranks_per_host, const std::shared_ptr<memory::Heap>& heap) {
    transport::OpenArgs args = rank.open_args(Deadline::after(seconds(30)));
    args.hosts.clear();
    for (int r = 0; r < rank.size(); ++r) args.hosts.push_back(r / ranks_per_host);
    args.area_bytes = &local::Region::bytes;
    args.heap = heap;
    mesh = transport::open_routed(args).value();
    const Waiter waiter{.timeout = seconds(20), .abort = &abort, .policy = {.shared_cores = true}};
    local = std::make_unique<LocalEngine>(*mesh->host_memory(), heap, kernels::StoreRule{}, waiter,
                                          waiter.policy);
    hosts = std::make_unique<TwoLevel>(*mesh, *local, rank.size() / ranks_per_host);
  }
  Status run(const Call& call, std::uint64_t sequence) {
    Waiter limits;
    limits.deadline = Deadline::after(seconds(20));
    limits.abort = &abort;
    return hosts->run(call, sequence, limits);
  }

  AbortFlag abort;
  std::unique_ptr<transport::Mesh> mesh;
  std::unique_ptr<LocalEngine> local;
  std::unique_ptr<TwoLevel> hosts;
};

std::uint32_t value(int rank, std::uint64_t i, std::uint64_t round) {
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(rank) + 3) * (i + 7) +
                                    round * 1000003);
}

void allreduces(int hosts, int ranks_per_host) {
  const auto heap = memory::Heap::create(std::size_t{1} << 30).value();
  run_ranks(hosts * ranks_per_host, [&](Rank& rank) {
    Member member(rank, ranks_per_host, heap);
    std::mt19937_64 random(7);  // the same on all ranks
    constexpr std::uint64_t kMost = std::uint64_t{3} << 20;
    auto* const device =
        static_cast<std::uint32_t*>(heap->allocate(2 * kMost * sizeof(std::uint32_t)).value());
    std::vector<std::uint32_t> ordinary(2 * kMost);
    for (std::uint64_t round = 1; round <= (testing::kThreadSanitizer ? 8U : 24U); ++round) {
      const std::uint64_t count =
          1 + random() % (round % 4 == 0 ? kMost : std::uint64_t{1} << (10 + round % 10));
      const bool in_place = random() % 2 == 0;
      const bool maximum = random() % 4 == 0;
      std::uint32_t* const in = random() % 2 == 0 ? device : ordinary.data();
      std::uint32_t* const out = in_place ? in : in + kMost;
      for (std::uint64_t i = 0; i < count; ++i) in[i] = value(rank.rank(), i, round);
      Call call{Op::kAllReduce,
                in,
                out,
                count,
                DataType::kUint32,
                maximum ? ReduceOp::kMax : ReduceOp::kSum};
      const Status status = member.run(call, round);
      ASSERT_TRUE(status.ok()) << status.message();
      for (std::uint64_t i = 0; i < count; ++i) {
        std::uint32_t expected = 0;
        for (int r = 0; r < rank.size(); ++r) {
          expected =
              maximum ? std::max(expected, value(r, i, round)) : expected + value(r, i, round);
        }
        ASSERT_EQ(out[i], expected) << "round " << round << ", element " << i << " of " << count;
      }
      if (in_place) continue;
      for (std::uint64_t i = 0; i < count; i += 97) {
        ASSERT_EQ(in[i], value(rank.rank(), i, round)) << "the input was written";
      }
    }
    rank.barrier();
  });
}

TEST(TwoLevel, TwoHostsOfTwo) { allreduces(2, 2); }
TEST(TwoLevel, ThreeHostsOfTwo) { allreduces(3, 2); }
TEST(TwoLevel, TwoHostsOfThree) { allreduces(2, 3); }
// Short parts are sent whole, in one step: then a slot holds a whole part.
TEST(TwoLevel, SixHostsOfTwo) { allreduces(6, 2); }

/// Costs in which a step takes at least `step_ns`, and each further message of a step `more_ns`.
select::MessageCosts costs(std::uint64_t step_ns, std::uint64_t more_ns) {
  select::MessageCosts costs;
  costs.steps = {{64, step_ns, more_ns}, {4 << 20, step_ns + 1'500'000, more_ns}};
  return costs;
}

// If messages of one step hinder each other, ranks exchange messages with few others, otherwise
// with all.
TEST(TwoLevel, MeasuredCostsChooseBetweenHosts) {
  constexpr int kHosts = 6, kPlaces = 2;
  constexpr std::uint64_t kCount = 50'000;
  const auto heap = memory::Heap::create(std::size_t{256} << 20).value();
  std::mutex mutex;
  std::array<std::set<std::string_view>, 3> taken;
  run_ranks(kHosts * kPlaces, [&](Rank& rank) {
    Member member(rank, kPlaces, heap);
    std::vector<std::uint32_t> data(kCount);
    const std::optional<select::MessageCosts> tables[] = {
        costs(20'000, 200'000), costs(2'000'000, 0), {}};
    for (std::uint64_t round = 0; round < 6; ++round) {
      member.hosts->set_costs(tables[round % 3]);
      EXPECT_EQ(member.hosts->between(), nullptr);
      for (std::uint64_t i = 0; i < kCount; ++i) data[i] = value(rank.rank(), i, round);
      Call call{Op::kAllReduce, data.data(), data.data(), kCount, DataType::kUint32};
      const Status status = member.run(call, round + 1);
      ASSERT_TRUE(status.ok()) << status.message();
      for (std::uint64_t i = 0; i < kCount; ++i) {
        std::uint32_t expected = 0;
        for (int r = 0; r < rank.size(); ++r) expected += value(r, i, round);
        ASSERT_EQ(data[i], expected) << "round " << round << ", element " << i;
      }
      const std::lock_guard lock(mutex);
      taken[round % 3].insert(member.hosts->between()->algorithm->name);
    }
    rank.barrier();
  });
  EXPECT_EQ(taken[0], std::set<std::string_view>{"bruck"});
  EXPECT_EQ(taken[1], std::set<std::string_view>{"one_shot"});
  EXPECT_EQ(taken[2], std::set<std::string_view>{"direct"});
}

// Rank 3 calls with another count. Every rank fails, and the error of one rank at least names the
// count.
TEST(TwoLevel, RanksThatDisagreeAllFail) {
  const auto heap = memory::Heap::create(std::size_t{256} << 20).value();
  std::vector<Status> results(4);
  std::vector<Member*> members(4);
  run_ranks(4, [&](Rank& rank) {
    const auto at = static_cast<std::size_t>(rank.rank());
    Member member(rank, 2, heap);
    members[at] = &member;
    rank.barrier();
    std::vector<std::uint32_t> data(std::size_t{1} << 20, 1);
    Call call{Op::kAllReduce, data.data(), data.data(), data.size() - (rank.rank() == 3 ? 64 : 0),
              DataType::kUint32};
    results[at] = member.run(call, 1);
    // As in a communicator: the first failure reaches all ranks.
    for (Member* each : members) {
      if (each->abort.raise(results[at])) each->local->waits().wake();
    }
    rank.barrier();
  });
  bool named = false;
  for (const Status& each : results) {
    EXPECT_FALSE(each.ok());
    named = named || each.message().find("count 1048512") != std::string::npos;
  }
  EXPECT_TRUE(named) << results[3].message();
}

}  // namespace
}  // namespace hccl::exec
