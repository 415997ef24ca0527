// Every operator of hccl.h through the C interface: every type and reduction against results
// computed here, blocks of different lengths, batches, groups, and every wrong argument of the
// operators that api_test.cc does not test.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "hccl/base/types.h"
#include "hccl/hccl.h"
#include "tests/support/api_world.h"
#include "tests/support/calls.h"
#include "tests/support/numbers.h"

namespace hccl::testing {
namespace {

using Bytes = std::vector<std::byte>;
using Numbers = std::vector<std::uint64_t>;

constexpr std::byte kUntouched{0xEE};
constexpr std::uint64_t kTooMany = 0x80000000ull;

const std::vector<ReduceOp> kReductions = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax,
                                           ReduceOp::kMin};

HcclDataType c_type(DataType type) { return static_cast<HcclDataType>(type); }
HcclReduceOp c_op(ReduceOp op) { return static_cast<HcclReduceOp>(op); }
std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
bool reducible(DataType type) { return type != DataType::kHif8 && type != DataType::kFp8E8M0; }

// The value of rank `from` at place i of the vector. Values are 1 and 2, so that sums and products
// of eight ranks are exact in most types; `exact` names the exceptions.
std::uint64_t value(int from, std::size_t i) { return 1 + ((i * 5 + index(from) * 3) >> 2 & 1); }

std::uint64_t folded(ReduceOp op, std::size_t i, int size) {
  return fold(op, size, [&](int rank) { return value(rank, i); });
}

// E5M2 has three significant bits, so it cannot hold every whole number above 8.
bool exact(DataType type, ReduceOp op, int size) {
  return type != DataType::kFp8E5M2 || op != ReduceOp::kSum || size <= 4;
}

struct Buffer {
  Buffer(DataType type, std::size_t count)
      : type(type), count(count), bytes(count * size_of(type) + 2, kUntouched) {}
  Buffer(DataType type, std::size_t count, const std::function<std::uint64_t(std::size_t)>& number)
      : Buffer(type, count) {
    for (std::size_t i = 0; i < count; ++i) put(type, data(), i, number(i));
  }
  std::byte* data() { return bytes.data() + 1; }  // deliberately unaligned
  std::byte* at(std::size_t i) { return data() + i * size_of(type); }
  void expect(std::size_t first, std::size_t n,
              const std::function<std::uint64_t(std::size_t)>& number) {
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_TRUE(holds(type, data(), first + i, number(i)))
          << to_string(type) << ": element " << first + i << " is not " << number(i);
    }
    EXPECT_EQ(bytes.front(), kUntouched);
    EXPECT_EQ(bytes.back(), kUntouched);
  }
  DataType type;
  std::size_t count;
  Bytes bytes;
};

class Operators : public ::testing::TestWithParam<int> {};

constexpr std::size_t kCount = 11;

void move_all(DataType type, int rank, int size, HcclComm comm) {
  const auto n = index(size);
  const HcclDataType t = c_type(type);
  const auto mine = [&](std::size_t i) { return value(rank, i); };

  Buffer in(type, kCount, mine), out(type, kCount * n);
  OK(HcclAllGather(in.data(), out.data(), kCount, t, comm, nullptr));
  for (int r = 0; r < size; ++r) {
    out.expect(index(r) * kCount, kCount, [&](std::size_t i) { return value(r, i); });
  }

  Buffer in_place(type, kCount * n);
  std::byte* const own = in_place.at(index(rank) * kCount);
  std::memcpy(own, in.data(), kCount * size_of(type));
  OK(HcclAllGather(own, in_place.data(), kCount, t, comm, nullptr));
  EXPECT_EQ(in_place.bytes, out.bytes);

  const int root = size - 1;
  Buffer cast(type, kCount, mine);
  OK(HcclBroadcast(cast.data(), kCount, t, static_cast<std::uint32_t>(root), comm, nullptr));
  cast.expect(0, kCount, [&](std::size_t i) { return value(root, i); });

  Buffer whole(type, kCount * n, mine), part(type, kCount);
  OK(HcclScatter(rank == root ? whole.data() : nullptr, part.data(), kCount, t,
                 static_cast<std::uint32_t>(root), comm, nullptr));
  part.expect(0, kCount, [&](std::size_t i) { return value(root, index(rank) * kCount + i); });

  Buffer theirs(type, kCount * n);
  OK(HcclAlltoAll(whole.data(), kCount, t, theirs.data(), kCount, t, comm, nullptr));
  for (int r = 0; r < size; ++r) {
    theirs.expect(index(r) * kCount, kCount,
                  [&](std::size_t i) { return value(r, index(rank) * kCount + i); });
  }

  // A ring of an even number of ranks: even ranks send first, odd ranks receive first.
  if (size > 1 && size % 2 == 0) {
    const auto next = static_cast<std::uint32_t>((rank + 1) % size);
    const int before = (rank - 1 + size) % size;
    Buffer got(type, kCount);
    const auto send = [&] { return HcclSend(in.data(), kCount, t, next, comm, nullptr); };
    const auto recv = [&] {
      return HcclRecv(got.data(), kCount, t, static_cast<std::uint32_t>(before), comm, nullptr);
    };
    ASSERT_EQ(rank % 2 == 0 ? send() : recv(), 0);
    ASSERT_EQ(rank % 2 == 0 ? recv() : send(), 0);
    got.expect(0, kCount, [&](std::size_t i) { return value(before, i); });
  }
}

// Lengths of blocks: one block is empty, the lengths of the others differ.
std::size_t length(int from, int to) {
  return (from + to) % 3 == 1 ? 0 : 2 + index(from) * 3 + index(to);
}

void move_blocks(DataType type, int rank, int size, HcclComm comm) {
  const auto n = index(size);
  const HcclDataType t = c_type(type);
  // AllGatherV with gaps between blocks that lie in reverse rank order; then the same in place.
  Numbers counts(n), places(n);
  std::size_t end = 1;
  for (int r = size - 1; r >= 0; --r) {
    counts[index(r)] = length(r, 0);
    places[index(r)] = end;
    end += length(r, 0) + 1;
  }
  const std::size_t own = length(rank, 0);
  Buffer in(type, own, [&](std::size_t i) { return value(rank, i); });
  for (const bool in_place : {false, true}) {
    Buffer out(type, end);
    std::byte* const from = in_place ? out.at(places[index(rank)]) : in.data();
    if (in_place) std::memcpy(from, in.data(), own * size_of(type));
    OK(HcclAllGatherV(from, own, out.data(), counts.data(), places.data(), t, comm, nullptr));
    for (int r = 0; r < size; ++r) {
      out.expect(places[index(r)], length(r, 0), [&](std::size_t i) { return value(r, i); });
    }
    EXPECT_EQ(*out.at(0), kUntouched);
  }

  Numbers sent(n), received(n), from_places(n), to_places(n), matrix(n * n);
  std::size_t sent_end = 0, received_end = 0;
  for (int r = 0; r < size; ++r) {
    sent[index(r)] = length(rank, r);
    received[index(r)] = length(r, rank);
    from_places[index(r)] = sent_end;
    to_places[index(r)] = received_end;
    sent_end += length(rank, r);
    received_end += length(r, rank);
    for (int to = 0; to < size; ++to) matrix[index(r) * n + index(to)] = length(r, to);
  }
  const auto check = [&](Buffer& out, std::size_t shift) {
    for (int r = 0; r < size; ++r) {
      // `start` is where rank r's buffer has the block for this rank.
      std::size_t start = 0;
      for (int to = 0; to < rank; ++to) start += length(r, to);
      out.expect(to_places[index(r)] + shift, length(r, rank),
                 [&](std::size_t i) { return value(r, start + i); });
    }
  };
  Buffer mine(type, sent_end, [&](std::size_t i) { return value(rank, i); });
  Buffer packed(type, received_end);
  OK(HcclAlltoAllVC(mine.data(), matrix.data(), t, packed.data(), t, comm, nullptr));
  check(packed, 0);
  Buffer shifted(type, received_end + 3);
  Numbers later = to_places;
  for (auto& each : later) each += 3;
  OK(HcclAlltoAllV(mine.data(), sent.data(), from_places.data(), t, shifted.data(), received.data(),
                   later.data(), t, comm, nullptr));
  check(shifted, 3);
  EXPECT_EQ(*shifted.at(0), kUntouched);
}

void reduce_all(DataType type, ReduceOp op, int rank, int size, HcclComm comm) {
  const auto n = index(size);
  const HcclDataType t = c_type(type);
  const HcclReduceOp o = c_op(op);
  const auto mine = [&](std::size_t i) { return value(rank, i); };
  const auto result = [&](std::size_t i) { return folded(op, i, size); };
  Buffer in(type, kCount * n, mine), out(type, kCount);
  OK(HcclAllReduce(in.data(), out.data(), kCount, t, o, comm, nullptr));
  out.expect(0, kCount, result);
  Buffer both(type, kCount, mine);
  OK(HcclAllReduce(both.data(), both.data(), kCount, t, o, comm, nullptr));
  both.expect(0, kCount, result);

  const int root = size / 2;
  Buffer on_root(type, kCount);
  OK(HcclReduce(in.data(), rank == root ? on_root.data() : nullptr, kCount, t, o,
                static_cast<std::uint32_t>(root), comm, nullptr));
  if (rank == root) on_root.expect(0, kCount, result);

  Buffer block(type, kCount);
  OK(HcclReduceScatter(in.data(), block.data(), kCount, t, o, comm, nullptr));
  block.expect(0, kCount, [&](std::size_t i) { return result(index(rank) * kCount + i); });

  Numbers counts(n), places(n);
  std::size_t end = 2;
  for (int r = size - 1; r >= 0; --r) {
    counts[index(r)] = length(r, 1);
    places[index(r)] = end;
    end += length(r, 1) + 1;
  }
  Buffer spread(type, end, mine), own(type, length(rank, 1));
  OK(HcclReduceScatterV(spread.data(), counts.data(), places.data(), own.data(), length(rank, 1), t,
                        o, comm, nullptr));
  own.expect(0, length(rank, 1), [&](std::size_t i) { return result(places[index(rank)] + i); });
}

TEST_P(Operators, EveryTypeMoves) {
  ApiWorld world(GetParam());
  world.on_all([&](int rank) {
    for (const DataType type : kAllTypes) {
      move_all(type, rank, world.size(), world.comm(rank));
      move_blocks(type, rank, world.size(), world.comm(rank));
    }
  });
}

TEST_P(Operators, EveryTypeIsReducedByEveryReduction) {
  ApiWorld world(GetParam());
  world.on_all([&](int rank) {
    for (const DataType type : kAllTypes) {
      if (!reducible(type)) continue;
      for (const ReduceOp op : kReductions) {
        SCOPED_TRACE(std::string(to_string(type)) + " " + std::string(to_string(op)));
        if (exact(type, op, world.size())) {
          reduce_all(type, op, rank, world.size(), world.comm(rank));
        }
      }
    }
  });
}

TEST_P(Operators, NumbersWrapAroundAndNotANumberStays) {
  ApiWorld world(GetParam());
  if (world.size() < 2) return;
  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    const auto n = index(world.size());
    // Sums and products wrap around, as in unsigned arithmetic of eight bits.
    const Numbers counts(n, 1);
    Numbers places(n);
    for (std::size_t r = 0; r < n; ++r) places[r] = r;
    std::vector<std::int8_t> in(n, rank == 0 ? 127 : 1);
    const auto wrapped = static_cast<std::int8_t>(126 + world.size());
    std::int8_t all = 0, own = 0, own_v = 0;
    OK(HcclAllReduce(in.data(), &all, 1, HCCL_DATA_TYPE_INT8, HCCL_REDUCE_SUM, comm, nullptr));
    OK(HcclReduceScatter(in.data(), &own, 1, HCCL_DATA_TYPE_INT8, HCCL_REDUCE_SUM, comm, nullptr));
    OK(HcclReduceScatterV(in.data(), counts.data(), places.data(), &own_v, 1, HCCL_DATA_TYPE_INT8,
                          HCCL_REDUCE_SUM, comm, nullptr));
    EXPECT_EQ(all, wrapped);
    EXPECT_EQ(own, wrapped);
    EXPECT_EQ(own_v, wrapped);

    // If one rank's input is a NaN with any bits, every reduction gives all ranks the quiet NaN.
    for (const HcclReduceOp op :
         {HCCL_REDUCE_SUM, HCCL_REDUCE_PROD, HCCL_REDUCE_MAX, HCCL_REDUCE_MIN}) {
      std::vector<std::uint32_t> bits(n, rank == 1 ? 0xFFC12345u : 0x3F800000u);
      std::uint32_t results[3] = {};
      OK(HcclAllReduce(bits.data(), &results[0], 1, HCCL_DATA_TYPE_FP32, op, comm, nullptr));
      OK(HcclReduceScatter(bits.data(), &results[1], 1, HCCL_DATA_TYPE_FP32, op, comm, nullptr));
      OK(HcclReduceScatterV(bits.data(), counts.data(), places.data(), &results[2], 1,
                            HCCL_DATA_TYPE_FP32, op, comm, nullptr));
      for (const std::uint32_t each : results) EXPECT_EQ(each, 0x7FC00000u) << op;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Operators, ::testing::Values(1, 2, 3, 4, 8),
                         [](const auto& info) { return std::to_string(info.param); });

// ---- wrong arguments ----

// Valid arguments of one V operation on rank 0 of two; each case makes one argument wrong.
struct V {
  std::vector<float> in = std::vector<float>(16), out = std::vector<float>(16);
  Numbers counts{2, 3}, places{0, 2}, other_counts{2, 3}, other_places{0, 2}, matrix{2, 3, 3, 1};
  void *send = in.data(), *recv = out.data();
  const void *send_counts = counts.data(), *send_places = places.data(),
             *recv_counts = other_counts.data(), *recv_places = other_places.data(),
             *counts_matrix = matrix.data();
  std::uint64_t count = 2;
  HcclDataType type = HCCL_DATA_TYPE_FP32, other_type = HCCL_DATA_TYPE_FP32;
  HcclReduceOp op = HCCL_REDUCE_SUM;
  HcclComm comm = nullptr;
  aclrtStream stream = nullptr;
};

using Call = HcclResult (*)(const V&);
HcclResult reduce_scatter_v(const V& v) {
  return HcclReduceScatterV(v.send, v.send_counts, v.send_places, v.recv, v.count, v.type, v.op,
                            v.comm, v.stream);
}
HcclResult all_gather_v(const V& v) {
  return HcclAllGatherV(v.send, v.count, v.recv, v.recv_counts, v.recv_places, v.type, v.comm,
                        v.stream);
}
HcclResult all_to_all_v(const V& v) {
  return HcclAlltoAllV(v.send, v.send_counts, v.send_places, v.type, v.recv, v.recv_counts,
                       v.recv_places, v.other_type, v.comm, v.stream);
}
HcclResult all_to_all_vc(const V& v) {
  return HcclAlltoAllVC(v.send, v.counts_matrix, v.type, v.recv, v.other_type, v.comm, v.stream);
}

TEST(WrongArguments, OfBlocksAreNamedAndHarmless) {
  ApiWorld world(2);
  const auto refuse = [&](const char* name, Call call, HcclResult expected, const char* argument,
                          const std::function<void(V&)>& spoil) {
    V v;
    v.comm = world.comm(0);
    spoil(v);
    REFUSED_BY(name, call(v), expected, argument);
  };
  const auto ptr = HCCL_E_PTR, para = HCCL_E_PARA, no = HCCL_E_NOT_SUPPORT;
  const std::uint64_t far = ~std::uint64_t{0} / 8;
  struct Each {
    const char* name;
    Call call;
    bool sends, receives;  // the arrays that the operation takes
    const char* type;
  };
  const char* const kRs = "HcclReduceScatterV";
  const char* const kAg = "HcclAllGatherV";
  const char* const kA = "HcclAlltoAllV";
  const char* const kVc = "HcclAlltoAllVC";
  const std::vector<Each> all = {{kRs, reduce_scatter_v, true, false, "dataType"},
                                 {kAg, all_gather_v, false, true, "dataType"},
                                 {kA, all_to_all_v, true, true, "sendType"},
                                 {kVc, all_to_all_vc, false, false, "sendType"}};
  for (const Each& e : all) {
    const bool alltoall = e.name == kA;
    refuse(e.name, e.call, ptr, "sendBuf", [](V& v) { v.send = nullptr; });
    refuse(e.name, e.call, ptr, "recvBuf", [](V& v) { v.recv = nullptr; });
    refuse(e.name, e.call, ptr, "comm", [](V& v) { v.comm = nullptr; });
    refuse(e.name, e.call, para, "comm", [](V& v) { v.comm = &v; });
    refuse(e.name, e.call, para, "stream", [](V& v) { v.stream = &v; });
    for (const int type : {13, 18, 255}) {
      refuse(e.name, e.call, no, e.type,
             [=](V& v) { v.type = v.other_type = static_cast<HcclDataType>(type); });
    }
    if (e.sends) {
      refuse(e.name, e.call, ptr, "sendCounts", [](V& v) { v.send_counts = nullptr; });
      refuse(e.name, e.call, ptr, alltoall ? "sdispls" : "sendDispls",
             [](V& v) { v.send_places = nullptr; });
      refuse(e.name, e.call, para, "sendCounts[1]", [](V& v) { v.counts[1] = kTooMany; });
      refuse(e.name, e.call, para, alltoall ? "sdispls[1]" : "sendDispls[1]",
             [=](V& v) { v.places[1] = far; });
      refuse(e.name, e.call, para, alltoall ? "sdispls[0]" : "sendDispls[0]",
             [=](V& v) { v.places[0] = ~std::uint64_t{0}; });
    }
    if (e.receives) {
      refuse(e.name, e.call, ptr, "recvCounts", [](V& v) { v.recv_counts = nullptr; });
      refuse(e.name, e.call, ptr, alltoall ? "rdispls" : "recvDispls",
             [](V& v) { v.recv_places = nullptr; });
      refuse(e.name, e.call, para, "recvCounts[1]", [](V& v) { v.other_counts[1] = kTooMany; });
      refuse(e.name, e.call, para, alltoall ? "rdispls[1]" : "recvDispls[1]",
             [=](V& v) { v.other_places[1] = far; });
    }
    if (e.name == kA || e.name == kVc) {
      refuse(e.name, e.call, para, "recvBuf is sendBuf", [](V& v) { v.recv = v.send; });
      refuse(e.name, e.call, para, "recvType", [](V& v) { v.other_type = HCCL_DATA_TYPE_INT32; });
    }
  }
  world.on_all([&](int rank) {  // empty buffers may be the same
    V v;
    v.comm = world.comm(rank);
    v.recv = v.send;
    std::fill(std::begin(v.counts), std::end(v.counts), 0);
    std::fill(std::begin(v.other_counts), std::end(v.other_counts), 0);
    EXPECT_EQ(all_to_all_v(v), HCCL_SUCCESS) << HcclGetLastErrorText();
  });
  refuse(kRs, reduce_scatter_v, para, "recvBuf is sendBuf", [](V& v) { v.recv = v.send; });
  refuse(kRs, reduce_scatter_v, para, "recvCount", [](V& v) { v.count = 3; });
  refuse(kRs, reduce_scatter_v, para, "recvCount", [](V& v) { v.count = kTooMany; });
  for (const int op : {4, 255}) {
    refuse(kRs, reduce_scatter_v, no, "op", [=](V& v) { v.op = static_cast<HcclReduceOp>(op); });
  }
  refuse(kRs, reduce_scatter_v, no, "dataType hif8", [](V& v) { v.type = HCCL_DATA_TYPE_HIF8; });
  refuse(kRs, reduce_scatter_v, no, "dataType fp8e8m0",
         [](V& v) { v.type = HCCL_DATA_TYPE_FP8E8M0; });
  refuse(kAg, all_gather_v, para, "sendCount", [](V& v) { v.count = 3; });
  refuse(kAg, all_gather_v, para, "sendCount", [](V& v) { v.count = kTooMany; });
  refuse(kA, all_to_all_v, para, "recvCounts[0]", [](V& v) { v.other_counts[0] = 1; });
  refuse(kVc, all_to_all_vc, ptr, "sendCountMatrix", [](V& v) { v.counts_matrix = nullptr; });
  refuse(kVc, all_to_all_vc, para, "sendCountMatrix[3]", [](V& v) { v.matrix[3] = kTooMany; });
  world.expect_usable();
}

TEST(WrongArguments, OfBatchesAndGroupsAreNamedAndHarmless) {
  ApiWorld world(2);
  const HcclComm comm = world.comm(0);
  std::vector<float> data(8);
  const auto refuse = [&](const std::function<void(HcclSendRecvItem*)>& spoil, HcclResult expected,
                          const char* argument) {
    HcclSendRecvItem items[2] = {{HCCL_SEND, data.data(), 4, HCCL_DATA_TYPE_FP32, 1},
                                 {HCCL_RECV, data.data() + 4, 4, HCCL_DATA_TYPE_FP32, 1}};
    spoil(items);
    REFUSED(HcclBatchSendRecv(items, 2, comm, nullptr), expected, argument);
  };
  HcclSendRecvItem good = {HCCL_SEND, data.data(), 4, HCCL_DATA_TYPE_FP32, 1};
  REFUSED(HcclBatchSendRecv(nullptr, 1, comm, nullptr), HCCL_E_PTR, "sendRecvInfo");
  EXPECT_EQ(HcclBatchSendRecv(nullptr, 0, comm, nullptr), HCCL_SUCCESS);
  REFUSED(HcclBatchSendRecv(&good, 1, nullptr, nullptr), HCCL_E_PTR, "comm");
  REFUSED(HcclBatchSendRecv(&good, 1, &good, nullptr), HCCL_E_PARA, "comm");
  REFUSED(HcclBatchSendRecv(&good, 1, comm, &good), HCCL_E_PARA, "stream");
  refuse([](auto* i) { i[1].sendRecvType = HCCL_SEND_RECV_RESERVED; }, HCCL_E_PARA,
         "sendRecvInfo[1].sendRecvType");
  refuse([](auto* i) { i[0].buf = nullptr; }, HCCL_E_PTR, "sendRecvInfo[0].buf");
  refuse([](auto* i) { i[1].count = kTooMany; }, HCCL_E_PARA, "sendRecvInfo[1].count");
  refuse([](auto* i) { i[0].dataType = static_cast<HcclDataType>(13); }, HCCL_E_NOT_SUPPORT,
         "sendRecvInfo[0].dataType");
  refuse([](auto* i) { i[1].remoteRank = 2; }, HCCL_E_PARA, "sendRecvInfo[1].remoteRank");
  refuse([](auto* i) { i[0].remoteRank = 0; }, HCCL_E_PARA,
         "sendRecvInfo: 1 send of rank 0 to itself, but 0 receives");
  refuse(
      [](auto* i) {
        i[0].remoteRank = i[1].remoteRank = 0;
        i[1].count = 3;
      },
      HCCL_E_PARA,
      "sendRecvInfo: send 0 of rank 0 to itself has 4 fp32, but its receive has 3 fp32");
  REFUSED(HcclGroupEnd(), HCCL_E_NOT_SUPPORT, "no group");
  REFUSED(HcclGroupStatusGet(nullptr), HCCL_E_PTR, "isGroupEnabled");
  EXPECT_EQ(HcclBatchSendRecv(&good, 0, comm, nullptr), HCCL_SUCCESS);

  // A refused call in a group: the group runs nothing and fails with the reason.
  const auto in_group = [&](const std::function<void()>& calls) {
    EXPECT_EQ(HcclGroupStart(), 0);
    calls();
    return HcclGroupEnd();
  };
  const auto reduce = [&](std::uint64_t count) {
    return HcclAllReduce(data.data(), data.data(), count, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM,
                         comm, nullptr);
  };
  const auto send = [&](std::uint32_t to) {
    return HcclSend(data.data(), 1, HCCL_DATA_TYPE_FP32, to, comm, nullptr);
  };
  const char* const nothing = "nothing of the group was run: ";
  const std::vector<std::pair<std::function<void()>, HcclResult>> groups = {
      {[&] {
         EXPECT_EQ(reduce(1), 0);
         EXPECT_EQ(reduce(kTooMany), HCCL_E_PARA);
       },
       HCCL_E_PARA},
      {[&] {
         EXPECT_EQ(reduce(1), 0);
         EXPECT_EQ(send(1), HCCL_E_PARA);
       },
       HCCL_E_PARA},
      {[&] {
         EXPECT_EQ(send(1), 0);
         EXPECT_EQ(HcclBarrier(comm, nullptr), HCCL_E_PARA);
       },
       HCCL_E_PARA},
      {[&] { EXPECT_EQ(HcclBatchSendRecv(&good, 1, comm, nullptr), HCCL_E_NOT_SUPPORT); },
       HCCL_E_NOT_SUPPORT},
      {[&] { EXPECT_EQ(HcclBarrier(nullptr, nullptr), HCCL_E_PTR); }, HCCL_E_PTR},
      {[&] {
         EXPECT_EQ(send(1), 0);
         EXPECT_EQ(HcclRecv(data.data(), 1, HCCL_DATA_TYPE_FP32, 1, comm, data.data()),
                   HCCL_E_PARA);
       },
       HCCL_E_PARA},
  };
  for (const auto& [calls, expected] : groups) {
    EXPECT_EQ(in_group(calls), expected);
    EXPECT_NE(std::string(HcclGetLastErrorText()).find(nothing), std::string::npos)
        << HcclGetLastErrorText();
  }
  // A send to oneself without its receive is found only at the group's end.
  EXPECT_EQ(in_group([&] { EXPECT_EQ(send(0), 0); }), HCCL_E_PARA);
  EXPECT_NE(std::string(HcclGetLastErrorText()).find("to itself"), std::string::npos);
  EXPECT_EQ(in_group([] {}), HCCL_SUCCESS);
  world.expect_usable();
}

TEST(Blocks, OfNoLengthNeedNoBuffers) {
  ApiWorld world(3);
  world.on_all([&](int rank) {
    const HcclComm c = world.comm(rank);
    const Numbers none(9), anywhere(3, ~std::uint64_t{0});
    const auto t = HCCL_DATA_TYPE_FP32;
    OK(HcclReduceScatterV(nullptr, none.data(), anywhere.data(), nullptr, 0, t, HCCL_REDUCE_SUM, c,
                          nullptr));
    EXPECT_EQ(HcclAllGatherV(nullptr, 0, nullptr, none.data(), anywhere.data(), t, c, nullptr), 0);
    OK(HcclAlltoAllV(nullptr, none.data(), anywhere.data(), t, nullptr, none.data(),
                     anywhere.data(), t, c, nullptr));
    EXPECT_EQ(HcclAlltoAllVC(nullptr, none.data(), t, nullptr, t, c, nullptr), 0);
    HcclSendRecvItem items[] = {{HCCL_SEND, nullptr, 0, t, 0}, {HCCL_RECV, nullptr, 0, t, 0},
                                {HCCL_SEND, nullptr, 0, t, 1}, {HCCL_RECV, nullptr, 0, t, 1},
                                {HCCL_SEND, nullptr, 0, t, 2}, {HCCL_RECV, nullptr, 0, t, 2}};
    EXPECT_EQ(HcclBatchSendRecv(items, 6, c, nullptr), 0) << HcclGetLastErrorText();
  });
  world.expect_usable();
}

// If counts differ between two of three ranks, all three get an error with both counts.
TEST(Blocks, CountsThatDoNotFitAreAnErrorOfAllRanks) {
  ApiWorld world(3);
  world.on_all([&](int rank) {
    std::vector<float> in(64), out(64);
    const Numbers sent(3, 5), places{0, 10, 20};
    Numbers received(3, 5);
    if (rank == 2) received[0] = 4;
    EXPECT_EQ(HcclAlltoAllV(in.data(), sent.data(), places.data(), HCCL_DATA_TYPE_FP32, out.data(),
                            received.data(), places.data(), HCCL_DATA_TYPE_FP32, world.comm(rank),
                            nullptr),
              HCCL_E_PARA)
        << rank;
    const std::string text = HcclGetLastErrorText();
    for (const char* word : {"EI0005", "alltoall_v", "rank 0", "rank 2", " 5 ", " 4"}) {
      EXPECT_NE(text.find(word), std::string::npos) << text;
    }
    HcclResult error = HCCL_SUCCESS;
    EXPECT_EQ(HcclGetCommAsyncError(world.comm(rank), &error), HCCL_SUCCESS);
    EXPECT_EQ(error, HCCL_E_REMOTE);
  });
}

// ---- batches and groups ----

TEST(Batches, OfAllPairsAndOneself) {
  for (const int size : {1, 2, 3, 4, 8, 16}) {
    ApiWorld world(size);
    world.on_all([&](int rank) {
      const auto n = index(size);
      std::vector<int> out(n * 2), in(n * 2, -1);
      std::vector<HcclSendRecvItem> items;
      for (std::size_t peer = 0; peer < n; ++peer) {
        for (std::size_t k = 0; k < 2; ++k) {
          out[peer * 2 + k] = rank * 100 + static_cast<int>(peer * 10 + k);
          items.push_back({HCCL_RECV, &in[peer * 2 + k], 1, HCCL_DATA_TYPE_INT32,
                           static_cast<std::uint32_t>(peer)});
        }
      }
      for (std::size_t at = 0; at < n * 2; ++at) {
        items.push_back(
            {HCCL_SEND, &out[at], 1, HCCL_DATA_TYPE_INT32, static_cast<std::uint32_t>(at / 2)});
      }
      OK(HcclBatchSendRecv(items.data(), static_cast<std::uint32_t>(items.size()), world.comm(rank),
                           nullptr));
      for (int peer = 0; peer < size; ++peer) {
        for (int k = 0; k < 2; ++k) {
          EXPECT_EQ(in[index(peer) * 2 + index(k)], peer * 100 + rank * 10 + k);
        }
      }
    });
  }
}

bool group_is_open() {
  bool open = false;
  EXPECT_EQ(HcclGroupStatusGet(&open), 0);
  return open;
}

TEST(Groups, OfSendsAndReceivesRunAsOneBatch) {
  for (const int size : {1, 2, 3, 5}) {
    ApiWorld world(size);
    world.on_all([&](int rank) {
      const HcclComm comm = world.comm(rank);
      const auto t = HCCL_DATA_TYPE_INT32;
      std::vector<int> out(index(size)), in(index(size), -1);
      EXPECT_FALSE(group_is_open());
      OK(HcclGroupStart());
      for (int peer = 0; peer < size; ++peer) {
        out[index(peer)] = rank * 10 + peer;
        // Groups are nested, as when a function inside a group uses groups itself.
        OK(HcclGroupStart());
        OK(HcclSend(&out[index(peer)], 1, t, static_cast<std::uint32_t>(peer), comm, nullptr));
        OK(HcclRecv(&in[index(peer)], 1, t, static_cast<std::uint32_t>(peer), comm, nullptr));
        OK(HcclGroupEnd());
        EXPECT_TRUE(group_is_open());
        EXPECT_EQ(in[index(peer)], -1) << "it ran before the end";
      }
      OK(HcclGroupEnd());
      EXPECT_FALSE(group_is_open());
      for (int peer = 0; peer < size; ++peer) EXPECT_EQ(in[index(peer)], peer * 10 + rank);
    });
  }
}

// One thread calls for all ranks: without the group the first call would wait for ever.
TEST(Groups, OneThreadDrivesSeveralCommunicators) {
  constexpr int kSize = 4;
  ApiWorld world(kSize);
  std::vector<int> sums(kSize), maxima(kSize), numbers(kSize);
  OK(HcclGroupStart());
  for (int rank = 0; rank < kSize; ++rank) {
    numbers[index(rank)] = rank + 1;
    OK(HcclAllReduce(&numbers[index(rank)], &sums[index(rank)], 1, HCCL_DATA_TYPE_INT32,
                     HCCL_REDUCE_SUM, world.comm(rank), nullptr));
    // The second operation reads the result of the first one: they run in order.
    OK(HcclAllReduce(&sums[index(rank)], &maxima[index(rank)], 1, HCCL_DATA_TYPE_INT32,
                     HCCL_REDUCE_SUM, world.comm(rank), nullptr));
  }
  EXPECT_EQ(sums, std::vector<int>(kSize, 0));
  OK(HcclGroupEnd());
  EXPECT_EQ(sums, std::vector<int>(kSize, 10));
  EXPECT_EQ(maxima, std::vector<int>(kSize, 40));
  world.expect_usable();
}

// HCCL's own example: one thread makes the communicators of all its ranks.
TEST(Groups, OneThreadMakesSeveralCommunicators) {
  constexpr std::uint32_t kSize = 3;
  HcclRootInfo root{};
  OK(HcclGetRootInfo(&root));
  std::vector<HcclComm> comms(kSize, nullptr);
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  const auto init = [&](std::uint32_t rank) {
    return rank == 0 ? HcclCommInitRootInfoConfig(kSize, &root, rank, &config, &comms[rank])
                     : HcclCommInitRootInfo(kSize, &root, rank, &comms[rank]);
  };
  // A wrong call: nothing is joined, and the ranks can join afterwards.
  OK(HcclGroupStart());
  OK(init(0));
  EXPECT_EQ(init(kSize), HCCL_E_PARA);
  EXPECT_EQ(HcclGroupEnd(), HCCL_E_PARA);
  EXPECT_NE(std::strstr(HcclGetLastErrorText(), "HcclCommInitRootInfo: rank is 3"), nullptr)
      << HcclGetLastErrorText();
  EXPECT_EQ(comms, std::vector<HcclComm>(kSize, nullptr));
  OK(HcclGroupStart());
  for (std::uint32_t rank = 0; rank < kSize; ++rank) OK(init(rank));
  EXPECT_EQ(comms, std::vector<HcclComm>(kSize, nullptr)) << "they joined before the end";
  root = {};  // the caller may change its arguments
  config = {};
  OK(HcclGroupEnd());
  std::vector<int> sums(kSize);
  std::vector<int> ones(kSize, 1);
  OK(HcclGroupStart());
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    std::uint32_t its = kSize;
    OK(HcclGetRankId(comms[rank], &its));
    EXPECT_EQ(its, rank);
    OK(HcclAllReduce(&ones[rank], &sums[rank], 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM,
                     comms[rank], nullptr));
  }
  HcclComm other = nullptr;
  EXPECT_EQ(HcclCommInitRootInfo(1, &root, 0, &other), HCCL_E_PARA) << "the root is no more";
  EXPECT_EQ(HcclGroupEnd(), HCCL_E_PARA);
  OK(HcclGroupStart());
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    OK(HcclAllReduce(&ones[rank], &sums[rank], 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM,
                     comms[rank], nullptr));
  }
  OK(HcclGetRootInfo(&root));
  EXPECT_EQ(HcclCommInitRootInfo(1, &root, 0, &other), HCCL_E_PARA) << "the group has operations";
  EXPECT_EQ(HcclGroupEnd(), HCCL_E_PARA);
  OK(HcclGroupStart());
  OK(HcclCommInitRootInfo(1, &root, 0, &other));
  EXPECT_EQ(HcclBarrier(comms[0], nullptr), HCCL_E_PARA) << "the group makes communicators";
  EXPECT_EQ(HcclGroupEnd(), HCCL_E_PARA);
  for (const HcclComm comm : comms) OK(HcclCommDestroy(comm));
}

TEST(Groups, BelongToOneThread) {
  ApiWorld world(2);
  OK(HcclGroupStart());
  std::thread([&] {
    EXPECT_FALSE(group_is_open());
    EXPECT_EQ(HcclGroupEnd(), HCCL_E_NOT_SUPPORT);
  }).join();
  world.expect_usable();  // calls of other threads run at once, outside the group
  EXPECT_TRUE(group_is_open());
  EXPECT_EQ(HcclGroupEnd(), 0);
}

// The caller may change the arrays once the call has returned, also inside a group.
TEST(Groups, KeepTheArraysOfBlocks) {
  ApiWorld world(2);
  world.on_all([&](int rank) {
    const int mine = 7 + rank;
    std::vector<int> all(2, -1);
    Numbers counts{1, 1}, places{0, 1};
    OK(HcclGroupStart());
    OK(HcclAllGatherV(const_cast<int*>(&mine), 1, all.data(), counts.data(), places.data(),
                      HCCL_DATA_TYPE_INT32, world.comm(rank), nullptr));
    counts = {1000, 1000};
    places = {1000000, 1000000};
    OK(HcclGroupEnd());
    EXPECT_EQ(all, (std::vector<int>{7, 8}));
  });
}

}  // namespace
}  // namespace hccl::testing
