// hccl_framework.h through C, used as a training framework uses it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_framework.h"
#include "tests/support/api_world.h"

namespace hccl::testing {
namespace {

bool text_has(const std::string& words) {
  return std::string(HcclGetLastErrorText()).find(words) != std::string::npos;
}

TEST(Framework, ReductionsAndFactors) {
  ApiWorld world(3);
  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    const std::vector<float> in(6, static_cast<float>(rank + 1));
    std::vector<float> out(6);
    const HcclScale scale{2, 0.5};
    ASSERT_EQ(HcclAllReduce(const_cast<float*>(in.data()), out.data(), 6, HCCL_DATA_TYPE_FP32,
                            HCCL_REDUCE_AVG, comm, nullptr),
              0);
    EXPECT_EQ(out, std::vector<float>(6, 2));
    ASSERT_EQ(HcclAllReduceScaled(const_cast<float*>(in.data()), out.data(), 6, HCCL_DATA_TYPE_FP32,
                                  HCCL_REDUCE_SUM, &scale, comm, nullptr),
              0);
    EXPECT_EQ(out, std::vector<float>(6, 6));
    ASSERT_EQ(HcclReduceScaled(const_cast<float*>(in.data()), out.data(), 6, HCCL_DATA_TYPE_FP32,
                               HCCL_REDUCE_AVG, &scale, 1, comm, nullptr),
              0);
    if (rank == 1) {
      EXPECT_EQ(out, std::vector<float>(6, 2));
    }
    ASSERT_EQ(HcclReduceScatterScaled(const_cast<float*>(in.data()), out.data(), 2,
                                      HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, nullptr, comm, nullptr),
              0);
    EXPECT_EQ(out[1], 6);
    std::uint8_t flag = rank == 1 ? 0 : 4, any = 9;
    ASSERT_EQ(HcclAllReduce(&flag, &any, 1, HCCL_DATA_TYPE_UINT8, HCCL_REDUCE_LOR, comm, nullptr),
              0);
    EXPECT_EQ(any, 1);
    ASSERT_EQ(HcclAllReduce(&flag, &any, 1, HCCL_DATA_TYPE_UINT8, HCCL_REDUCE_BAND, comm, nullptr),
              0);
    EXPECT_EQ(any, 0);
  });
}

TEST(Framework, GroupsOfAWorld) {
  ApiWorld world(3);
  std::vector<std::uint32_t> two = {2, 0};
  for (int life = 0; life < 2; ++life) {  // a name is free again when its group is destroyed
    world.on_all([&](int rank) {
      const HcclComm comm = world.comm(rank);
      HcclComm group = nullptr;
      const auto make = [&](HcclComm of, const char* name, std::uint64_t limit = 0) {
        return HcclCommCreateGroup(of, 2, two.data(), name, limit, &group);
      };
      if (rank == 1) {
        EXPECT_EQ(make(comm, "pair"), HCCL_E_PARA);
        EXPECT_TRUE(text_has("rankIds does not have 1, the caller")) << HcclGetLastErrorText();
        return;
      }
      char name[COMM_NAME_MAX_LENGTH], whole[COMM_NAME_MAX_LENGTH];
      ASSERT_EQ(make(comm, "pair"), HCCL_SUCCESS) << HcclGetLastErrorText();
      EXPECT_EQ(HcclGetCommName(comm, whole), HCCL_SUCCESS);
      EXPECT_EQ(HcclGetCommName(group, name), HCCL_SUCCESS);
      EXPECT_EQ(std::string(name), std::string(whole) + "_pair");
      float mine = static_cast<float>(rank), all[2] = {};
      EXPECT_EQ(HcclAllGather(&mine, all, 1, HCCL_DATA_TYPE_FP32, group, nullptr), HCCL_SUCCESS);
      EXPECT_EQ(all[0], 2);
      EXPECT_EQ(all[1], 0);
      HcclComm first = group;
      EXPECT_EQ(make(comm, "pair"), HCCL_E_PARA);
      EXPECT_TRUE(text_has("exists already")) << HcclGetLastErrorText();
      EXPECT_EQ(make(comm, std::string(COMM_NAME_MAX_LENGTH, 'n').c_str()), HCCL_E_PARA);
      EXPECT_EQ(make(comm, nullptr), HCCL_E_PTR);
      EXPECT_EQ(make(comm, "late", ~std::uint64_t{0}), HCCL_E_PARA);
      EXPECT_EQ(make(first, "deeper"), HCCL_E_PARA);
      EXPECT_EQ(HcclCommCreateGroup(comm, 2, nullptr, "pair", 0, &group), HCCL_E_PTR);
      EXPECT_EQ(HcclCommCreateGroup(comm, 2, two.data(), "pair", 0, nullptr), HCCL_E_PTR);
      EXPECT_EQ(HcclCommDestroy(first), HCCL_SUCCESS);
    });
  }
  world.expect_usable();
}

TEST(Framework, GroupsWhoseMembersGiveThemNamesOfTheirOwn) {
  ApiWorld world(3);
  const std::uint32_t all[] = {2, 1, 0}, two[] = {2, 0};
  for (int life = 0; life < 2; ++life) {
    world.on_all([&](int rank) {
      const HcclComm comm = world.comm(rank);
      char whole[COMM_NAME_MAX_LENGTH];
      EXPECT_EQ(HcclGetCommName(comm, whole), HCCL_SUCCESS);
      std::vector<HcclComm> made;
      const auto make = [&](std::span<const std::uint32_t> ranks) {
        HcclComm group = nullptr;
        const std::string own = std::to_string(100 * rank + static_cast<int>(made.size()));
        ASSERT_EQ(HcclCommCreateNextGroup(comm, static_cast<std::uint32_t>(ranks.size()),
                                          ranks.data(), own.c_str(), 0, &group),
                  HCCL_SUCCESS)
            << HcclGetLastErrorText();
        char name[COMM_NAME_MAX_LENGTH];
        EXPECT_EQ(HcclGetCommName(group, name), HCCL_SUCCESS);
        EXPECT_EQ(name, whole + ("_" + own));
        made.push_back(group);
      };
      make(all);
      if (rank != 1) {
        make(two);
        HcclComm none = nullptr;  // refused calls do not count in names
        EXPECT_EQ(HcclCommCreateNextGroup(comm, 2, two, nullptr, 0, &none), HCCL_E_PTR);
        make(two);
      }
      make(all);
      std::vector<HcclComm> order = made;  // the groups' operations may come in any order
      if (rank != 1) std::swap(order[1], order[2]);
      float mine = static_cast<float>(rank), every[3] = {};
      for (std::size_t i = 0; i < order.size(); ++i) {
        EXPECT_EQ(HcclAllGather(&mine, every, 1, HCCL_DATA_TYPE_FP32, order[i], nullptr),
                  HCCL_SUCCESS)
            << HcclGetLastErrorText();
        EXPECT_EQ(every[0], 2);
      }
      for (HcclComm each : made) EXPECT_EQ(HcclCommDestroy(each), HCCL_SUCCESS);
    });
  }
  world.expect_usable();
}

TEST(Framework, AGroupNamesTheRankThatDoesNotCome) {
  ApiWorld world(2);
  const std::uint32_t both[] = {0, 1};
  HcclComm group = nullptr;
  EXPECT_EQ(HcclCommCreateGroup(world.comm(0), 2, both, "alone", 100, &group), HCCL_E_TIMEOUT);
  EXPECT_TRUE(text_has("ranks that did not come: 1")) << HcclGetLastErrorText();
  world.expect_usable();
}

std::size_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// Groups of both ranks of a world.
class IdleGroups : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kBoth[] = {0, 1};

  /// A new group; call end() on both ranks.
  void make(const char* name) {
    world_.on_all([&](int rank) {
      ASSERT_EQ(HcclCommCreateGroup(world_.comm(rank), 2, kBoth, name, 0, &groups_[rank]), 0)
          << HcclGetLastErrorText();
    });
  }
  /// As make(), by a function of HCCL.
  void make_sub_comm(std::uint32_t id) {
    world_.on_all([&](int rank) {
      std::uint32_t both[] = {0, 1};
      HcclCommConfig config;
      HcclCommConfigInit(&config);
      ASSERT_EQ(HcclCreateSubCommConfig(&world_.comm(rank), 2, both, id,
                                        static_cast<std::uint32_t>(rank), &config, &groups_[rank]),
                0)
          << HcclGetLastErrorText();
    });
  }
  void end() {
    for (HcclComm each : groups_) EXPECT_EQ(HcclCommDestroy(each), HCCL_SUCCESS);
  }
  static HcclResult sum(HcclComm comm, std::uint64_t count = 1) {
    std::vector<float> in(count, 1), out(count);
    const HcclResult result = HcclAllReduce(in.data(), out.data(), count, HCCL_DATA_TYPE_FP32,
                                            HCCL_REDUCE_SUM, comm, nullptr);
    if (result == HCCL_SUCCESS) {
      EXPECT_EQ(out, std::vector<float>(count, 2));
    }
    return result;
  }

  ApiWorld world_{2};
  HcclComm groups_[2] = {};
};

TEST_F(IdleGroups, TakeNothingBeforeTheirFirstOperation) {
  world_.expect_usable();
  const std::size_t before = descriptors();
  std::vector<std::array<HcclComm, 2>> made;
  for (int i = 0; i < 40; ++i) {
    if (i % 2 == 0) {
      make(std::to_string(i).c_str());
    } else {
      make_sub_comm(static_cast<std::uint32_t>(i));
    }
    made.push_back({groups_[0], groups_[1]});
  }
  EXPECT_EQ(descriptors(), before);
  std::uint32_t algorithms = 0;
  EXPECT_EQ(HcclCommDescribeAlgorithms(made[7][0], "allreduce", 4, false, nullptr,
                                       sizeof(HcclAlgorithmInfo), &algorithms),
            HCCL_E_AGAIN);
  world_.on_all([&](int rank) {
    EXPECT_EQ(sum(made[7][static_cast<std::size_t>(rank)]), HCCL_SUCCESS);
    EXPECT_EQ(sum(made[7][static_cast<std::size_t>(rank)]), HCCL_SUCCESS);
  });
  EXPECT_GT(descriptors(), before);
  EXPECT_EQ(HcclCommDescribeAlgorithms(made[7][0], "allreduce", 4, false, nullptr,
                                       sizeof(HcclAlgorithmInfo), &algorithms),
            HCCL_SUCCESS);
  for (const auto& each : made) {
    for (HcclComm comm : each) EXPECT_EQ(HcclCommDestroy(comm), HCCL_SUCCESS);
  }
  EXPECT_EQ(descriptors(), before);
}

TEST_F(IdleGroups, TheFirstCallsAreCompared) {
  make("differ");
  world_.on_all([&](int rank) {
    EXPECT_EQ(sum(groups_[rank], rank == 0 ? 3 : 4), HCCL_E_PARA);
    EXPECT_TRUE(text_has("count 3,") && text_has("count 4,")) << HcclGetLastErrorText();
  });
  end();
  make("refuse");
  EXPECT_EQ(HcclCommRefuse(groups_[1], "binding: no tensor"), HCCL_SUCCESS);
  EXPECT_EQ(sum(groups_[0]), HCCL_E_PARA);
  EXPECT_TRUE(text_has("allreduce #1") && text_has("binding: no tensor")) << HcclGetLastErrorText();
  end();
  make("right at last");
  EXPECT_EQ(HcclCommRefuse(groups_[1], "binding: no tensor"), HCCL_SUCCESS);
  world_.on_all([&](int rank) { EXPECT_EQ(sum(groups_[rank]), HCCL_SUCCESS); });
  end();
  world_.expect_usable();
}

TEST_F(IdleGroups, TheFirstCallEndsWithTheGroup) {
  make("late");
  EXPECT_EQ(HcclCommSetTimeout(groups_[0], 300), HCCL_SUCCESS);
  EXPECT_EQ(sum(groups_[0]), HCCL_E_TIMEOUT);
  EXPECT_TRUE(text_has("allreduce #1") && text_has("did not call it (world ranks): 1"))
      << HcclGetLastErrorText();
  EXPECT_EQ(sum(groups_[1]), HCCL_E_TIMEOUT);  // the communicator has failed on all ranks
  end();
  for (const bool used : {false, true}) {
    make(used ? "used" : "unused");
    if (used) world_.on_all([&](int rank) { EXPECT_EQ(sum(groups_[rank]), HCCL_SUCCESS); });
    EXPECT_EQ(HcclCommDestroy(groups_[1]), HCCL_SUCCESS);
    EXPECT_EQ(sum(groups_[0]), HCCL_E_REMOTE);
    EXPECT_TRUE(text_has("rank 1 (") && text_has("has destroyed its communicator"))
        << HcclGetLastErrorText();
    EXPECT_EQ(HcclCommDestroy(groups_[0]), HCCL_SUCCESS);
  }
  make("aborted");
  std::thread waits([&] {
    EXPECT_EQ(sum(groups_[0]), HCCL_E_UNAVAIL);
    EXPECT_TRUE(text_has("no more steps")) << HcclGetLastErrorText();
  });
  EXPECT_EQ(HcclCommAbort(groups_[1], "no more steps"), HCCL_SUCCESS);
  waits.join();
  end();
  world_.expect_usable();
}

TEST(Framework, RefusesWhatATypeDoesNotHave) {
  ApiWorld world(1);
  const HcclComm comm = world.comm(0);
  float real = 1;
  EXPECT_EQ(HcclAllReduce(&real, &real, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_BXOR, comm, nullptr),
            HCCL_E_NOT_SUPPORT);
  EXPECT_TRUE(text_has("fp32 cannot be reduced by bxor")) << HcclGetLastErrorText();
  HcclScale scale{1, NAN};
  const auto run = [&](HcclDataType type, HcclReduceOp op) {
    return HcclAllReduceScaled(&real, &real, 1, type, op, &scale, comm, nullptr);
  };
  EXPECT_EQ(run(HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM), HCCL_E_PARA);
  scale.after = 3;
  EXPECT_EQ(run(HCCL_DATA_TYPE_FP32, HCCL_REDUCE_MAX), HCCL_E_NOT_SUPPORT);
  EXPECT_EQ(run(HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM), HCCL_E_NOT_SUPPORT);
  EXPECT_EQ(run(HCCL_DATA_TYPE_FP32, HCCL_REDUCE_AVG), HCCL_SUCCESS);
  EXPECT_EQ(real, 3);
  std::int32_t five = 5;
  EXPECT_EQ(HcclAllReduce(&five, &five, 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_LAND, comm, nullptr),
            0);
  EXPECT_EQ(five, 1);
}

TEST(Framework, MessagesWithTags) {
  ApiWorld world(2);
  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    const auto peer = static_cast<std::uint32_t>(1 - rank);
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{300000}}) {
      std::vector<char> out(bytes, static_cast<char>(rank)), in(bytes, 9);
      std::atomic<int> called{0};
      const auto done = [](void* arg, HcclResult result) {
        EXPECT_EQ(result, HCCL_SUCCESS);
        ++*static_cast<std::atomic<int>*>(arg);
      };
      HcclRequest got = nullptr, sent = nullptr;
      ASSERT_EQ(HcclIrecv(in.data(), bytes, HCCL_ANY_RANK, -7, comm, done, &called, &got), 0);
      ASSERT_EQ(HcclIsend(out.data(), bytes, peer, -7, comm, nullptr, nullptr, &sent), 0);
      std::uint32_t source = 99;
      ASSERT_EQ(HcclRequestWait(got, 30000, &source), 0) << HcclGetLastErrorText();
      ASSERT_EQ(HcclRequestWait(sent, 0, nullptr), 0);
      EXPECT_EQ(source, peer);
      EXPECT_EQ(in, std::vector<char>(bytes, static_cast<char>(peer)));
      bool over = false;
      EXPECT_EQ(HcclRequestTest(got, &over), 0);
      EXPECT_TRUE(over);
      EXPECT_EQ(HcclRequestFree(got), 0);
      EXPECT_EQ(HcclRequestFree(sent), 0);
      EXPECT_EQ(HcclRequestFree(sent), HCCL_E_PARA);
      EXPECT_EQ(HcclRequestWait(got, 0, nullptr), HCCL_E_PARA);
      while (called != 1) std::this_thread::yield();
    }
    char byte = 0;
    HcclRequest none = nullptr;
    ASSERT_EQ(HcclIrecv(&byte, 1, peer, 1, comm, nullptr, nullptr, &none), 0);
    EXPECT_EQ(HcclRequestWait(none, 20, nullptr), HCCL_E_TIMEOUT);
    EXPECT_TRUE(text_has("tag 1 from rank")) << HcclGetLastErrorText();
    EXPECT_EQ(HcclRequestFree(none), 0);  // a request that is under way goes on without its handle
    EXPECT_EQ(HcclIsend(&byte, 1, 2, 1, comm, nullptr, nullptr, nullptr), HCCL_E_PARA);
    EXPECT_TRUE(text_has("dest")) << HcclGetLastErrorText();
    EXPECT_EQ(HcclIrecv(nullptr, 1, peer, 1, comm, nullptr, nullptr, nullptr), HCCL_E_PTR);
  });
}

// A rank that leaves ends only the messages with that rank: other messages go on.
TEST(Framework, ARankThatLeavesEndsItsMessages) {
  ApiWorld world(3);
  std::atomic<int> ready{0}, told{0};
  const auto until = [](const std::atomic<int>& number, int value) {
    while (number < value) std::this_thread::yield();
  };
  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    char byte = 1;
    if (rank != 0) {
      ASSERT_EQ(HcclIsend(&byte, 1, 0, 3, comm, nullptr, nullptr, nullptr), 0);
      until(ready, 1);
      if (rank == 2) {
        until(told, 1);
        ASSERT_EQ(HcclIsend(&byte, 1, 0, 5, comm, nullptr, nullptr, nullptr), 0);
        until(told, 2);
      }
      EXPECT_EQ(HcclCommDestroy(comm), 0) << HcclGetLastErrorText();
      world.comm(rank) = nullptr;
      return;
    }
    for (const std::uint32_t peer : {1, 2}) {  // opens the connections for messages
      HcclRequest first = nullptr;
      ASSERT_EQ(HcclIrecv(&byte, 1, peer, 3, comm, nullptr, nullptr, &first), 0);
      ASSERT_EQ(HcclRequestWait(first, 30000, nullptr), 0) << HcclGetLastErrorText();
      EXPECT_EQ(HcclRequestFree(first), 0);
    }
    std::vector<char> large(1000000);
    char in = 0, any = 0;
    HcclRequest from_one = nullptr, to_one = nullptr, from_two = nullptr, from_any = nullptr;
    ASSERT_EQ(HcclIrecv(&byte, 1, 1, 4, comm, nullptr, nullptr, &from_one), 0);
    ASSERT_EQ(HcclIsend(large.data(), large.size(), 1, 4, comm, nullptr, nullptr, &to_one), 0);
    ASSERT_EQ(HcclIrecv(&in, 1, 2, 5, comm, nullptr, nullptr, &from_two), 0);
    ASSERT_EQ(HcclIrecv(&any, 1, HCCL_ANY_RANK, 6, comm, nullptr, nullptr, &from_any), 0);
    ++ready;
    for (const HcclRequest each : {from_one, to_one}) {
      const HcclResult result = HcclRequestWait(each, 30000, nullptr);
      EXPECT_TRUE(result != 0 && result != HCCL_E_TIMEOUT) << result;
      EXPECT_TRUE(text_has("rank 1 left")) << HcclGetLastErrorText();
    }
    ++told;
    EXPECT_EQ(HcclRequestWait(from_two, 30000, nullptr), 0) << HcclGetLastErrorText();
    EXPECT_EQ(in, 1);
    bool over = true;
    EXPECT_EQ(HcclRequestTest(from_any, &over), 0);
    EXPECT_FALSE(over);  // rank 2 may still send
    ++told;
    EXPECT_NE(HcclRequestWait(from_any, 30000, nullptr), 0);
    EXPECT_TRUE(text_has("rank 2 left")) << HcclGetLastErrorText();
    for (const HcclRequest each : {from_one, to_one, from_two, from_any}) {
      EXPECT_EQ(HcclRequestFree(each), 0);
    }
  });
}

TEST(Framework, AFailedMessageTellsItsCallbackWhy) {
  ApiWorld world(1);
  char byte = 0;
  std::string text;
  const auto done = [](void* arg, HcclResult result) {
    EXPECT_EQ(result, HCCL_E_UNAVAIL);
    *static_cast<std::string*>(arg) = HcclGetLastErrorText();
  };
  ASSERT_EQ(HcclIrecv(&byte, 1, 0, 1, world.comm(0), done, &text, nullptr), 0);
  ASSERT_EQ(HcclCommAbort(world.comm(0), "enough"), 0);
  EXPECT_NE(text.find("enough"), std::string::npos) << text;
}

// One child only ends, one calls, and one destroys the communicator.
TEST(Framework, AForkedChildIsHarmless) {
  ApiWorld world(2);
  const auto exchange = [&] {
    world.on_all([&](int rank) {  // messages make the library start a thread
      char out = 1, in = 0;
      HcclRequest got = nullptr;
      const auto peer = static_cast<std::uint32_t>(1 - rank);
      ASSERT_EQ(HcclIsend(&out, 1, peer, 0, world.comm(rank), nullptr, nullptr, nullptr), 0);
      ASSERT_EQ(HcclIrecv(&in, 1, peer, 0, world.comm(rank), nullptr, nullptr, &got), 0);
      ASSERT_EQ(HcclRequestWait(got, 30000, nullptr), 0);
      ASSERT_EQ(HcclRequestFree(got), 0);
    });
    world.expect_usable();
  };
  exchange();
  const std::function<bool()> children[] = {
      [] { return true; },
      [&] {
        float value = 100;
        const HcclResult result = HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_FP32,
                                                HCCL_REDUCE_SUM, world.comm(0), nullptr);
        return result == HCCL_E_NOT_SUPPORT && text_has("forked");
      },
      [&] {
        char byte = 0;
        return HcclIrecv(&byte, 1, 1, 0, world.comm(0), nullptr, nullptr, nullptr) ==
               HCCL_E_NOT_SUPPORT;
      },
      [&] { return HcclCommDestroy(world.comm(0)) == HCCL_E_NOT_SUPPORT; },
  };
  for (const auto& body : children) {
    const pid_t child = ::fork();
    if (child == 0) std::exit(body() ? 0 : 1);  // runs destructors of global objects
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    exchange();
  }
}

TEST(Framework, MemoryIsReusedAndShared) {
  ApiWorld world(2);
  world.on_all([&](int rank) {
    void* memory = nullptr;
    constexpr std::uint64_t kCount = 100000;
    ASSERT_EQ(HcclMemAlloc(&memory, kCount * 4), 0);
    auto* const data = static_cast<float*>(memory);
    std::fill(data, data + kCount, static_cast<float>(rank));
    EXPECT_EQ(HcclAllReduce(data, data, kCount, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM,
                            world.comm(rank), nullptr),
              0);
    EXPECT_EQ(data[kCount - 1], 1.0F);
    EXPECT_EQ(HcclMemFree(memory), 0);
  });
  HcclMemInfo info{};
  ASSERT_EQ(HcclMemGetInfo(&info), 0);
  EXPECT_GE(info.cached, 400000u);
  EXPECT_LE(info.cached, info.cacheLimit);
  void* again = nullptr;
  ASSERT_EQ(HcclMemAlloc(&again, 400000), 0);
  HcclMemInfo later{};
  ASSERT_EQ(HcclMemGetInfo(&later), 0);
  EXPECT_EQ(later.reused, info.reused + 1);
  EXPECT_EQ(HcclMemFree(again), 0);
  EXPECT_EQ(HcclMemFree(again), HCCL_E_PARA);
  EXPECT_EQ(HcclMemFree(nullptr), 0);
  EXPECT_EQ(HcclMemTrim(), 0);
  ASSERT_EQ(HcclMemGetInfo(&later), 0);
  EXPECT_EQ(later.cached, 0u);
  EXPECT_EQ(HcclMemAlloc(&again, 0), HCCL_E_PARA);
  EXPECT_EQ(HcclMemAlloc(&again, ~std::size_t{0} / 2), HCCL_E_OOM);
  EXPECT_EQ(HcclMemAlloc(nullptr, 1), HCCL_E_PTR);
}

TEST(Framework, TimeLimits) {
  ApiWorld world(1);
  std::uint64_t limit = 0;
  ASSERT_EQ(HcclCommGetTimeout(world.comm(0), &limit), 0);
  EXPECT_EQ(limit, 1836000u);
  ASSERT_EQ(HcclCommSetTimeout(world.comm(0), 250), 0);
  ASSERT_EQ(HcclCommGetTimeout(world.comm(0), &limit), 0);
  EXPECT_EQ(limit, 250u);
  EXPECT_EQ(HcclCommSetTimeout(world.comm(0), ~std::uint64_t{0}), HCCL_E_PARA);
  EXPECT_EQ(HcclCommSetTimeout(nullptr, 1), HCCL_E_PTR);
}

TEST(Framework, ARefusalAboveTheLibraryIsTold) {
  ApiWorld world(3);
  world.on_all([&](int rank) {
    EXPECT_EQ(HcclCommRefuse(world.comm(rank), "all refuse"), 0);  // no rank gets an error
  });
  world.expect_usable();
  world.on_all([&](int rank) {
    if (rank == 1) {
      EXPECT_EQ(HcclCommRefuse(world.comm(1), "binding: tensor has no elements"), 0);
      return;
    }
    float value = 1;
    EXPECT_EQ(HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM,
                            world.comm(rank), nullptr),
              HCCL_E_PARA);
    EXPECT_TRUE(text_has("allreduce")) << HcclGetLastErrorText();
    EXPECT_TRUE(text_has("rank 1 was refused: binding: tensor has no elements"))
        << HcclGetLastErrorText();
  });
  EXPECT_EQ(HcclCommRefuse(world.comm(0), "after the failure"), 0);
  EXPECT_EQ(HcclCommRefuse(world.comm(0), nullptr), HCCL_E_PTR);
  EXPECT_EQ(HcclCommRefuse(nullptr, "no communicator"), HCCL_E_PTR);
}

}  // namespace
}  // namespace hccl::testing
