// Buffers of one call that share memory. In-place calls that hccl.h allows give the results of
// separate buffers. Interleaved blocks and shared send buffers are allowed, too; all other overlaps
// are refused (refused_calls.h has the simple cases). HCCL_TRANSPORT chooses the transport.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "hccl/acl/acl.h"
#include "hccl/hccl.h"
#include "hccl/hccl_fusion.h"
#include "tests/support/api_world.h"
#include "tests/support/calls.h"

namespace hccl::testing::overlaps_test {
namespace {

using Numbers = std::vector<std::uint64_t>;
constexpr HcclDataType kInt = HCCL_DATA_TYPE_INT32;
constexpr int kRanks = 3;

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

// value(): element i of a rank's input. sum(): the sum of element i over all ranks.
int value(int rank, std::size_t i) { return static_cast<int>(i * 7 % 1001) + rank * 10000; }
int sum(std::size_t i) {
  int all = 0;
  for (int rank = 0; rank < kRanks; ++rank) all += value(rank, i);
  return all;
}

std::vector<int> filled(std::size_t count, int rank) {
  std::vector<int> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = value(rank, i);
  return out;
}

// A short and a long vector, which use different algorithms.
class Overlaps : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Counts, Overlaps, ::testing::Values(5, 70'000));

TEST_P(Overlaps, InPlaceAtTheOwnBlock) {
  const std::size_t count = GetParam();
  ApiWorld world(kRanks);
  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    const std::size_t own = index(rank) * count;
    std::vector<int> data = filled(kRanks * count, rank);
    OK(HcclReduceScatter(data.data(), data.data() + own, count, kInt, HCCL_REDUCE_SUM, comm,
                         nullptr));
    for (std::size_t i = 0; i < data.size(); ++i) {
      ASSERT_EQ(data[i], i / count == index(rank) ? sum(i) : value(rank, i)) << i;
    }
    // Each rank's block holds its part of the sum, so gathering them gives the whole sum.
    OK(HcclAllGather(data.data() + own, data.data(), count, kInt, comm, nullptr));
    for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], sum(i)) << i;

    data = filled(kRanks * count, rank);
    std::vector<int> part(count);
    OK(HcclScatter(data.data(), rank == 1 ? data.data() + own : part.data(), count, kInt, 1, comm,
                   nullptr));
    const int* const got = rank == 1 ? data.data() + own : part.data();
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(got[i], value(1, own + i)) << i;

    data = filled(count, rank);
    OK(HcclReduce(data.data(), rank == 1 ? data.data() : nullptr, count, kInt, HCCL_REDUCE_SUM, 1,
                  comm, nullptr));
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(data[i], rank == 1 ? sum(i) : value(rank, i)) << i;
    }
  });
}

// All blocks are in one buffer: even ones are sent, odd ones received, and the own block stays.
TEST_P(Overlaps, InterleavedBlocks) {
  const std::size_t count = GetParam();
  ApiWorld world(kRanks);
  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    const auto me = index(rank);
    const Numbers counts(kRanks, count), matrix(kRanks * kRanks, count);
    Numbers even(kRanks), odd(kRanks);
    for (std::size_t r = 0; r < kRanks; ++r) even[r] = 2 * r * count, odd[r] = even[r] + count;

    std::vector<int> data = filled(2 * kRanks * count, rank);
    Numbers received = odd;
    received[me] = even[me] - count;  // relative to data + count, like all entries
    for (std::size_t r = 0; r < kRanks; ++r) {
      if (r != me) received[r] -= count;
    }
    if (rank != 0) {
      OK(HcclAlltoAllV(data.data(), counts.data(), even.data(), kInt, data.data() + count,
                       counts.data(), received.data(), kInt, comm, nullptr));
    } else {  // rank 0's own block would lie before data + count
      std::vector<int> apart(2 * kRanks * count);
      OK(HcclAlltoAllV(data.data(), counts.data(), even.data(), kInt, apart.data(), counts.data(),
                       odd.data(), kInt, comm, nullptr));
      for (std::size_t r = 0; r < kRanks; ++r) {
        std::memcpy(data.data() + odd[r], apart.data() + odd[r], count * sizeof(int));
      }
    }
    for (std::size_t r = 0; r < kRanks; ++r) {
      const std::size_t at = r == me && rank != 0 ? even[r] : odd[r];
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(data[at + i], value(static_cast<int>(r), even[me] + i)) << r << " " << i;
      }
    }

    // Reduces in place, into the own block.
    data = filled(2 * kRanks * count, rank);
    OK(HcclReduceScatterV(data.data(), counts.data(), odd.data(), data.data() + odd[me], count,
                          kInt, HCCL_REDUCE_SUM, comm, nullptr));
    for (std::size_t i = 0; i < data.size(); ++i) {
      ASSERT_EQ(data[i], i / count == 2 * me + 1 ? sum(i) : value(rank, i)) << i;
    }
    // The input is in a gap between the blocks that are written.
    data = filled(2 * kRanks * count, rank);
    OK(HcclAllGatherV(data.data() + even[me], count, data.data(), counts.data(), odd.data(), kInt,
                      comm, nullptr));
    for (std::size_t r = 0; r < kRanks; ++r) {
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(data[odd[r] + i], value(static_cast<int>(r), even[r] + i)) << r << " " << i;
      }
    }
  });
}

TEST_P(Overlaps, SendsThatShareMemoryAndBuffersOfNoLength) {
  const std::size_t count = GetParam();
  ApiWorld world(kRanks);
  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    std::vector<int> data = filled(count, rank), got(kRanks * count);
    std::vector<HcclSendRecvItem> items;
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      items.push_back({HCCL_SEND, data.data(), count, kInt, r});
      items.push_back({HCCL_RECV, got.data() + r * count, count, kInt, r});
      items.push_back({HCCL_SEND, data.data(), 0, kInt, r});
      items.push_back({HCCL_RECV, data.data(), 0, kInt, r});
    }
    OK(HcclBatchSendRecv(items.data(), static_cast<std::uint32_t>(items.size()), comm, nullptr));
    const Numbers counts(kRanks, count), one_place(kRanks, 0);
    Numbers places(kRanks);
    for (std::size_t r = 0; r < kRanks; ++r) places[r] = r * count;
    std::vector<int> again(kRanks * count);
    OK(HcclAlltoAllV(data.data(), counts.data(), one_place.data(), kInt, again.data(),
                     counts.data(), places.data(), kInt, comm, nullptr));
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], value(static_cast<int>(i / count), i % count)) << i;
    }
    EXPECT_EQ(got, again);
    OK(HcclAllReduce(data.data(), data.data() + 1, 0, kInt, HCCL_REDUCE_SUM, comm, nullptr));
    OK(HcclAllGather(data.data() + 1, data.data(), 0, kInt, comm, nullptr));
  });
}

// Collectives of a group run in order, so one may use the result of another. Sends and receives of
// a group run at the same time.
TEST(Groups, OrderCollectivesButNotMessages) {
  ApiWorld world(2);
  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    const auto peer = static_cast<std::uint32_t>(1 - rank);
    int data[3] = {rank + 1, 10, 0};
    OK(HcclGroupStart());
    OK(HcclAllReduce(data, data + 1, 1, kInt, HCCL_REDUCE_SUM, comm, nullptr));
    OK(HcclAllReduce(data + 1, data + 2, 1, kInt, HCCL_REDUCE_SUM, comm, nullptr));
    OK(HcclAllGather(data + 2, data, 1, kInt, comm, nullptr));
    OK(HcclGroupEnd());
    EXPECT_EQ(std::vector<int>(data, data + 3), (std::vector<int>{6, 6, 6}));

    OK(HcclGroupStart());
    OK(HcclSend(data, 2, kInt, peer, comm, nullptr));
    OK(HcclRecv(data + 1, 2, kInt, peer, comm, nullptr));
    SAYS(HcclGroupEnd(), HCCL_E_PARA, "the receive of item 1");
    EXPECT_EQ(std::vector<int>(data, data + 3), (std::vector<int>{6, 6, 6}));
  });
  world.expect_usable();
}

// The send and receive buffers are one block of device memory, mapped at two addresses.
TEST(Overlaps, OfDeviceMemoryWithTwoAddressesIsRefused) {
  constexpr std::size_t kGranule = std::size_t{2} << 20;
  ApiWorld world(2);
  aclrtPhysicalMemProp prop{ACL_MEM_HANDLE_TYPE_NONE,
                            ACL_MEM_ALLOCATION_TYPE_PINNED,
                            ACL_HBM_MEM_HUGE,
                            {0, ACL_MEM_LOCATION_TYPE_DEVICE},
                            0};
  void* space = nullptr;
  aclrtDrvMemHandle block = nullptr, other = nullptr;
  ASSERT_EQ(aclrtReserveMemAddress(&space, 3 * kGranule, 0, nullptr, 0), 0);
  ASSERT_EQ(aclrtMallocPhysical(&block, kGranule, &prop, 0), 0);
  ASSERT_EQ(aclrtMallocPhysical(&other, kGranule, &prop, 0), 0);
  auto* const at = static_cast<char*>(space);
  ASSERT_EQ(aclrtMapMem(at, kGranule, 0, block, 0), 0);
  ASSERT_EQ(aclrtMapMem(at + kGranule, kGranule, 0, other, 0), 0);
  ASSERT_EQ(aclrtMapMem(at + 2 * kGranule, kGranule, 0, block, 0), 0);

  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    auto* const in = reinterpret_cast<int*>(rank == 0 ? at + 64 : at + kGranule);
    const auto reduce = [&](char* out, std::uint64_t count) {
      return HcclAllReduce(in, out, count, kInt, HCCL_REDUCE_SUM, comm, nullptr);
    };
    if (rank == 0) {
      SAYS(reduce(at + 2 * kGranule, 100), HCCL_E_PARA, "overlaps");
      SAYS(reduce(at + 2 * kGranule + 128, 100), HCCL_E_PARA, "overlaps sendBuf");
    }
    *in = rank + 1;
    int apart = 0;
    OK(HcclAllReduce(in, &apart, 1, kInt, HCCL_REDUCE_SUM, comm, nullptr));
    EXPECT_EQ(apart, 3);
    OK(reduce(rank == 0 ? at + 2 * kGranule + 512 : at + kGranule + 512, 16));
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(aclrtUnmapMem(at + index(i) * kGranule), 0);
  EXPECT_EQ(aclrtFreePhysical(block), 0);
  EXPECT_EQ(aclrtFreePhysical(other), 0);
  EXPECT_EQ(aclrtReleaseMemAddress(space), 0);
  world.expect_usable();
}

TEST(Overlaps, OfGradientsAreRefused) {
  ApiWorld world(1);
  float data[8] = {};
  HcclFusionGradient gradients[] = {{"a", data, 4}, {"none", data, 0}, {"b", data + 3, 4}};
  HcclFusion fusion = nullptr;
  SAYS(HcclFusionCreate(world.comm(0), gradients, 3, nullptr, &fusion), HCCL_E_PARA, "gradient 2");
  gradients[2].data = data + 4;
  OK(HcclFusionCreate(world.comm(0), gradients, 3, nullptr, &fusion));
  OK(HcclFusionDestroy(fusion));
}

}  // namespace
}  // namespace hccl::testing::overlaps_test
