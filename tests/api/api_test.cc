// The C API as a program sees it: codes and texts for every wrong argument, and every operation.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_fusion.h"
#include "tests/support/api_world.h"

namespace hccl::testing {
namespace {

constexpr std::uint64_t kTooMany = 0x80000000ull;
const auto kType = HCCL_DATA_TYPE_FP32;

struct Wrong {
  const char* name;
  std::function<HcclResult()> call;
  HcclResult expected;
  const char* argument;  // how the text goes on behind the function
};

void refuse(const std::vector<Wrong>& cases) {
  for (const Wrong& wrong : cases) {
    EXPECT_EQ(wrong.call(), wrong.expected) << wrong.name << ": " << HcclGetLastErrorText();
    const std::string text = HcclGetLastErrorText();
    const std::string function(wrong.name, std::strcspn(wrong.name, " "));
    EXPECT_EQ(text.rfind(function + ": " + wrong.argument, 0), 0u) << wrong.name << ": " << text;
  }
}

// One operation with all arguments right, each of which a case then makes wrong.
struct Arguments {
  void* in;
  void* out;
  std::uint64_t count = 4;
  HcclDataType type = kType;
  HcclReduceOp op = HCCL_REDUCE_SUM;
  std::uint32_t rank = 0;  // root or peer
  HcclComm comm = nullptr;
  aclrtStream stream = nullptr;
};

struct Operation {
  const char* name;
  std::function<HcclResult(const Arguments&)> call;
  const char* in;  // names of the arguments; null: there is none
  const char* out;
  const char* count;
  const char* op;
  const char* rank;
  const char* type = "dataType";
};

// On rank 0 of two; peers must be rank 1, roots may be 0.
const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
      {"HcclAllReduce",
       [](const Arguments& a) {
         return HcclAllReduce(a.in, a.out, a.count, a.type, a.op, a.comm, a.stream);
       },
       "sendBuf", "recvBuf", "count", "op", nullptr},
      {"HcclBroadcast",
       [](const Arguments& a) {
         return HcclBroadcast(a.in, a.count, a.type, a.rank, a.comm, a.stream);
       },
       "buf", nullptr, "count", nullptr, "root"},
      {"HcclReduceScatter",
       [](const Arguments& a) {
         return HcclReduceScatter(a.in, a.out, a.count, a.type, a.op, a.comm, a.stream);
       },
       "sendBuf", "recvBuf", "recvCount", "op", nullptr},
      {"HcclAllGather",
       [](const Arguments& a) {
         return HcclAllGather(a.in, a.out, a.count, a.type, a.comm, a.stream);
       },
       "sendBuf", "recvBuf", "sendCount", nullptr, nullptr},
      {"HcclReduce",
       [](const Arguments& a) {
         return HcclReduce(a.in, a.out, a.count, a.type, a.op, a.rank, a.comm, a.stream);
       },
       "sendBuf", "recvBuf", "count", "op", "root"},
      {"HcclScatter",
       [](const Arguments& a) {
         return HcclScatter(a.in, a.out, a.count, a.type, a.rank, a.comm, a.stream);
       },
       "sendBuf", "recvBuf", "recvCount", nullptr, "root"},
      {"HcclAlltoAll",
       [](const Arguments& a) {
         return HcclAlltoAll(a.in, a.count, a.type, a.out, a.count, a.type, a.comm, a.stream);
       },
       "sendBuf", "recvBuf", "sendCount", nullptr, nullptr, "sendType"},
      {"HcclSend",
       [](const Arguments& a) { return HcclSend(a.in, a.count, a.type, a.rank, a.comm, a.stream); },
       "sendBuf", nullptr, "count", nullptr, "destRank"},
      {"HcclRecv",
       [](const Arguments& a) {
         return HcclRecv(a.out, a.count, a.type, a.rank, a.comm, a.stream);
       },
       nullptr, "recvBuf", "count", nullptr, "srcRank"},
  };
  return all;
}

TEST(Api, EveryWrongArgumentOfAnOperationIsNamedAndHarmless) {
  ApiWorld world(2);
  std::vector<float> in(16), out(16);
  const auto on_rank_0 = [&](const Operation& operation, std::function<void(Arguments&)> spoil) {
    Arguments arguments{in.data(), out.data()};
    arguments.comm = world.comm(0);
    if (operation.rank != nullptr && std::strstr(operation.rank, "Rank")) arguments.rank = 1;
    spoil(arguments);
    return [&operation, arguments] { return operation.call(arguments); };
  };
  std::vector<Wrong> cases;
  for (const Operation& each : operations()) {
    const auto add = [&](HcclResult expected, const char* argument,
                         std::function<void(Arguments&)> spoil) {
      if (argument != nullptr)
        cases.push_back({each.name, on_rank_0(each, std::move(spoil)), expected, argument});
    };
    add(HCCL_E_PTR, each.in, [](Arguments& a) { a.in = nullptr; });
    add(HCCL_E_PTR, each.out, [](Arguments& a) { a.out = nullptr; });
    add(HCCL_E_PARA, each.count, [](Arguments& a) { a.count = kTooMany; });
    add(HCCL_E_PARA, each.count, [](Arguments& a) { a.count = ~std::uint64_t{0}; });
    for (const int type : {13, 18, 255}) {
      add(HCCL_E_NOT_SUPPORT, each.type,
          [=](Arguments& a) { a.type = static_cast<HcclDataType>(type); });
    }
    for (const int op : {4, 255}) {
      add(HCCL_E_NOT_SUPPORT, each.op, [=](Arguments& a) { a.op = static_cast<HcclReduceOp>(op); });
    }
    add(HCCL_E_PARA, each.rank, [](Arguments& a) { a.rank = 2; });
    add(HCCL_E_PARA, each.rank, [](Arguments& a) { a.rank = 0xFFFFFFFF; });
    add(HCCL_E_PTR, "comm", [](Arguments& a) { a.comm = nullptr; });
    add(HCCL_E_PARA, "comm", [&](Arguments& a) { a.comm = in.data(); });
    add(HCCL_E_PARA, "comm", [&](Arguments& a) { a.comm = reinterpret_cast<HcclComm>(1); });
    add(HCCL_E_PARA, "stream", [&](Arguments& a) { a.stream = in.data(); });
  }
  refuse(cases);
  world.expect_usable();
}

TEST(Api, WhatOnlySomeOperationsForbid) {
  ApiWorld world(2);
  const HcclComm comm = world.comm(0);
  std::vector<float> a(16), b(16);
  refuse({
      {"HcclSend to self", [&] { return HcclSend(a.data(), 1, kType, 0, comm, nullptr); },
       HCCL_E_PARA, "destRank"},
      {"HcclRecv from self", [&] { return HcclRecv(a.data(), 1, kType, 0, comm, nullptr); },
       HCCL_E_PARA, "srcRank"},
      {"HcclAlltoAll in place",
       [&] { return HcclAlltoAll(a.data(), 1, kType, a.data(), 1, kType, comm, nullptr); },
       HCCL_E_PARA, "recvBuf"},
      {"HcclAlltoAll types",
       [&] {
         return HcclAlltoAll(a.data(), 1, kType, b.data(), 1, HCCL_DATA_TYPE_INT32, comm, nullptr);
       },
       HCCL_E_PARA, "recvType"},
      {"HcclAlltoAll counts",
       [&] { return HcclAlltoAll(a.data(), 1, kType, b.data(), 2, kType, comm, nullptr); },
       HCCL_E_PARA, "recvCount"},
      {"HcclAllReduce of bytes that are no numbers",
       [&] {
         return HcclAllReduce(a.data(), b.data(), 1, HCCL_DATA_TYPE_FP8E8M0, HCCL_REDUCE_SUM, comm,
                              nullptr);
       },
       HCCL_E_NOT_SUPPORT, "dataType"},
      {"HcclBarrier", [&] { return HcclBarrier(nullptr, nullptr); }, HCCL_E_PTR, "comm"},
      {"HcclBarrier", [&] { return HcclBarrier(a.data(), nullptr); }, HCCL_E_PARA, "comm"},
      {"HcclBarrier", [&] { return HcclBarrier(comm, a.data()); }, HCCL_E_PARA, "stream"},
  });
  world.expect_usable();
}

TEST(Api, QueriesAndJoinsCheckEveryArgument) {
  ApiWorld world(1);
  const HcclComm comm = world.comm(0);
  std::uint32_t number = 7;
  char name[COMM_NAME_MAX_LENGTH];
  HcclResult error = HCCL_SUCCESS;
  HcclComm made = nullptr;
  HcclRootInfo info;
  ASSERT_EQ(HcclGetRootInfo(&info), HCCL_SUCCESS);
  HcclRootInfo garbage;
  std::memset(garbage.internal, 'x', sizeof garbage.internal);
  HcclRootInfo zeros;
  std::memset(zeros.internal, 0, sizeof zeros.internal);
  HcclRootInfo flipped = info;
  flipped.internal[70] = static_cast<char>(flipped.internal[70] ^ 0x55);
  const std::string long_path(5000, 'a');
  refuse({
      {"HcclGetRootInfo", [] { return HcclGetRootInfo(nullptr); }, HCCL_E_PTR, "rootInfo"},
      {"HcclCommInitRootInfo", [&] { return HcclCommInitRootInfo(1, nullptr, 0, &made); },
       HCCL_E_PTR, "rootInfo"},
      {"HcclCommInitRootInfo", [&] { return HcclCommInitRootInfo(1, &info, 0, nullptr); },
       HCCL_E_PTR, "comm"},
      {"HcclCommInitRootInfo", [&] { return HcclCommInitRootInfo(0, &info, 0, &made); },
       HCCL_E_PARA, "nRanks"},
      {"HcclCommInitRootInfo", [&] { return HcclCommInitRootInfo(0xFFFFFFFF, &info, 0, &made); },
       HCCL_E_PARA, "nRanks"},
      {"HcclCommInitRootInfo", [&] { return HcclCommInitRootInfo(2, &info, 2, &made); },
       HCCL_E_PARA, "rank"},
      {"HcclCommInitRootInfo", [&] { return HcclCommInitRootInfo(1, &garbage, 0, &made); },
       HCCL_E_PARA, "rootInfo"},
      {"HcclCommInitRootInfo", [&] { return HcclCommInitRootInfo(1, &zeros, 0, &made); },
       HCCL_E_PARA, "rootInfo"},
      {"HcclCommInitRootInfo", [&] { return HcclCommInitRootInfo(1, &flipped, 0, &made); },
       HCCL_E_PARA, "rootInfo"},
      {"HcclCommInitClusterInfo", [&] { return HcclCommInitClusterInfo(nullptr, 0, &made); },
       HCCL_E_PTR, "clusterInfo"},
      {"HcclCommInitClusterInfo", [&] { return HcclCommInitClusterInfo("x.json", 0, nullptr); },
       HCCL_E_PTR, "comm"},
      {"HcclCommInitClusterInfo",
       [&] { return HcclCommInitClusterInfo(long_path.c_str(), 0, &made); }, HCCL_E_PARA,
       "clusterInfo"},
      {"HcclCommInitClusterInfo", [&] { return HcclCommInitClusterInfo("table.txt", 0, &made); },
       HCCL_E_PARA, "clusterInfo"},
      {"HcclCommInitLauncher", [] { return HcclCommInitLauncher(nullptr); }, HCCL_E_PTR, "comm"},
      {"HcclCommDestroy", [] { return HcclCommDestroy(nullptr); }, HCCL_E_PTR, "comm"},
      {"HcclCommDestroy", [&] { return HcclCommDestroy(&number); }, HCCL_E_PARA, "comm"},
      {"HcclGetRankSize", [&] { return HcclGetRankSize(nullptr, &number); }, HCCL_E_PTR, "comm"},
      {"HcclGetRankSize", [&] { return HcclGetRankSize(&number, &number); }, HCCL_E_PARA, "comm"},
      {"HcclGetRankSize", [&] { return HcclGetRankSize(comm, nullptr); }, HCCL_E_PTR, "rankSize"},
      {"HcclGetRankId", [&] { return HcclGetRankId(nullptr, &number); }, HCCL_E_PTR, "comm"},
      {"HcclGetRankId", [&] { return HcclGetRankId(&number, &number); }, HCCL_E_PARA, "comm"},
      {"HcclGetRankId", [&] { return HcclGetRankId(comm, nullptr); }, HCCL_E_PTR, "rank"},
      {"HcclGetCommName", [&] { return HcclGetCommName(nullptr, name); }, HCCL_E_PTR, "comm"},
      {"HcclGetCommName", [&] { return HcclGetCommName(&number, name); }, HCCL_E_PARA, "comm"},
      {"HcclGetCommName", [&] { return HcclGetCommName(comm, nullptr); }, HCCL_E_PTR, "commName"},
      {"HcclGetCommAsyncError", [&] { return HcclGetCommAsyncError(nullptr, &error); }, HCCL_E_PTR,
       "comm"},
      {"HcclGetCommAsyncError", [&] { return HcclGetCommAsyncError(&number, &error); }, HCCL_E_PARA,
       "comm"},
      {"HcclGetCommAsyncError", [&] { return HcclGetCommAsyncError(comm, nullptr); }, HCCL_E_PTR,
       "asyncError"},
  });
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(number, 7u);
  world.expect_usable();
  // The root info of the failed joins is still good.
  ASSERT_EQ(HcclCommInitRootInfo(1, &info, 0, &made), HCCL_SUCCESS) << HcclGetLastErrorText();
  EXPECT_EQ(HcclCommDestroy(made), HCCL_SUCCESS);
}

TEST(Api, ADestroyedCommunicatorIsRefusedEvenWhenAnotherTookItsPlace) {
  HcclComm gone = nullptr;
  {
    ApiWorld world(1);
    gone = world.comm(0);
  }
  ApiWorld next(1);
  std::uint32_t number = 0;
  float value = 0;
  refuse({
      {"HcclCommDestroy", [&] { return HcclCommDestroy(gone); }, HCCL_E_PARA, "comm"},
      {"HcclGetRankId", [&] { return HcclGetRankId(gone, &number); }, HCCL_E_PARA, "comm"},
      {"HcclBarrier", [&] { return HcclBarrier(gone, nullptr); }, HCCL_E_PARA, "comm"},
      {"HcclBroadcast", [&] { return HcclBroadcast(&value, 1, kType, 0, gone, nullptr); },
       HCCL_E_PARA, "comm is no handle, or was destroyed"},
  });
  next.expect_usable();
}

struct Kind {
  HcclDataType type;
  std::size_t bytes;
  bool reducible;
};

constexpr Kind kKinds[] = {
    {HCCL_DATA_TYPE_INT8, 1, true},     {HCCL_DATA_TYPE_INT16, 2, true},
    {HCCL_DATA_TYPE_INT32, 4, true},    {HCCL_DATA_TYPE_FP16, 2, true},
    {HCCL_DATA_TYPE_FP32, 4, true},     {HCCL_DATA_TYPE_INT64, 8, true},
    {HCCL_DATA_TYPE_UINT64, 8, true},   {HCCL_DATA_TYPE_UINT8, 1, true},
    {HCCL_DATA_TYPE_UINT16, 2, true},   {HCCL_DATA_TYPE_UINT32, 4, true},
    {HCCL_DATA_TYPE_FP64, 8, true},     {HCCL_DATA_TYPE_BFP16, 2, true},
    {HCCL_DATA_TYPE_INT128, 16, true},  {HCCL_DATA_TYPE_HIF8, 1, false},
    {HCCL_DATA_TYPE_FP8E4M3, 1, true},  {HCCL_DATA_TYPE_FP8E5M2, 1, true},
    {HCCL_DATA_TYPE_FP8E8M0, 1, false},
};

using Bytes = std::vector<unsigned char>;

Bytes filled(std::size_t bytes, int seed) {
  Bytes data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>(seed * 37 + i);
  return data;
}

Bytes block(const Bytes& all, std::size_t number, std::size_t bytes) {
  const auto at = all.begin() + static_cast<std::ptrdiff_t>(number * bytes);
  return Bytes(at, at + static_cast<std::ptrdiff_t>(bytes));
}

TEST(Api, AllTypesMoveThroughAllOperations) {
  constexpr int kSize = 3;
  constexpr std::size_t kCount = 5;
  ApiWorld world(kSize);
  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    for (const Kind& kind : kKinds) {
      SCOPED_TRACE(kind.type);
      const std::size_t bytes = kCount * kind.bytes;
      const std::size_t all = bytes * kSize;
      Bytes in = filled(bytes, rank), out(all);
      ASSERT_EQ(HcclAllGather(in.data(), out.data(), kCount, kind.type, comm, nullptr), 0);
      for (int r = 0; r < kSize; ++r)
        EXPECT_EQ(block(out, static_cast<std::size_t>(r), bytes), filled(bytes, r));
      // In place.
      Bytes whole(all);
      std::copy(in.begin(), in.end(), whole.begin() + static_cast<std::ptrdiff_t>(rank * bytes));
      ASSERT_EQ(HcclAllGather(whole.data() + rank * bytes, whole.data(), kCount, kind.type, comm,
                              nullptr),
                0);
      EXPECT_EQ(whole, out);

      Bytes cast = filled(bytes, rank);
      ASSERT_EQ(HcclBroadcast(cast.data(), kCount, kind.type, 2, comm, nullptr), 0);
      EXPECT_EQ(cast, filled(bytes, 2));

      Bytes part(bytes), source = filled(all, 11);
      ASSERT_EQ(HcclScatter(rank == 1 ? source.data() : nullptr, part.data(), kCount, kind.type, 1,
                            comm, nullptr),
                0);
      EXPECT_EQ(part, block(source, static_cast<std::size_t>(rank), bytes));

      Bytes mine = filled(all, 20 + rank), theirs(all);
      ASSERT_EQ(HcclAlltoAll(mine.data(), kCount, kind.type, theirs.data(), kCount, kind.type, comm,
                             nullptr),
                0);
      for (int r = 0; r < kSize; ++r) {
        EXPECT_EQ(block(theirs, static_cast<std::size_t>(r), bytes),
                  block(filled(all, 20 + r), static_cast<std::size_t>(rank), bytes));
      }

      if (rank == 0) {
        ASSERT_EQ(HcclSend(in.data(), kCount, kind.type, 2, comm, nullptr), 0);
      } else if (rank == 2) {
        ASSERT_EQ(HcclRecv(part.data(), kCount, kind.type, 0, comm, nullptr), 0);
        EXPECT_EQ(part, filled(bytes, 0));
      }
      ASSERT_EQ(HcclBarrier(comm, nullptr), 0);
    }
  });
}

// Equal inputs: max and min give them back, whatever the type. (Sums are tested with numbers.)
TEST(Api, AllTypesReduce) {
  constexpr int kSize = 3;
  constexpr std::size_t kCount = 6;
  ApiWorld world(kSize);
  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    for (const Kind& kind : kKinds) {
      SCOPED_TRACE(kind.type);
      const std::size_t bytes = kCount * kind.bytes;
      Bytes in(bytes, 0x11), out(bytes);
      for (const auto op : {HCCL_REDUCE_MAX, HCCL_REDUCE_MIN}) {
        std::fill(out.begin(), out.end(), 0);
        const HcclResult result =
            HcclAllReduce(in.data(), out.data(), kCount, kind.type, op, comm, nullptr);
        if (!kind.reducible) {
          EXPECT_EQ(result, HCCL_E_NOT_SUPPORT);
          continue;
        }
        ASSERT_EQ(result, HCCL_SUCCESS) << HcclGetLastErrorText();
        EXPECT_EQ(out, in);
        Bytes part(bytes / kSize);
        ASSERT_EQ(
            HcclReduceScatter(in.data(), part.data(), kCount / kSize, kind.type, op, comm, nullptr),
            0);
        EXPECT_EQ(part, Bytes(bytes / kSize, 0x11));
        Bytes root_only(bytes);
        ASSERT_EQ(HcclReduce(in.data(), rank == 1 ? root_only.data() : nullptr, kCount, kind.type,
                             op, 1, comm, nullptr),
                  0);
        EXPECT_EQ(root_only, rank == 1 ? in : Bytes(bytes));
      }
    }
  });
}

TEST(Api, TheFourReductions) {
  ApiWorld world(3);
  const std::map<HcclReduceOp, float> expected = {
      {HCCL_REDUCE_SUM, 9}, {HCCL_REDUCE_PROD, 24}, {HCCL_REDUCE_MAX, 4}, {HCCL_REDUCE_MIN, 2}};
  world.on_all([&](int rank) {
    for (const auto& [op, value] : expected) {
      float number = static_cast<float>(rank + 2);
      ASSERT_EQ(HcclAllReduce(&number, &number, 1, kType, op, world.comm(rank), nullptr), 0);
      EXPECT_EQ(number, value) << op;
    }
  });
}

TEST(Api, ZeroCountsNeedNoBuffersAndWriteNothing) {
  ApiWorld world(2);
  world.on_all([&](int rank) {
    const HcclComm c = world.comm(rank);
    void* const none = nullptr;
    const auto sum = HCCL_REDUCE_SUM;
    EXPECT_EQ(HcclAllReduce(none, none, 0, kType, sum, c, nullptr), 0);
    EXPECT_EQ(HcclBroadcast(none, 0, kType, 0, c, nullptr), 0);
    EXPECT_EQ(HcclReduceScatter(none, none, 0, kType, sum, c, nullptr), 0);
    EXPECT_EQ(HcclAllGather(none, none, 0, kType, c, nullptr), 0);
    EXPECT_EQ(HcclReduce(none, none, 0, kType, sum, 1, c, nullptr), 0);
    EXPECT_EQ(HcclScatter(none, none, 0, kType, 1, c, nullptr), 0);
    EXPECT_EQ(HcclAlltoAll(none, 0, kType, none, 0, kType, c, nullptr), 0);
    if (rank == 0) {
      EXPECT_EQ(HcclSend(none, 0, kType, 1, c, nullptr), 0);
    } else {
      EXPECT_EQ(HcclRecv(none, 0, kType, 0, c, nullptr), 0);
    }
    float kept = 5;
    EXPECT_EQ(HcclAllReduce(&kept, &kept, 0, kType, sum, c, nullptr), 0);
    EXPECT_EQ(kept, 5);
  });
  world.expect_usable();
}

TEST(Api, NamesSizesAndRanks) {
  ApiWorld world(3), other(1);
  std::vector<std::string> names(3);
  world.on_all([&](int rank) {
    std::uint32_t number = 99;
    EXPECT_EQ(HcclGetRankSize(world.comm(rank), &number), 0);
    EXPECT_EQ(number, 3u);
    EXPECT_EQ(HcclGetRankId(world.comm(rank), &number), 0);
    EXPECT_EQ(number, static_cast<std::uint32_t>(rank));
    char name[COMM_NAME_MAX_LENGTH];
    std::memset(name, '#', sizeof name);
    EXPECT_EQ(HcclGetCommName(world.comm(rank), name), 0);
    ASSERT_NE(std::memchr(name, '\0', sizeof name), nullptr);
    names[static_cast<std::size_t>(rank)] = name;
  });
  EXPECT_FALSE(names[0].empty());
  EXPECT_EQ(names[0], names[1]);
  EXPECT_EQ(names[0], names[2]);
  char name[COMM_NAME_MAX_LENGTH];
  EXPECT_EQ(HcclGetCommName(other.comm(0), name), 0);
  EXPECT_NE(names[0], name);
}

TEST(Api, WordsOfAllCodes) {
  EXPECT_STREQ(HcclGetErrorString(HCCL_SUCCESS), "no error");
  std::map<std::string, int> seen;
  for (int code = 0; code <= HCCL_E_OOM; ++code) {
    const std::string words = HcclGetErrorString(static_cast<HcclResult>(code));
    EXPECT_EQ(words.find("unknown"), std::string::npos) << code;
    EXPECT_EQ(seen.count(words), 0u) << code << " and " << seen[words] << " are both " << words;
    seen[words] = code;
    for (const char c : words) EXPECT_TRUE((c >= 'a' && c <= 'z') || c == ' ') << words;
  }
  for (const int code : {25, 100, 1041}) {
    EXPECT_STREQ(HcclGetErrorString(static_cast<HcclResult>(code)), "unknown err") << code;
  }
  for (const int code : {-1, 1042, 99999}) {
    EXPECT_STREQ(HcclGetErrorString(static_cast<HcclResult>(code)), "unknown error") << code;
  }
}

TEST(Api, TheLastErrorIsTheThreadsOwn) {
  EXPECT_EQ(HcclCommDestroy(nullptr), HCCL_E_PTR);
  const std::string mine = HcclGetLastErrorText();
  std::thread([] {
    EXPECT_STREQ(HcclGetLastErrorText(), "");
    EXPECT_EQ(HcclGetRootInfo(nullptr), HCCL_E_PTR);
  }).join();
  EXPECT_EQ(HcclGetLastErrorText(), mine);
}

// A mismatch: both ranks hear of it, and it stays.
TEST(Api, AnAsynchronousErrorStaysAndAnotherCommunicatorWorksOn) {
  ApiWorld world(2), other(2);
  world.on_all([&](int rank) {
    std::vector<float> data(8);
    const HcclComm comm = world.comm(rank);
    EXPECT_EQ(HcclAllReduce(data.data(), data.data(), rank == 0 ? 4 : 8, kType, HCCL_REDUCE_SUM,
                            comm, nullptr),
              HCCL_E_PARA);
    EXPECT_NE(std::string(HcclGetLastErrorText()).find("count"), std::string::npos)
        << HcclGetLastErrorText();
    HcclResult error = HCCL_SUCCESS;
    EXPECT_EQ(HcclGetCommAsyncError(comm, &error), HCCL_SUCCESS);
    EXPECT_EQ(error, HCCL_E_REMOTE);
    EXPECT_EQ(HcclBarrier(comm, nullptr), HCCL_E_PARA);
  });
  other.expect_usable();
}

TEST(Api, TwoCommunicatorsByTwoThreadsEach) {
  constexpr int kRounds = 200;
  ApiWorld one(2), two(2);
  const auto sums = [](ApiWorld& world, int rank, int factor) {
    for (int i = 0; i < kRounds; ++i) {
      std::int64_t value = static_cast<std::int64_t>(factor) * i + rank;
      ASSERT_EQ(HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_INT64, HCCL_REDUCE_SUM,
                              world.comm(rank), nullptr),
                HCCL_SUCCESS)
          << HcclGetLastErrorText();
      ASSERT_EQ(value, 2 * static_cast<std::int64_t>(factor) * i + 1);
    }
  };
  std::thread first([&] { one.on_all([&](int rank) { sums(one, rank, 3); }); });
  std::thread second([&] { two.on_all([&](int rank) { sums(two, rank, 1000); }); });
  first.join();
  second.join();
}

TEST(Api, ABusyCommunicatorIsNotDestroyed) {
  ApiWorld world(2);
  std::vector<float> data(2, 1);
  const HcclFusionGradient gradient = {"weights", data.data(), data.size()};
  HcclFusionOptions options{};
  options.dataType = kType;
  options.hcomParallel = 1;
  HcclFusion fusion = nullptr;
  ASSERT_EQ(HcclFusionCreate(world.comm(0), &gradient, 1, &options, &fusion), HCCL_SUCCESS);
  // From here on rank 0 reduces, or waits to, and rank 1 does not come.
  ASSERT_EQ(HcclFusionReady(fusion, 0), HCCL_SUCCESS);
  EXPECT_EQ(HcclCommDestroy(world.comm(0)), HCCL_E_AGAIN);
  EXPECT_NE(std::string(HcclGetLastErrorText()).find("comm is in use"), std::string::npos);
  std::vector<float> other(2, 2);
  const HcclFusionGradient others = {"weights", other.data(), other.size()};
  HcclFusion second = nullptr;
  ASSERT_EQ(HcclFusionCreate(world.comm(1), &others, 1, &options, &second), HCCL_SUCCESS);
  ASSERT_EQ(HcclFusionReady(second, 0), HCCL_SUCCESS);
  // A first iteration runs when all ranks wait.
  std::thread waiting([&] { EXPECT_EQ(HcclFusionWait(second), HCCL_SUCCESS); });
  EXPECT_EQ(HcclFusionWait(fusion), HCCL_SUCCESS) << HcclGetLastErrorText();
  waiting.join();
  EXPECT_EQ(data, std::vector<float>(2, 3));
  EXPECT_EQ(HcclFusionDestroy(fusion), HCCL_SUCCESS);
  EXPECT_EQ(HcclFusionDestroy(second), HCCL_SUCCESS);
  world.expect_usable();
}

}  // namespace
}  // namespace hccl::testing
