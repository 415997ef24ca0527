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
#include "tests/support/calls.h"

namespace hccl::testing::api_test {
namespace {

constexpr std::uint64_t kTooMany = 0x80000000ull;
const auto kType = HCCL_DATA_TYPE_FP32;

// One operation with valid arguments; each case makes one of them wrong.
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
  const char* in;  // names of the arguments; null: the operation has no such argument
  const char* out;
  const char* count;
  const char* op;
  const char* rank;
  const char* type = "dataType";
};

// Operations on rank 0 of two: a peer must be rank 1, a root may be rank 0.
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
  for (const Operation& each : operations()) {
    const auto refuse = [&](HcclResult expected, const char* argument,
                            const std::function<void(Arguments&)>& spoil) {
      if (argument == nullptr) return;
      Arguments arguments{in.data(), out.data()};
      arguments.comm = world.comm(0);
      if (each.rank != nullptr && std::strstr(each.rank, "Rank")) arguments.rank = 1;
      spoil(arguments);
      REFUSED_BY(each.name, each.call(arguments), expected, argument);
    };
    refuse(HCCL_E_PTR, each.in, [](Arguments& a) { a.in = nullptr; });
    refuse(HCCL_E_PTR, each.out, [](Arguments& a) { a.out = nullptr; });
    refuse(HCCL_E_PARA, each.count, [](Arguments& a) { a.count = kTooMany; });
    refuse(HCCL_E_PARA, each.count, [](Arguments& a) { a.count = ~std::uint64_t{0}; });
    for (const int type : {13, 18, 255}) {
      refuse(HCCL_E_NOT_SUPPORT, each.type,
             [=](Arguments& a) { a.type = static_cast<HcclDataType>(type); });
    }
    for (const int op : {4, 255}) {
      refuse(HCCL_E_NOT_SUPPORT, each.op,
             [=](Arguments& a) { a.op = static_cast<HcclReduceOp>(op); });
    }
    for (const auto type : {HCCL_DATA_TYPE_HIF8, HCCL_DATA_TYPE_FP8E8M0}) {
      if (each.op == nullptr) continue;  // these types can be moved, but not summed
      refuse(HCCL_E_NOT_SUPPORT, each.type, [=](Arguments& a) { a.type = type; });
    }
    refuse(HCCL_E_PARA, each.rank, [](Arguments& a) { a.rank = 2; });
    refuse(HCCL_E_PARA, each.rank, [](Arguments& a) { a.rank = 0xFFFFFFFF; });
    refuse(HCCL_E_PTR, "comm", [](Arguments& a) { a.comm = nullptr; });
    refuse(HCCL_E_PARA, "comm", [&](Arguments& a) { a.comm = in.data(); });
    refuse(HCCL_E_PARA, "comm", [&](Arguments& a) { a.comm = reinterpret_cast<HcclComm>(1); });
    refuse(HCCL_E_PARA, "stream", [&](Arguments& a) { a.stream = in.data(); });
  }
  world.expect_usable();
}

TEST(Api, WhatOnlySomeOperationsForbid) {
  ApiWorld world(2);
  const HcclComm comm = world.comm(0);
  std::vector<float> a(16), b(16);
  REFUSED(HcclSend(a.data(), 1, kType, 0, comm, nullptr), HCCL_E_PARA, "destRank");
  REFUSED(HcclRecv(a.data(), 1, kType, 0, comm, nullptr), HCCL_E_PARA, "srcRank");
  REFUSED(HcclAlltoAll(a.data(), 1, kType, a.data(), 1, kType, comm, nullptr), HCCL_E_PARA,
          "recvBuf");
  REFUSED(HcclAlltoAll(a.data(), 1, kType, b.data(), 1, HCCL_DATA_TYPE_INT32, comm, nullptr),
          HCCL_E_PARA, "recvType");
  REFUSED(HcclAlltoAll(a.data(), 1, kType, b.data(), 2, kType, comm, nullptr), HCCL_E_PARA,
          "recvCount");
  REFUSED(HcclBarrier(nullptr, nullptr), HCCL_E_PTR, "comm");
  REFUSED(HcclBarrier(a.data(), nullptr), HCCL_E_PARA, "comm");
  REFUSED(HcclBarrier(comm, a.data()), HCCL_E_PARA, "stream");
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
  OK(HcclGetRootInfo(&info));
  HcclRootInfo garbage;
  std::memset(garbage.internal, 'x', sizeof garbage.internal);
  HcclRootInfo zeros;
  std::memset(zeros.internal, 0, sizeof zeros.internal);
  HcclRootInfo flipped = info;
  flipped.internal[70] = static_cast<char>(flipped.internal[70] ^ 0x55);
  const std::string long_path(5000, 'a');
  REFUSED(HcclGetRootInfo(nullptr), HCCL_E_PTR, "rootInfo");
  REFUSED(HcclCommInitRootInfo(1, nullptr, 0, &made), HCCL_E_PTR, "rootInfo");
  REFUSED(HcclCommInitRootInfo(1, &info, 0, nullptr), HCCL_E_PTR, "comm");
  REFUSED(HcclCommInitRootInfo(0, &info, 0, &made), HCCL_E_PARA, "nRanks");
  REFUSED(HcclCommInitRootInfo(0xFFFFFFFF, &info, 0, &made), HCCL_E_PARA, "nRanks");
  REFUSED(HcclCommInitRootInfo(2, &info, 2, &made), HCCL_E_PARA, "rank");
  REFUSED(HcclCommInitRootInfo(1, &garbage, 0, &made), HCCL_E_PARA, "rootInfo");
  REFUSED(HcclCommInitRootInfo(1, &zeros, 0, &made), HCCL_E_PARA, "rootInfo");
  REFUSED(HcclCommInitRootInfo(1, &flipped, 0, &made), HCCL_E_PARA, "rootInfo");
  REFUSED(HcclCommInitClusterInfo(nullptr, 0, &made), HCCL_E_PTR, "clusterInfo");
  REFUSED(HcclCommInitClusterInfo("x.json", 0, nullptr), HCCL_E_PTR, "comm");
  REFUSED(HcclCommInitClusterInfo(long_path.c_str(), 0, &made), HCCL_E_PARA, "clusterInfo");
  REFUSED(HcclCommInitClusterInfo("table.txt", 0, &made), HCCL_E_PARA, "clusterInfo");
  REFUSED(HcclCommInitLauncher(nullptr), HCCL_E_PTR, "comm");
  REFUSED(HcclCommDestroy(nullptr), HCCL_E_PTR, "comm");
  REFUSED(HcclCommDestroy(&number), HCCL_E_PARA, "comm");
  REFUSED(HcclGetRankSize(nullptr, &number), HCCL_E_PTR, "comm");
  REFUSED(HcclGetRankSize(&number, &number), HCCL_E_PARA, "comm");
  REFUSED(HcclGetRankSize(comm, nullptr), HCCL_E_PTR, "rankSize");
  REFUSED(HcclGetRankId(nullptr, &number), HCCL_E_PTR, "comm");
  REFUSED(HcclGetRankId(&number, &number), HCCL_E_PARA, "comm");
  REFUSED(HcclGetRankId(comm, nullptr), HCCL_E_PTR, "rank");
  REFUSED(HcclGetCommName(nullptr, name), HCCL_E_PTR, "comm");
  REFUSED(HcclGetCommName(&number, name), HCCL_E_PARA, "comm");
  REFUSED(HcclGetCommName(comm, nullptr), HCCL_E_PTR, "commName");
  REFUSED(HcclGetCommAsyncError(nullptr, &error), HCCL_E_PTR, "comm");
  REFUSED(HcclGetCommAsyncError(&number, &error), HCCL_E_PARA, "comm");
  REFUSED(HcclGetCommAsyncError(comm, nullptr), HCCL_E_PTR, "asyncError");
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(number, 7u);
  world.expect_usable();
  // A failed join leaves the root info valid.
  OK(HcclCommInitRootInfo(1, &info, 0, &made));
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
  REFUSED(HcclCommDestroy(gone), HCCL_E_PARA, "comm");
  REFUSED(HcclGetRankId(gone, &number), HCCL_E_PARA, "comm");
  REFUSED(HcclBarrier(gone, nullptr), HCCL_E_PARA, "comm");
  REFUSED(HcclBroadcast(&value, 1, kType, 0, gone, nullptr), HCCL_E_PARA,
          "comm is no handle, or was destroyed");
  next.expect_usable();
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
  EXPECT_STREQ(HcclGetErrorString(HCCL_E_PARA), "parameter error");
  EXPECT_STREQ(HcclGetErrorString(HCCL_E_SUSPENDING), "error communicator suspending");
  EXPECT_STREQ(HcclGetErrorString(HCCL_E_OOM), "out of memory");
  std::map<std::string, int> seen;
  for (int code = 0; code <= HCCL_E_OOM; ++code) {
    const std::string words = HcclGetErrorString(static_cast<HcclResult>(code));
    EXPECT_EQ(words.find("unknown"), std::string::npos) << code;
    EXPECT_EQ(seen.count(words), 0u) << code << " and " << seen[words] << " are both " << words;
    seen[words] = code;
    for (const char c : words) EXPECT_TRUE((c >= 'a' && c <= 'z') || c == ' ') << words;
  }
  for (const int code : {25, 26, 100, 1000, 1040, 1041}) {
    EXPECT_STREQ(HcclGetErrorString(static_cast<HcclResult>(code)), "unknown err") << code;
  }
  for (const int code : {-1, 1042, 1043, 0x7fffffff}) {
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

TEST(Api, TwoCommunicatorsByTwoThreadsEach) {
  constexpr int kRounds = 200;
  ApiWorld one(2), two(2);
  const auto sums = [](ApiWorld& world, int rank, int factor) {
    for (int i = 0; i < kRounds; ++i) {
      std::int64_t value = static_cast<std::int64_t>(factor) * i + rank;
      OK(HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_INT64, HCCL_REDUCE_SUM, world.comm(rank),
                       nullptr));
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
  OK(HcclFusionCreate(world.comm(0), &gradient, 1, &options, &fusion));
  // From here on rank 0 reduces or waits to reduce; rank 1 has not begun.
  OK(HcclFusionReady(fusion, 0));
  SAYS(HcclCommDestroy(world.comm(0)), HCCL_E_AGAIN, "comm is in use");
  std::vector<float> other(2, 2);
  const HcclFusionGradient others = {"weights", other.data(), other.size()};
  HcclFusion second = nullptr;
  OK(HcclFusionCreate(world.comm(1), &others, 1, &options, &second));
  OK(HcclFusionReady(second, 0));
  // The first iteration begins when all ranks wait.
  std::thread waiting([&] { EXPECT_EQ(HcclFusionWait(second), HCCL_SUCCESS); });
  EXPECT_EQ(HcclFusionWait(fusion), HCCL_SUCCESS) << HcclGetLastErrorText();
  waiting.join();
  EXPECT_EQ(data, std::vector<float>(2, 3));
  EXPECT_EQ(HcclFusionDestroy(fusion), HCCL_SUCCESS);
  EXPECT_EQ(HcclFusionDestroy(second), HCCL_SUCCESS);
  world.expect_usable();
}

}  // namespace
}  // namespace hccl::testing::api_test
