// HCOM as programs use it. A process has one world, so every rank here is a process, forked from a
// test that never calls the library itself.
#include "hccl/hcom.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_fusion.h"
#include "tests/support/calls.h"
#include "tests/support/folder.h"

namespace hccl::testing {
namespace {

using Indices = std::vector<std::uint32_t>;

// ---- processes ----

void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

// A free port; the library tries ports from this one on.
int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  ::close(fd);
  return std::min<int>(ntohs(address.sin_port), 65000);
}

// Runs body(rank) in `size` processes and fails unless all of them end well.
void processes(int size, const std::function<void(int)>& body) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::alarm(100);  // ends a rank that hangs
      body(rank);
      std::exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    ASSERT_EQ(::waitpid(children[static_cast<std::size_t>(rank)], &status, 0),
              children[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(status, 0) << "rank " << rank;
  }
}

// Starts processes with torchrun's variables.
void torchrun(int size, const std::function<void(int)>& body) {
  const std::string port = std::to_string(free_port());
  const std::string job = "hcom_test " + std::to_string(::getpid()) + " " + port;
  processes(size, [&](int rank) {
    set("RANK", std::to_string(rank));
    set("WORLD_SIZE", std::to_string(size));
    set("LOCAL_RANK", std::to_string(rank));
    set("LOCAL_WORLD_SIZE", std::to_string(size));
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", port);
    set("TORCHELASTIC_RUN_ID", job);
    body(rank);
  });
}

// A rank table that no other run of this test uses.
std::string table(int size) {
  static int tables = 0;
  std::string devices;
  for (int r = 0; r < size; ++r) {
    devices += std::string(r == 0 ? "" : ",") + R"({"device_id": ")" + std::to_string(r) +
               R"(", "rank_id": ")" + std::to_string(r) + R"("})";
  }
  return R"({"status": "completed", "version": "1.0", "server_count": "1", "server_list": [
    {"server_id": "test-)" +
         std::to_string(::getpid()) + "-" + std::to_string(++tables) + R"(", "device": [)" +
         devices + "]}]}";
}

void base_port() { set("HCCL_IF_BASE_PORT", std::to_string(free_port())); }

// ---- queries of every rank ----

using Query = HcclResult (*)(const char*, std::uint32_t*);

std::uint32_t ask(Query query, const char* group) {
  std::uint32_t answer = 0xDEAD;
  EXPECT_EQ(query(group, &answer), HCCL_SUCCESS) << HcclGetLastErrorText();
  return answer;
}

void expect_group(const char* group, const Indices& world_ranks, std::uint32_t rank) {
  const auto size = static_cast<std::uint32_t>(world_ranks.size());
  EXPECT_TRUE(HcomFindGroup(group));
  EXPECT_EQ(ask(HcomGetRankSize, group), size);
  EXPECT_EQ(ask(HcomGetRankId, group), rank);
  EXPECT_EQ(ask(HcomGetLocalRankSize, group), size);
  EXPECT_EQ(ask(HcomGetLocalRankId, group), rank);
  std::uint32_t answer = 0;
  for (std::uint32_t r = 0; r < size; ++r) {
    OK(HcomGetWorldRankFromGroupRank(group, r, &answer));
    EXPECT_EQ(answer, world_ranks[r]);
    OK(HcomGetGroupRankFromWorldRank(world_ranks[r], group, &answer));
    EXPECT_EQ(answer, r);
  }
  answer = 77;
  SAYS(HcomGetWorldRankFromGroupRank(group, size, &answer), HCCL_E_PARA, "groupRank");
  SAYS(HcomGetGroupRankFromWorldRank(99, group, &answer), HCCL_E_PARA, "worldRank");
  SAYS(HcomGetGroupRankFromWorldRank(0xFFFFFFFF, group, &answer), HCCL_E_PARA, "worldRank");
  EXPECT_EQ(answer, 77u);
}

void expect_no_group(const char* group) {
  EXPECT_FALSE(HcomFindGroup(group));
  std::uint32_t answer = 77;
  HcclComm comm = nullptr;
  float value = 0;
  const auto type = HCCL_DATA_TYPE_FP32;
  const auto sum = HCCL_REDUCE_SUM;
  const auto missing = HCCL_E_NOT_FOUND;
  for (const Query query :
       {HcomGetRankSize, HcomGetRankId, HcomGetLocalRankSize, HcomGetLocalRankId}) {
    SAYS(query(group, &answer), missing, "does not exist");
  }
  EXPECT_EQ(HcomGetWorldRankFromGroupRank(group, 0, &answer), missing);
  EXPECT_EQ(HcomGetGroupRankFromWorldRank(0, group, &answer), missing);
  EXPECT_EQ(HcomGetCommHandleByGroup(group, &comm), missing);
  EXPECT_EQ(HcomAllReduce("t", &value, &value, 1, type, sum, group, nullptr), missing);
  EXPECT_EQ(HcomBroadcast("t", &value, 1, type, 0, group, nullptr), missing);
  EXPECT_EQ(HcomReduceScatter("t", &value, &value, 1, type, sum, group, nullptr), missing);
  EXPECT_EQ(HcomAllGather("t", &value, &value, 1, type, group, nullptr), missing);
  EXPECT_EQ(HcomReduce("t", &value, &value, 1, type, sum, 0, group, nullptr), missing);
  EXPECT_EQ(HcomSend("t", &value, 1, type, 0, 0, group, nullptr), missing);
  EXPECT_EQ(HcomReceive("t", &value, 1, type, 0, 0, group, nullptr), missing);
  const std::uint64_t one[] = {1}, zero[] = {0};
  EXPECT_EQ(HcomReduceScatterV("t", &value, one, zero, &value, 1, type, sum, group, nullptr),
            missing);
  EXPECT_EQ(HcomAllGatherV("t", &value, 1, &value, one, zero, type, group, nullptr), missing);
  EXPECT_EQ(HcomAlltoAllV(&value, one, zero, type, &value, one, zero, type, group, nullptr, "t"),
            missing);
  EXPECT_EQ(HcomAlltoAllVC(&value, one, type, &value, type, group, nullptr, "t"), missing);
  EXPECT_EQ(HcomAllToAll(&value, 1, type, &value, 1, type, group, nullptr, "t"), missing);
  EXPECT_EQ(answer, 77u);
  EXPECT_EQ(comm, nullptr);
}

bool initialized() {
  bool answer = false;
  EXPECT_EQ(HcomGetInitStatus(&answer), HCCL_SUCCESS);
  return answer;
}

HcclResult create(const char* group, Indices ranks) {
  return HcomCreateGroup(group, static_cast<std::uint32_t>(ranks.size()), ranks.data());
}

// The sum of world ranks, by an allreduce in the group.
std::int32_t rank_sum(const char* group, int world_rank) {
  std::int32_t value = world_rank;
  EXPECT_EQ(HcomAllReduce("sum", &value, &value, 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, group,
                          nullptr),
            HCCL_SUCCESS)
      << HcclGetLastErrorText();
  return value;
}

const std::vector<float> kEqualSizes(160, 64.0F);
const std::vector<float> kTimes(160, 1.0F);

Indices strategy(const char* group, bool* configured, GradSplitForceMode force = FORCE_NONE,
                 const std::vector<float>& sizes = kEqualSizes,
                 OriginalGraphShapeType shape = KNOWN_SHAPE) {
  std::vector<float> bytes = sizes, times(sizes.size(), 1.0F);
  const model_feature feature = {"model", static_cast<std::uint32_t>(sizes.size()), bytes.data(),
                                 times.data()};
  std::uint32_t* list = nullptr;
  std::uint32_t length = 0;
  bool dummy = false;
  const HcclResult result = HcomGetSplitStrategy(
      group, &feature, &list, &length, configured == nullptr ? &dummy : configured, force, shape);
  EXPECT_EQ(result, HCCL_SUCCESS) << HcclGetLastErrorText();
  const Indices all(list, list + length);
  HcomFreeSplitStrategy(list);
  return all;
}

// ---- groups ----

TEST(Hcom, GroupsOfALaunchedWorld) {
  torchrun(4, [](int rank) {
    const auto me = static_cast<std::uint32_t>(rank);
    // Calls before there is a world.
    EXPECT_FALSE(initialized());
    expect_no_group(nullptr);
    expect_no_group(HCCL_WORLD_GROUP);
    OK(create("early", {3, 1, 0}));
    SAYS(create("early", {3, 1, 0}), HCCL_E_PARA, "exists");
    const std::string own = "own" + std::to_string(rank);
    OK(create(own.c_str(), {me}));
    OK(create("dropped", {0, 1, 2, 3}));
    OK(HcomDestroyGroup("dropped"));
    expect_no_group("early");

    OK(HcomInitByLauncher());
    EXPECT_TRUE(initialized());
    SAYS(HcomInitByLauncher(), HCCL_E_UNAVAIL, "HcomDestroy");
    SAYS(HcomInitByString("{}", "0"), HCCL_E_UNAVAIL, "HcomDestroy");
    SAYS(HcomInitByFile("none.json", "0"), HCCL_E_UNAVAIL, "HcomDestroy");
    expect_group(nullptr, {0, 1, 2, 3}, me);
    expect_group(HCCL_WORLD_GROUP, {0, 1, 2, 3}, me);
    expect_group(own.c_str(), {me}, 0);
    expect_no_group("dropped");
    if (rank == 2) {
      expect_no_group("early");
    } else {
      expect_group("early", {0, 1, 3}, rank == 3 ? 2 : me);
      EXPECT_EQ(rank_sum("early", rank), 4);
    }

    // Calls in the world.
    if (rank >= 2) {
      OK(create("late", {3, 2}));
      expect_group("late", {2, 3}, me - 2);
      EXPECT_EQ(rank_sum("late", rank), 5);
    } else if (rank == 1) {
      SAYS(create("late", {3, 2}), HCCL_E_NOT_FOUND, "rank 1");
      expect_no_group("late");
    }
    EXPECT_EQ(rank_sum(nullptr, rank), 6);

    // A name can be used again with other members.
    if (rank >= 2) {
      OK(HcomDestroyGroup("late"));
    }
    SAYS(HcomDestroyGroup("late"), HCCL_E_NOT_FOUND, "late");
    for (int life = 0; life < 2; ++life) {
      OK(create("late", {2, 0, 3, 1}));
      expect_group("late", {0, 1, 2, 3}, me);
      EXPECT_EQ(rank_sum("late", rank), 6);
      OK(HcomDestroyGroup("late"));
    }

    const std::uint32_t shares_of = 2;
    const float halves[] = {50, 50};
    OK(HcomSetGradFusionBySize(nullptr, shares_of, halves));
    bool by_default = true;
    EXPECT_EQ(strategy(nullptr, &by_default), (Indices{79, 159}));
    EXPECT_FALSE(by_default);

    OK(HcomDestroy());
    EXPECT_FALSE(initialized());
    for (const char* group : {"early", own.c_str(), HCCL_WORLD_GROUP}) expect_no_group(group);
    EXPECT_EQ(strategy(nullptr, &by_default), (Indices{153, 159}));
    EXPECT_TRUE(by_default);
    EXPECT_EQ(HcomDestroy(), HCCL_E_UNAVAIL);

    // Joins a second time.
    OK(HcomInitByLauncher());
    expect_group(nullptr, {0, 1, 2, 3}, me);
    expect_no_group("early");
    EXPECT_EQ(rank_sum(nullptr, rank), 6);
    OK(HcomDestroy());
  });
}

TEST(Hcom, EveryWrongArgumentOfAGroup) {
  torchrun(2, [](int rank) {
    OK(HcomInitByLauncher());
    const std::string longest(127, 'g'), too_long(128, 'g');
    std::uint32_t ids[] = {0, 1};
    SAYS(HcomCreateGroup(nullptr, 2, ids), HCCL_E_PTR, "group");
    SAYS(HcomCreateGroup("g", 2, nullptr), HCCL_E_PTR, "rankIds");
    SAYS(HcomCreateGroup("", 2, ids), HCCL_E_PARA, "group");
    SAYS(HcomCreateGroup(too_long.c_str(), 2, ids), HCCL_E_PARA, "group");
    SAYS(HcomCreateGroup("g", 0, ids), HCCL_E_PARA, "rankNum");
    SAYS(HcomCreateGroup("g", 0xFFFFFFFF, ids), HCCL_E_PARA, "rankNum");
    SAYS(create("g", {0, 1, 2}), HCCL_E_PARA, "rankNum");
    SAYS(create("g", {0, 2}), HCCL_E_PARA, "rankIds has 2");
    SAYS(create("g", {0, 0xFFFFFFFF}), HCCL_E_PARA, "rankIds has 4294967295");
    SAYS(create("g", {1, 1}), HCCL_E_PARA, "rankIds has 1 twice");
    SAYS(create("g", {rank == 0 ? 1u : 0u}), HCCL_E_NOT_FOUND, "rankIds");
    SAYS(create(HCCL_WORLD_GROUP, {0, 1}), HCCL_E_PARA, "world");
    SAYS(HcomDestroyGroup(nullptr), HCCL_E_PTR, "group");
    SAYS(HcomDestroyGroup(""), HCCL_E_PARA, "group");
    SAYS(HcomDestroyGroup(too_long.c_str()), HCCL_E_PARA, "group");
    SAYS(HcomDestroyGroup(HCCL_WORLD_GROUP), HCCL_E_PARA, "HcomDestroy");
    SAYS(HcomDestroyGroup("nobody"), HCCL_E_NOT_FOUND, "nobody");
    EXPECT_FALSE(HcomFindGroup("g"));
    EXPECT_FALSE(HcomFindGroup(""));
    EXPECT_FALSE(HcomFindGroup(too_long.c_str()));

    OK(create(longest.c_str(), {1, 0}));
    EXPECT_EQ(rank_sum(longest.c_str(), rank), 1);
    SAYS(create(longest.c_str(), {0, 1}), HCCL_E_PARA, "exists");
    std::uint32_t answer = 0;
    HcclComm comm = nullptr;
    for (const Query query :
         {HcomGetRankSize, HcomGetRankId, HcomGetLocalRankSize, HcomGetLocalRankId}) {
      SAYS(query(nullptr, nullptr), HCCL_E_PTR, "null");
      SAYS(query("", &answer), HCCL_E_PARA, "group");
      SAYS(query(too_long.c_str(), &answer), HCCL_E_PARA, "group");
    }
    SAYS(HcomGetWorldRankFromGroupRank(nullptr, 0, nullptr), HCCL_E_PTR, "worldRank");
    SAYS(HcomGetGroupRankFromWorldRank(0, nullptr, nullptr), HCCL_E_PTR, "groupRank");
    SAYS(HcomGetCommHandleByGroup(nullptr, nullptr), HCCL_E_PTR, "comm");
    SAYS(HcomGetCommHandleByGroup("", &comm), HCCL_E_PARA, "group");
    SAYS(HcomGetInitStatus(nullptr), HCCL_E_PTR, "initialized");
    EXPECT_EQ(rank_sum(nullptr, rank), 1);
    OK(HcomDestroy());
  });
}

TEST(Hcom, OperationsOnAGroup) {
  torchrun(3, [](int rank) {
    OK(HcomInitByLauncher());
    OK(create("all", {2, 1, 0}));
    const auto type = HCCL_DATA_TYPE_INT32;
    const auto sum = HCCL_REDUCE_SUM;
    using Numbers = std::vector<std::int32_t>;
    const std::string longest(255, 't'), too_long(256, 't');
    Numbers mine = {rank, rank + 10, rank + 20}, out(3);
    OK(HcomAllReduce(longest.c_str(), mine.data(), out.data(), 3, type, sum, "all", nullptr));
    EXPECT_EQ(out, (Numbers{3, 33, 63}));
    OK(HcomReduceScatter("t", mine.data(), out.data(), 1, type, sum, "all", nullptr));
    EXPECT_EQ(out[0], 3 + 30 * rank);
    OK(HcomAllGather("t", mine.data(), out.data(), 1, type, "all", nullptr));
    EXPECT_EQ(out, (Numbers{0, 1, 2}));
    Numbers cast = mine;
    OK(HcomBroadcast("t", cast.data(), 3, type, 1, "all", nullptr));
    EXPECT_EQ(cast, (Numbers{1, 11, 21}));
    OK(HcomReduce("t", mine.data(), rank == 2 ? out.data() : nullptr, 3, type, sum, 2, "all",
                  nullptr));
    if (rank == 2) {
      EXPECT_EQ(out, (Numbers{3, 33, 63}));
    }
    if (rank == 0) {
      OK(HcomSend("t", mine.data(), 3, type, 2, 7, "all", nullptr));
    }
    if (rank == 2) {
      OK(HcomReceive("t", out.data(), 3, type, 0, 7, "all", nullptr));
      EXPECT_EQ(out, (Numbers{0, 10, 20}));
    }
    // Blocks of one, two and three elements; each element of block b is 10 * rank + b.
    const std::vector<std::uint64_t> counts = {1, 2, 3}, places = {0, 1, 3};
    const auto own = static_cast<std::uint64_t>(rank) + 1;
    Numbers blocks(6), part(own), gathered(6);
    for (std::size_t i = 0; i < 6; ++i) {
      blocks[i] = 10 * rank + (i < 1 ? 0 : i < 3 ? 1 : 2);
    }
    OK(HcomReduceScatterV("t", blocks.data(), counts.data(), places.data(), part.data(), own, type,
                          sum, "all", nullptr));
    EXPECT_EQ(part, Numbers(own, 30 + 3 * rank));
    OK(HcomAllGatherV("t", part.data(), own, gathered.data(), counts.data(), places.data(), type,
                      "all", nullptr));
    EXPECT_EQ(gathered, (Numbers{30, 33, 33, 36, 36, 36}));
    // Sends block r to rank r.
    const std::vector<std::uint64_t> received(3, own), received_at = {0, own, 2 * own};
    Numbers swapped(3 * own), expected;
    for (int r = 0; r < 3; ++r) expected.insert(expected.end(), own, 10 * r + rank);
    OK(HcomAlltoAllV(blocks.data(), counts.data(), places.data(), type, swapped.data(),
                     received.data(), received_at.data(), type, "all", nullptr, "t"));
    EXPECT_EQ(swapped, expected);
    const std::vector<std::uint64_t> matrix = {1, 2, 3, 1, 2, 3, 1, 2, 3};
    std::fill(swapped.begin(), swapped.end(), 0);
    OK(HcomAlltoAllVC(blocks.data(), matrix.data(), type, swapped.data(), type, "all", nullptr,
                      "t"));
    EXPECT_EQ(swapped, expected);
    OK(HcomAllToAll(mine.data(), 1, type, out.data(), 1, type, "all", nullptr, "t"));
    EXPECT_EQ(out, (Numbers{10 * rank, 10 * rank + 1, 10 * rank + 2}));
    // The tag is checked wherever it is in the list of arguments, the other arguments by the rules
    // of hccl.h.
    SAYS(HcomReduceScatterV(nullptr, blocks.data(), counts.data(), places.data(), part.data(), own,
                            type, sum, "all", nullptr),
         HCCL_E_PTR, "tag");
    SAYS(HcomAllGatherV("", part.data(), own, gathered.data(), counts.data(), places.data(), type,
                        "all", nullptr),
         HCCL_E_PARA, "tag");
    SAYS(HcomAlltoAllV(blocks.data(), counts.data(), places.data(), type, swapped.data(),
                       received.data(), received_at.data(), type, "all", nullptr, nullptr),
         HCCL_E_PTR, "tag");
    SAYS(HcomAlltoAllVC(blocks.data(), matrix.data(), type, swapped.data(), type, "all", nullptr,
                        too_long.c_str()),
         HCCL_E_PARA, "tag");
    SAYS(HcomAllToAll(mine.data(), 1, type, out.data(), 1, type, "all", nullptr, ""), HCCL_E_PARA,
         "tag");
    SAYS(HcomReduceScatterV("t", blocks.data(), nullptr, places.data(), part.data(), own, type, sum,
                            "all", nullptr),
         HCCL_E_PTR, "sendCounts");
    SAYS(HcomAllGatherV("t", part.data(), own + 1, gathered.data(), counts.data(), places.data(),
                        type, "all", nullptr),
         HCCL_E_PARA, "sendCount");
    SAYS(HcomAlltoAllV(blocks.data(), counts.data(), places.data(), type, blocks.data(),
                       received.data(), received_at.data(), type, "all", nullptr, "t"),
         HCCL_E_PARA, "recvBuf");
    SAYS(HcomAlltoAllVC(blocks.data(), nullptr, type, swapped.data(), type, "all", nullptr, "t"),
         HCCL_E_PTR, "sendCountMatrix");
    SAYS(HcomAllToAll(mine.data(), 1, type, out.data(), 2, type, "all", nullptr, "t"), HCCL_E_PARA,
         "recvCount");
    const auto reduce = [&](const char* tag, void* in) {
      return HcomAllReduce(tag, in, out.data(), 3, type, sum, "all", nullptr);
    };
    SAYS(reduce(nullptr, mine.data()), HCCL_E_PTR, "tag");
    SAYS(reduce("", mine.data()), HCCL_E_PARA, "tag");
    SAYS(reduce(too_long.c_str(), mine.data()), HCCL_E_PARA, "tag");
    SAYS(reduce("t", nullptr), HCCL_E_PTR, "sendBuf");
    SAYS(HcomBroadcast("t", cast.data(), 3, type, 3, "all", nullptr), HCCL_E_PARA, "root");
    SAYS(HcomSend("t", cast.data(), 3, type, static_cast<std::uint32_t>(rank), 0, "all", nullptr),
         HCCL_E_PARA, "destRank");

    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
    Numbers later = mine;
    OK(HcomAllReduce("t", later.data(), later.data(), 3, type, sum, "all", stream));
    OK(HcomAllToAll(later.data(), 1, type, out.data(), 1, type, "all", stream, "t"));
    ASSERT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
    EXPECT_EQ(later, (Numbers{3, 33, 63}));
    EXPECT_EQ(out, Numbers(3, 3 + 30 * rank));
    ASSERT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);

    HcclComm comm = nullptr;
    OK(HcomGetCommHandleByGroup("all", &comm));
    OK(HcclAllReduce(mine.data(), out.data(), 3, type, sum, comm, nullptr));
    EXPECT_EQ(out, (Numbers{3, 33, 63}));
    char name[COMM_NAME_MAX_LENGTH];
    OK(HcclGetCommName(comm, name));
    EXPECT_STREQ(name, "all");
    SAYS(HcclCommDestroy(comm), HCCL_E_PARA, "HcomDestroyGroup");
    OK(HcclBarrier(comm, nullptr));
    OK(HcomDestroyGroup("all"));
    SAYS(HcclBarrier(comm, nullptr), HCCL_E_PARA, "comm");
    OK(HcomGetCommHandleByGroup(nullptr, &comm));
    OK(HcclGetCommName(comm, name));
    EXPECT_STREQ(name, HCCL_WORLD_GROUP);
    SAYS(HcclCommDestroy(comm), HCCL_E_PARA, "HcomDestroy");
    OK(HcomDestroy());
    SAYS(HcclBarrier(comm, nullptr), HCCL_E_PARA, "comm");
  });
}

// The data of another message never counts as the expected data.
TEST(Hcom, SendsAndReceivesWithDifferentSrTagsAreRefused) {
  torchrun(2, [](int rank) {
    OK(HcomInitByLauncher());
    const auto type = HCCL_DATA_TYPE_INT32;
    std::int32_t value = rank;
    const auto exchange = [&](std::uint32_t tag) {
      return rank == 0 ? HcomSend("t", &value, 1, type, 1, tag, HCCL_WORLD_GROUP, nullptr)
                       : HcomReceive("t", &value, 1, type, 0, tag, HCCL_WORLD_GROUP, nullptr);
    };
    for (const std::uint32_t tag : {0u, 7u, 0xFFFFFFFFu}) OK(exchange(tag));
    EXPECT_EQ(value, 0);
    SAYS(exchange(rank == 0 ? 1 : 2), HCCL_E_PARA, "srTag 1");
    OK(HcomDestroy());
  });
}

TEST(Hcom, AGroupInUseIsNotDestroyed) {
  torchrun(2, [](int rank) {
    OK(HcomInitByLauncher());
    OK(create("busy", {0, 1}));
    HcclComm comm = nullptr;
    OK(HcomGetCommHandleByGroup("busy", &comm));
    float value = 1;
    const HcclFusionGradient gradient = {"weight", &value, 1};
    HcclFusionOptions options{};
    options.dataType = HCCL_DATA_TYPE_FP32;
    options.hcomParallel = 1;
    HcclFusion fusion = nullptr;
    OK(HcclFusionCreate(comm, &gradient, 1, &options, &fusion));
    if (rank == 0) {
      // Runs until rank 1 joins in, after the barrier.
      OK(HcclFusionReady(fusion, 0));
      SAYS(HcomDestroyGroup("busy"), HCCL_E_AGAIN, "in use");
      SAYS(HcomDestroy(), HCCL_E_AGAIN, "busy");
      EXPECT_TRUE(HcomFindGroup("busy"));
      EXPECT_TRUE(initialized());
    }
    EXPECT_EQ(rank_sum(nullptr, rank), 1);
    if (rank == 1) {
      OK(HcclFusionReady(fusion, 0));
    }
    OK(HcclFusionWait(fusion));
    EXPECT_EQ(value, 2);
    OK(HcclFusionDestroy(fusion));
    OK(HcomDestroyGroup("busy"));
    OK(HcomDestroy());
  });
}

// ---- ways in ----

TEST(Hcom, ARankTableOfOne) {
  const std::string text = table(1);
  processes(1, [&](int) {
    base_port();
    SAYS(HcomInitByString(nullptr, "0"), HCCL_E_PTR, "rankTable");
    SAYS(HcomInitByString(text.c_str(), nullptr), HCCL_E_PTR, "identify");
    SAYS(HcomInitByString("", "0"), HCCL_E_PARA, "rankTable");
    SAYS(HcomInitByString(text.c_str(), ""), HCCL_E_PARA, "identify");
    SAYS(HcomInitByString(text.c_str(), std::string(128, '1').c_str()), HCCL_E_PARA, "identify");
    SAYS(HcomInitByString("[1, 2", "0"), HCCL_E_PARA, "");
    EXPECT_NE(HcomInitByString(text.c_str(), "1"), HCCL_SUCCESS);  // the table has only rank 0
    EXPECT_NE(HcomInitByString(text.c_str(), "zero"), HCCL_SUCCESS);
    SAYS(HcomInitByFile(nullptr, "0"), HCCL_E_PTR, "rankTablePath");
    SAYS(HcomInitByFile("x.json", nullptr), HCCL_E_PTR, "identify");
    SAYS(HcomInitByFile("table.txt", "0"), HCCL_E_PARA, "table.txt");
    SAYS(HcomInitByComm(nullptr), HCCL_E_PTR, "comm");
    SAYS(HcomInitByComm(const_cast<char*>(text.data())), HCCL_E_PARA, "comm");
    EXPECT_FALSE(initialized());

    OK(HcomInitByString(text.c_str(), "0"));
    expect_group(nullptr, {0}, 0);
    OK(create("g", {0}));
    expect_group("g", {0}, 0);
    SAYS(HcomInitByString(text.c_str(), "0"), HCCL_E_UNAVAIL, "HcomDestroy");
    OK(HcomDestroy());
    OK(HcomInitByString(text.c_str(), "0"));
    expect_no_group("g");
    OK(HcomDestroy());
  });
}

TEST(Hcom, AGroupAskedForBeforehandThatCannotBe) {
  const std::string text = table(1);
  processes(1, [&](int) {
    base_port();
    OK(create("good", {0}));
    OK(create("too far", {0, 5}));
    for (int attempt = 0; attempt < 2; ++attempt) {
      SAYS(HcomInitByString(text.c_str(), "0"), HCCL_E_PARA, "too far");
      EXPECT_FALSE(initialized());
      expect_no_group("good");
    }
    OK(HcomDestroyGroup("too far"));
    OK(HcomInitByString(text.c_str(), "0"));
    expect_group("good", {0}, 0);
    OK(HcomDestroy());
  });
}

TEST(Hcom, AnExistingCommunicatorAsTheWorld) {
  processes(1, [](int) {
    HcclRootInfo info;
    HcclComm comm = nullptr, handle = nullptr;
    OK(HcclGetRootInfo(&info));
    OK(HcclCommInitRootInfo(1, &info, 0, &comm));
    OK(HcomInitByComm(comm));
    SAYS(HcomInitByComm(comm), HCCL_E_UNAVAIL, "HcomDestroy");
    expect_group(nullptr, {0}, 0);
    OK(create("g", {0}));
    OK(HcomGetCommHandleByGroup(nullptr, &handle));
    EXPECT_EQ(handle, comm);
    SAYS(HcclCommDestroy(comm), HCCL_E_PARA, "HcomDestroy");
    OK(HcomDestroy());
    OK(HcclBarrier(comm, nullptr));  // the communicator still belongs to the caller
    OK(HcclCommDestroy(comm));
  });
}

// The root still stores on which groups of the first world ranks waited. The second world's groups
// of the same name are new ones.
TEST(Hcom, AWorldThatIsAdoptedTwiceMakesNewGroups) {
  const std::string text = table(2);
  const Folder folder;
  const std::string path = folder.write("ranks.json", text);
  const std::string port = std::to_string(free_port());
  processes(2, [&](int rank) {
    set("HCCL_IF_BASE_PORT", port);
    HcclComm comm = nullptr;
    OK(HcclCommInitClusterInfo(path.c_str(), static_cast<std::uint32_t>(rank), &comm));
    const auto late = [rank](int who) {
      if (rank == who) std::this_thread::sleep_for(std::chrono::milliseconds(800));
    };
    float value = 1;
    OK(HcomInitByComm(comm));
    OK(create("g", {0, 1}));
    late(1);
    OK(HcomAllReduce("first", &value, &value, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, "g",
                     nullptr));
    OK(HcomDestroy());
    OK(HcomInitByComm(comm));
    OK(create("g", {0, 1}));
    late(0);
    OK(HcomBroadcast("second", &value, 1, HCCL_DATA_TYPE_FP32, 0, "g", nullptr));
    EXPECT_EQ(value, 2);
    OK(HcomDestroy());
    OK(HcclCommDestroy(comm));
  });
}

TEST(Hcom, ARankTableOfFourByEveryDoor) {
  const std::string text = table(4);
  const Folder folder;
  const std::string path = folder.write("ranks.json", text);
  const std::string port = std::to_string(free_port());
  processes(4, [&](int rank) {
    set("HCCL_IF_BASE_PORT", port);
    set("RANK_TABLE_FILE", path);
    const std::string identify = std::to_string(rank);
    set("RANK_ID", identify);
    const auto me = static_cast<std::uint32_t>(rank);

    HcclComm comm = nullptr, second = nullptr;
    const auto expect_world = [&](HcclComm each) {
      std::uint32_t number = 0;
      OK(HcclGetRankSize(each, &number));
      EXPECT_EQ(number, 4u);
      OK(HcclGetRankId(each, &number));
      EXPECT_EQ(number, me);
      std::int32_t value = rank;
      OK(HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, each, nullptr));
      EXPECT_EQ(value, 6);
    };
    OK(HcclCommInitLauncher(&comm));
    expect_world(comm);
    OK(HcclCommInitLauncher(&second));  // two worlds exist at once
    expect_world(second);
    OK(HcclCommDestroy(comm));
    OK(HcclCommDestroy(second));

    OK(HcclCommInitClusterInfo(path.c_str(), me, &comm));
    expect_world(comm);
    char name[COMM_NAME_MAX_LENGTH];
    OK(HcclGetCommName(comm, name));
    EXPECT_STREQ(name, HCCL_WORLD_GROUP);
    SAYS(HcclCommInitClusterInfo(path.c_str(), me, &second), HCCL_E_UNAVAIL, "joined already");
    OK(HcclCommDestroy(comm));
    OK(HcclCommInitClusterInfo(path.c_str(), me, &comm));
    expect_world(comm);
    OK(HcclCommDestroy(comm));
    SAYS(HcclCommInitClusterInfo(path.c_str(), 4, &comm), HCCL_E_PARA, "clusterInfo");
    SAYS(HcclCommInitClusterInfo(path.c_str(), 4, &comm), HCCL_E_PARA, "clusterInfo");

    OK(HcomInitByFile(path.c_str(), identify.c_str()));
    expect_group(nullptr, {0, 1, 2, 3}, me);
    EXPECT_EQ(rank_sum(nullptr, rank), 6);
    OK(HcomDestroy());
    OK(HcomInitByString(text.c_str(), identify.c_str()));
    EXPECT_EQ(rank_sum(nullptr, rank), 6);
    OK(HcomDestroy());
    OK(HcomInitByLauncher());
    EXPECT_EQ(rank_sum(nullptr, rank), 6);
    OK(HcomDestroy());
  });
}

// ---- split strategies ----

// Gradient sizes in bytes from HCCL's own tests; split_test.cc has the others.
const std::vector<float> k30 = {
    4096,    8257536, 8704,    8704,    4194304, 2560, 2560,    9437184, 2560, 2560,
    4194304, 8704,    8704,    4194304, 2560,    2560, 9437184, 2560,    2560, 4194304,
    8704,    8704,    8388608, 4194304, 2560,    2560, 9437184, 2560,    2560, 2097152};

struct BySize {
  std::vector<float> sizes;
  std::vector<float> shares;  // empty: the default
  Indices expected;
};

TEST(Hcom, SplitStrategiesOfModels) {
  const std::vector<BySize> cases = {
      {k30, {20, 40, 40}, {6, 18, 29}},
      {k30, {}, {25, 29}},
      {{5}, {50, 50}, {0}},
      {{5}, {}, {0}},
      {kEqualSizes, {60, 20, 20}, {95, 127, 159}},
      {{8, 8, 8, 8}, {100, 0}, {3}},
  };
  processes(1, [&](int) {
    for (std::size_t c = 0; c < cases.size(); ++c) {
      SCOPED_TRACE(c);
      const BySize& each = cases[c];
      const std::string group = "case" + std::to_string(c);
      if (!each.shares.empty()) {
        OK(HcomSetGradFusionBySize(group.c_str(), static_cast<std::uint32_t>(each.shares.size()),
                                   each.shares.data()));
      }
      bool by_default = each.shares.empty() ? false : true;
      EXPECT_EQ(strategy(group.c_str(), &by_default, FORCE_NONE, each.sizes), each.expected);
      EXPECT_EQ(by_default, each.shares.empty());
    }
  });
}

TEST(Hcom, WhichSettingApplies) {
  processes(1, [](int) {
    const Indices split = {20, 100, 159}, other = {9, 159};
    const float halves[] = {50, 50};
    bool by_default = false;
    OK(HcomSetGradFusionByIndex("g", 3, split.data()));
    EXPECT_EQ(strategy("g", &by_default), split);
    EXPECT_FALSE(by_default);
    // A second call replaces the setting; a refused call does not change it.
    OK(HcomSetGradFusionByIndex("g", 2, other.data()));
    EXPECT_EQ(strategy("g", nullptr), other);
    const Indices falling = {5, 4};
    SAYS(HcomSetGradFusionByIndex("g", 2, falling.data()), HCCL_E_PARA, "ascend");
    EXPECT_EQ(strategy("g", nullptr), other);
    // FORCE_SIZE ignores the indices.
    EXPECT_EQ(strategy("g", &by_default, FORCE_SIZE), (Indices{153, 159}));
    EXPECT_TRUE(by_default);
    OK(HcomSetGradFusionBySize("g", 2, halves));
    EXPECT_EQ(strategy("g", &by_default), (Indices{79, 159}));
    EXPECT_FALSE(by_default);
    EXPECT_EQ(strategy("g", &by_default, FORCE_SIZE), (Indices{79, 159}));
    EXPECT_FALSE(by_default);
    // Neither another group nor the world has a setting.
    EXPECT_EQ(strategy("h", nullptr), (Indices{153, 159}));
    EXPECT_EQ(strategy(nullptr, nullptr), (Indices{153, 159}));
    OK(HcomSetGradFusionByIndex(nullptr, 3, split.data()));
    EXPECT_EQ(strategy(HCCL_WORLD_GROUP, nullptr), split);
    // With unknown shapes, the default allows no segment larger than the buffer less 1 MiB (here
    // 199 MiB).
    const std::vector<float> large(4, 120.0F * 1024 * 1024);
    EXPECT_EQ(strategy("u", &by_default, FORCE_NONE, large, UNKNOWN_SHAPE), (Indices{0, 1, 2, 3}));
    EXPECT_TRUE(by_default);
    // The same limit holds for a user's percentages; each cut then lies at or below its share.
    const float shares[] = {60.0F, 40.0F};
    OK(HcomSetGradFusionBySize("v", 2, shares));
    const std::vector<float> five(5, 99.5F * 1024 * 1024);
    EXPECT_EQ(strategy("v", &by_default, FORCE_NONE, five, UNKNOWN_SHAPE), (Indices{1, 2, 4}));
    EXPECT_FALSE(by_default);
    EXPECT_EQ(strategy("v", &by_default, FORCE_SIZE, five, UNKNOWN_SHAPE), (Indices{1, 2, 4}));
    EXPECT_EQ(strategy("v", &by_default, FORCE_NONE, five), (Indices{2, 4}));
  });
}

TEST(Hcom, WrongArgumentsOfStrategies) {
  processes(1, [](int) {
    const Indices split = {20, 100};
    const float shares[] = {50, 40}, negative[] = {-10, 110};
    const std::string too_long(128, 'g');
    SAYS(HcomSetGradFusionByIndex("g", 2, nullptr), HCCL_E_PTR, "idxList");
    SAYS(HcomSetGradFusionByIndex("g", 0, split.data()), HCCL_E_PARA, "");
    SAYS(HcomSetGradFusionByIndex("", 2, split.data()), HCCL_E_PARA, "group");
    SAYS(HcomSetGradFusionByIndex(too_long.c_str(), 2, split.data()), HCCL_E_PARA, "group");
    SAYS(HcomSetGradFusionBySize("g", 2, nullptr), HCCL_E_PTR, "sizeList");
    SAYS(HcomSetGradFusionBySize("g", 0, shares), HCCL_E_PARA, "");
    SAYS(HcomSetGradFusionBySize("g", 2, shares), HCCL_E_PARA, "100");
    SAYS(HcomSetGradFusionBySize("g", 2, negative), HCCL_E_PARA, "-10");
    SAYS(HcomSetGradFusionBySize("", 2, shares), HCCL_E_PARA, "group");

    std::vector<float> sizes = kEqualSizes, times = kTimes;
    const model_feature good = {"model", 160, sizes.data(), times.data()};
    std::uint32_t* list = nullptr;
    std::uint32_t length = 77;
    bool flag = false;
    const auto ask = [&](const model_feature& feature, const char* group = "g") {
      return HcomGetSplitStrategy(group, &feature, &list, &length, &flag);
    };
    SAYS(HcomGetSplitStrategy("g", nullptr, &list, &length, &flag), HCCL_E_PTR, "feature");
    SAYS(HcomGetSplitStrategy("g", &good, nullptr, &length, &flag), HCCL_E_PTR, "segmentIdxPtr");
    SAYS(HcomGetSplitStrategy("g", &good, &list, nullptr, &flag), HCCL_E_PTR, "len");
    SAYS(HcomGetSplitStrategy("g", &good, &list, &length, nullptr), HCCL_E_PTR, "configured");
    SAYS(ask({nullptr, 160, sizes.data(), times.data()}), HCCL_E_PTR, "model_name");
    SAYS(ask({"m", 160, nullptr, times.data()}), HCCL_E_PTR, "gradient_size");
    SAYS(ask({"m", 160, sizes.data(), nullptr}), HCCL_E_PTR, "gradient_time");
    SAYS(ask({"m", 0, sizes.data(), times.data()}), HCCL_E_PARA, "gradient_num");
    SAYS(ask(good, ""), HCCL_E_PARA, "group");
    SAYS(HcomGetSplitStrategy("g", &good, &list, &length, &flag, FORCE_RESERVED), HCCL_E_PARA,
         "force");
    SAYS(HcomGetSplitStrategy("g", &good, &list, &length, &flag, FORCE_NONE, SHAPE_RESERVED),
         HCCL_E_PARA, "shapeType");
    sizes[3] = -1;
    SAYS(ask(good), HCCL_E_PARA, "gradient_size[3]");
    sizes[3] = std::numeric_limits<float>::quiet_NaN();
    SAYS(ask(good), HCCL_E_PARA, "gradient_size[3]");
    sizes[3] = 64;
    // No gradient has the last index: the library finds that out when it uses the index.
    OK(HcomSetGradFusionByIndex("g", 2, split.data()));
    SAYS(ask(good), HCCL_E_PARA, "159");
    const float halves[] = {50, 50};
    OK(HcomSetGradFusionBySize("g", 2, halves));
    SAYS(ask(good), HCCL_E_PARA, "159");  // as in HCCL
    EXPECT_EQ(strategy("g", nullptr, FORCE_SIZE), (Indices{79, 159}));
    EXPECT_EQ(list, nullptr);
    EXPECT_EQ(length, 77u);
    HcomFreeSplitStrategy(nullptr);
  });
}

// ---- the automatic plan ----

TEST(Hcom, AnAutomaticPlanUsesTheTimesThatCallersPass) {
  torchrun(2, [](int rank) {
    OK(HcomInitByLauncher());
    OK(HcomSetGradFusionAuto(nullptr));
    // Sixteen gradients of 4 MB come at once, and one more comes 50 ms later on the slower rank:
    // the sixteen must not wait for that one.
    std::vector<float> bytes(17, 4194304.0F), times(17, 0.0F);
    times[16] = rank == 0 ? 50e3F : 0.0F;
    const model_feature feature = {"model", 17, bytes.data(), times.data()};
    std::uint32_t* list = nullptr;
    std::uint32_t length = 0;
    bool configured = true;
    OK(HcomGetSplitStrategy(nullptr, &feature, &list, &length, &configured));
    ASSERT_GE(length, 2u);
    EXPECT_EQ(list[length - 2], 15u);
    EXPECT_EQ(list[length - 1], 16u);
    EXPECT_FALSE(configured);
    HcomFreeSplitStrategy(list);
    times[3] = -1;
    SAYS(HcomGetSplitStrategy(nullptr, &feature, &list, &length, &configured), HCCL_E_PARA,
         "gradient_time[3]");
    // There is no group of that name, so no ranks can measure, and HCCL's default applies.
    OK(HcomSetGradFusionAuto("nobody"));
    EXPECT_EQ(strategy("nobody", &configured), (Indices{153, 159}));
    EXPECT_TRUE(configured);
    // The program's setting takes precedence.
    const Indices own = {20, 159};
    OK(HcomSetGradFusionByIndex(nullptr, 2, own.data()));
    EXPECT_EQ(strategy(nullptr, &configured), own);
    EXPECT_EQ(rank_sum(nullptr, rank), 1);
    OK(HcomDestroy());
  });
}

}  // namespace
}  // namespace hccl::testing
