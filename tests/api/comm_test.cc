// Communicators as a program sees them: all ranks of a process, sub-communicators, names, states.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "hccl/acl/acl.h"
#include "hccl/hccl_framework.h"
#include "tests/support/api_world.h"
#include "tests/support/calls.h"
#include "tests/support/threads.h"

namespace hccl::testing {
namespace {

std::string name_of(HcclComm comm) {
  char name[COMM_NAME_MAX_LENGTH] = "";
  EXPECT_EQ(HcclGetCommName(comm, name), HCCL_SUCCESS);
  return name;
}

std::uint32_t rank_of(HcclComm comm) {
  std::uint32_t rank = 999;
  EXPECT_EQ(HcclGetRankId(comm, &rank), HCCL_SUCCESS);
  return rank;
}

HcclResult sum(HcclComm comm, std::int32_t* value) {
  return HcclAllReduce(value, value, 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, comm, nullptr);
}

HcclCommConfig named(const char* name) {
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  std::strncpy(config.hcclCommName, name, sizeof config.hcclCommName - 1);
  return config;
}

HcclCommStatus status_of(const std::string& name) {
  HcclCommStatus status = HCCL_COMM_STATUS_RESERVED;
  EXPECT_EQ(HcclCommGetStatus(name.c_str(), &status), HCCL_SUCCESS) << HcclGetLastErrorText();
  return status;
}

// ---- All ranks of one process ----

TEST(CommAll, EveryDeviceIsARank) {
  std::vector<std::int32_t> devices = {2, 0, 3};
  std::vector<HcclComm> comms(devices.size());
  OK(HcclCommInitAll(3, devices.data(), comms.data()));
  on_threads(3, [&](int device) {
    const auto i = static_cast<std::uint32_t>(device);
    EXPECT_EQ(rank_of(comms[i]), i);
    std::uint32_t size = 0;
    OK(HcclGetRankSize(comms[i], &size));
    EXPECT_EQ(size, 3u);
    // All ranks share one name; it gives the communicator of the calling thread's device.
    EXPECT_EQ(aclrtSetDevice(devices[i]), ACL_SUCCESS);
    HcclComm mine = nullptr;
    OK(HcclCommGetHandleWithName(name_of(comms[i]).c_str(), &mine));
    EXPECT_EQ(mine, comms[i]);
    std::int32_t value = device + 1;
    OK(sum(comms[i], &value));
    EXPECT_EQ(value, 6);
    OK(HcclCommDestroy(comms[i]));
  });
}

TEST(CommAll, TwiceAtOnce) {
  std::vector<std::int32_t> devices = {0, 1};
  std::vector<HcclComm> one(2), two(2);
  OK(HcclCommInitAll(2, devices.data(), one.data()));
  OK(HcclCommInitAll(2, devices.data(), two.data()));
  EXPECT_NE(name_of(one[0]), name_of(two[0]));
  for (auto* comms : {&one, &two}) {
    for (HcclComm comm : *comms) EXPECT_EQ(HcclCommDestroy(comm), HCCL_SUCCESS);
  }
}

// ---- Sub-communicators ----

TEST(SubComm, RanksAreInTheOrderGiven) {
  ApiWorld world(4);
  const std::string world_name = name_of(world.comm(0));
  std::vector<std::uint32_t> members = {3, 0, 2};
  world.on_all([&](int rank) {
    HcclComm& comm = world.comm(rank);
    HcclCommConfig config = named("");
    HcclComm sub = &config;
    if (rank == 1) {
      OK(HcclCreateSubCommConfig(&comm, 0, nullptr, 0xFFFFFFFF, 0, nullptr, &sub));
      EXPECT_EQ(sub, nullptr);
      return;
    }
    const std::uint32_t sub_rank = rank == 3 ? 0 : rank == 0 ? 1 : 2;
    OK(HcclCreateSubCommConfig(&comm, 3, members.data(), 17, sub_rank, &config, &sub));
    EXPECT_EQ(rank_of(sub), sub_rank);
    EXPECT_EQ(name_of(sub), world_name + "_sub_17");
    std::int32_t gathered[3] = {};
    std::int32_t mine = 100 + rank;
    EXPECT_EQ(HcclAllGather(&mine, gathered, 1, HCCL_DATA_TYPE_INT32, sub, nullptr), HCCL_SUCCESS);
    EXPECT_EQ(std::vector<std::int32_t>(gathered, gathered + 3),
              (std::vector<std::int32_t>{103, 100, 102}));
    HcclComm deeper = nullptr;
    EXPECT_EQ(HcclCreateSubCommConfig(&sub, 3, members.data(), 1, sub_rank, &config, &deeper),
              HCCL_E_PARA);
    EXPECT_EQ(HcclCommDestroy(sub), HCCL_SUCCESS);
  });
  world.expect_usable();
}

TEST(SubComm, ANameIsGivenOnceAtATime) {
  ApiWorld world(2);
  std::vector<std::uint32_t> members = {0, 1};
  for (int life = 0; life < 3; ++life) {
    world.on_all([&](int rank) {
      HcclCommConfig config = named("pair");
      HcclComm sub = nullptr;
      const auto sub_rank = static_cast<std::uint32_t>(rank);
      OK(HcclCreateSubCommConfig(&world.comm(rank), 2, members.data(), 5, sub_rank, &config, &sub));
      EXPECT_EQ(name_of(sub), "pair");
      HcclComm found = nullptr;
      EXPECT_EQ(HcclCommGetHandleWithName("pair", &found), HCCL_SUCCESS);
      EXPECT_EQ(found, sub);
      std::int32_t value = 1;
      EXPECT_EQ(sum(sub, &value), HCCL_SUCCESS);
      HcclComm second = nullptr;
      for (const std::uint64_t id : {5, 6}) {
        EXPECT_EQ(HcclCreateSubCommConfig(&world.comm(rank), 2, members.data(), id, sub_rank,
                                          &config, &second),
                  HCCL_E_PARA);
        EXPECT_NE(std::strstr(HcclGetLastErrorText(), "\"pair\" exists already"), nullptr)
            << HcclGetLastErrorText();
      }
      EXPECT_EQ(sum(sub, &value), HCCL_SUCCESS);
      EXPECT_EQ(HcclCommDestroy(sub), HCCL_SUCCESS);
    });
    HcclComm found = nullptr;
    EXPECT_EQ(HcclCommGetHandleWithName("pair", &found), HCCL_E_NOT_FOUND);
  }
}

TEST(SubComm, ConfigurationsMustAgree) {
  ApiWorld world(2);
  std::vector<std::uint32_t> members = {0, 1};
  world.on_all([&](int rank) {
    HcclCommConfig config = named("");
    config.hcclBufferSize = rank == 0 ? 3 : 4;
    HcclComm sub = nullptr;
    EXPECT_EQ(HcclCreateSubCommConfig(&world.comm(rank), 2, members.data(), 5,
                                      static_cast<std::uint32_t>(rank), &config, &sub),
              HCCL_E_PARA);
    EXPECT_NE(std::strstr(HcclGetLastErrorText(), "buffsize=4"), nullptr) << HcclGetLastErrorText();
  });
  world.expect_usable();
}

// ---- Names and states ----

TEST(CommState, TheSameNameTwiceIsRefused) {
  HcclCommConfig config = named("mine");
  HcclComm first = nullptr, second = nullptr;
  HcclRootInfo info;
  OK(HcclGetRootInfo(&info));
  EXPECT_NE(std::strspn(info.internal, "0123456789."), 0u) << "the root's address comes first";
  OK(HcclCommInitRootInfoConfig(1, &info, 0, &config, &first));
  EXPECT_EQ(name_of(first), "mine");
  HcclRootInfo other;
  OK(HcclGetRootInfo(&other));
  EXPECT_EQ(HcclCommInitRootInfoConfig(1, &other, 0, &config, &second), HCCL_E_PARA);
  EXPECT_EQ(HcclCommDestroy(first), HCCL_SUCCESS);
  OK(HcclCommInitRootInfoConfig(1, &other, 0, &config, &second));
  EXPECT_EQ(HcclCommDestroy(second), HCCL_SUCCESS);
}

// FlagCX carries exactly 256 bytes of root info.
TEST(CommState, RootInfoIsIn256Bytes) {
  HcclRootInfo made, carried;
  std::memset(made.internal, 'm', sizeof made.internal);
  std::memset(carried.internal, 'c', sizeof carried.internal);
  OK(HcclGetRootInfo(&made));
  EXPECT_EQ(std::string(made.internal + 256, sizeof made.internal - 256),
            std::string(sizeof made.internal - 256, 'm'));
  std::memcpy(carried.internal, made.internal, 256);
  HcclComm comm = nullptr;
  OK(HcclCommInitRootInfo(1, &carried, 0, &comm));
  EXPECT_EQ(HcclCommDestroy(comm), HCCL_SUCCESS);
}

// Calls that succeed do not change the text of the last failure, even if the thread has no device.
TEST(CommErrors, KeepTheTextOfTheLastCallThatFailed) {
  std::thread([] {
    std::uint32_t rank = 0;
    EXPECT_EQ(HcclGetRankId(nullptr, &rank), HCCL_E_PTR);
    const std::string text = HcclGetLastErrorText();
    EXPECT_NE(text.find("HcclGetRankId"), std::string::npos) << text;
    EXPECT_EQ(aclGetRecentErrMsg(), text);
    EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
    HcclRootInfo info;
    HcclComm comm = nullptr;
    OK(HcclGetRootInfo(&info));
    OK(HcclCommInitRootInfo(1, &info, 0, &comm));
    const auto nothing = [](void*) { return HCCL_SUCCESS; };
    OK(HcclSubmit(nothing, comm, true, nullptr, nullptr, nullptr));
    OK(HcclCommDestroy(comm));
    EXPECT_EQ(HcclGetLastErrorText(), text);
    EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
  }).join();
}

TEST(CommState, RefusesOperationsWhileSuspendedAndCarriesOnThen) {
  ApiWorld world(2);
  const std::string name = name_of(world.comm(0));
  EXPECT_EQ(status_of(name), HCCL_COMM_STATUS_READY);
  std::atomic<bool> waiting{false};
  // Rank 1 is in an operation while rank 0 is suspended; the operation ends well after rank 0
  // resumes.
  std::thread peer([&] {
    waiting.store(true);
    std::int32_t value = 10;
    EXPECT_EQ(sum(world.comm(1), &value), HCCL_SUCCESS) << HcclGetLastErrorText();
    EXPECT_EQ(value, 11);
  });
  const HcclComm comm = world.comm(0);
  EXPECT_EQ(HcclCommSuspend(comm), HCCL_SUCCESS);
  EXPECT_EQ(HcclCommSuspend(comm), HCCL_SUCCESS);
  while (!waiting.load()) std::this_thread::yield();
  std::int32_t value = 1;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(sum(comm, &value), HCCL_E_SUSPENDING);
    EXPECT_EQ(HcclSend(&value, 1, HCCL_DATA_TYPE_INT32, 1, comm, nullptr), HCCL_E_SUSPENDING);
    EXPECT_EQ(HcclBarrier(comm, nullptr), HCCL_E_SUSPENDING);
  }
  HcclComm latest = nullptr;
  EXPECT_EQ(HcclCommGetHandleWithName(name.c_str(), &latest), HCCL_SUCCESS);
  EXPECT_EQ(status_of(name), latest == comm ? HCCL_COMM_STATUS_SUSPENDING : HCCL_COMM_STATUS_READY);
  HcclResult error = HCCL_E_INTERNAL;
  EXPECT_EQ(HcclGetCommAsyncError(comm, &error), HCCL_SUCCESS);
  EXPECT_EQ(error, HCCL_SUCCESS);
  EXPECT_EQ(HcclCommResume(comm), HCCL_SUCCESS);
  EXPECT_EQ(sum(comm, &value), HCCL_SUCCESS) << HcclGetLastErrorText();
  EXPECT_EQ(value, 11);
  peer.join();
  EXPECT_EQ(HcclCommResume(comm), HCCL_SUCCESS);
  world.expect_usable();
}

// A refused operation has not begun, so the program may repeat it. Here the communicator is
// suspended while an operation begins that multiplies its inputs in place.
TEST(CommState, ASuspensionLeavesTheInputsOfARefusedOperationAlone) {
  ApiWorld world(1);
  const HcclComm comm = world.comm(0);
  const HcclScale scale{0.5, 1};
  std::vector<float> data(8 << 20);
  for (int i = 0; i < 20; ++i) {
    std::fill(data.begin(), data.end(), 8.F);
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(500 * i));
      EXPECT_EQ(HcclCommSuspend(comm), HCCL_SUCCESS);
    });
    const HcclResult result =
        HcclAllReduceScaled(data.data(), data.data(), data.size(), HCCL_DATA_TYPE_FP32,
                            HCCL_REDUCE_SUM, &scale, comm, nullptr);
    other.join();
    const float expected = result == HCCL_SUCCESS ? 4.F : 8.F;
    EXPECT_TRUE(result == HCCL_SUCCESS || result == HCCL_E_SUSPENDING);
    EXPECT_EQ(std::count(data.begin(), data.end(), expected),
              static_cast<std::ptrdiff_t>(data.size()));
    EXPECT_EQ(HcclCommResume(comm), HCCL_SUCCESS);
  }
}

TEST(CommState, AFailureStaysAndCannotBeResumed) {
  ApiWorld world(2), other(2);
  const std::string name = name_of(world.comm(0));
  world.on_all([&](int rank) {
    std::vector<float> data(8);
    EXPECT_EQ(HcclAllReduce(data.data(), data.data(), rank == 0 ? 4 : 8, HCCL_DATA_TYPE_FP32,
                            HCCL_REDUCE_SUM, world.comm(rank), nullptr),
              HCCL_E_PARA);
    HcclResult error = HCCL_SUCCESS;
    EXPECT_EQ(HcclGetCommAsyncError(world.comm(rank), &error), HCCL_SUCCESS);
    EXPECT_EQ(error, HCCL_E_REMOTE);
    EXPECT_NE(std::strstr(HcclGetLastErrorText(), "count"), nullptr) << HcclGetLastErrorText();
    EXPECT_EQ(HcclCommSuspend(world.comm(rank)), HCCL_SUCCESS);
    EXPECT_EQ(HcclBarrier(world.comm(rank), nullptr), HCCL_E_PARA);
    SAYS(HcclCommResume(world.comm(rank)), HCCL_E_PARA, "cannot be resumed");
  });
  EXPECT_EQ(status_of(name), HCCL_COMM_STATUS_INVALID);
  other.expect_usable();
}

// ---- Callbacks ----

struct Heard {
  std::vector<std::pair<HcclComm, HcclCommStatePhase>> calls;
  std::uint32_t rank_before = 99;
  HcclResult rank_after = HCCL_SUCCESS;
  HcclResult answer = HCCL_SUCCESS;
};

HcclResult hear(HcclComm comm, HcclCommStatePhase phase, void* args) {
  auto& heard = *static_cast<Heard*>(args);
  heard.calls.emplace_back(comm, phase);
  if (phase == HCCL_COMM_STATE_PHASE_DESTROY_PRE) {
    EXPECT_EQ(HcclGetRankId(comm, &heard.rank_before), HCCL_SUCCESS);
  }
  std::uint32_t rank = 0;
  if (phase == HCCL_COMM_STATE_PHASE_DESTROY_POST) heard.rank_after = HcclGetRankId(comm, &rank);
  return heard.answer;
}

HcclResult ignore(HcclComm, HcclCommStatePhase, void*) { return HCCL_SUCCESS; }

TEST(CommCallbacks, HearOfDestroyingAndResuming) {
  Heard heard, replaced;
  OK(HcclCommRegCommStateCallback("test", hear, &replaced));
  OK(HcclCommRegCommStateCallback("test", hear, &heard));
  HcclRootInfo info;
  HcclComm comm = nullptr;
  OK(HcclGetRootInfo(&info));
  OK(HcclCommInitRootInfo(1, &info, 0, &comm));
  EXPECT_EQ(HcclCommSuspend(comm), HCCL_SUCCESS);
  EXPECT_TRUE(heard.calls.empty());
  EXPECT_EQ(HcclCommResume(comm), HCCL_SUCCESS);
  heard.answer = HCCL_E_UNAVAIL;  // the callback before the phase refuses
  SAYS(HcclCommDestroy(comm), HCCL_E_UNAVAIL, "\"test\"");
  EXPECT_EQ(HcclCommResume(comm), HCCL_E_UNAVAIL);
  std::int32_t value = 1;
  EXPECT_EQ(sum(comm, &value), HCCL_SUCCESS);
  heard.answer = HCCL_SUCCESS;
  heard.calls.resize(2);
  EXPECT_EQ(HcclCommDestroy(comm), HCCL_SUCCESS);
  const std::vector<std::pair<HcclComm, HcclCommStatePhase>> expected = {
      {comm, HCCL_COMM_STATE_PHASE_RESUME_PRE},
      {comm, HCCL_COMM_STATE_PHASE_RESUME_POST},
      {comm, HCCL_COMM_STATE_PHASE_DESTROY_PRE},
      {comm, HCCL_COMM_STATE_PHASE_DESTROY_POST}};
  EXPECT_EQ(heard.calls, expected);
  EXPECT_EQ(heard.rank_before, 0u);
  EXPECT_EQ(heard.rank_after, HCCL_E_PARA);
  EXPECT_TRUE(replaced.calls.empty());
  EXPECT_EQ(HcclCommDestroy(comm), HCCL_E_PARA);
  EXPECT_EQ(heard.calls.size(), 4u) << "nothing was destroyed";
  OK(HcclCommRegCommStateCallback("test", ignore, nullptr));
}

// ---- Algorithms ----

// Rank 0's list of algorithms for an allreduce of 1 KiB.
std::vector<HcclAlgorithmInfo> describe(HcclComm comm, bool device_memory) {
  std::uint32_t number = 0;
  std::vector<HcclAlgorithmInfo> infos;
  const auto ask = [&] {
    EXPECT_EQ(HcclCommDescribeAlgorithms(comm, "allreduce", 1024, device_memory, infos.data(),
                                         sizeof(HcclAlgorithmInfo), &number),
              HCCL_SUCCESS)
        << HcclGetLastErrorText();
  };
  ask();
  infos.resize(number);
  ask();
  EXPECT_EQ(number, infos.size());
  return infos;
}

TEST(CommAlgorithms, AreListedWithTheReasonForTheChoice) {
  ApiWorld world(3);
  for (const bool device_memory : {false, true}) {
    std::set<std::string> names;
    int chosen = 0;
    for (const HcclAlgorithmInfo& each : describe(world.comm(0), device_memory)) {
      const std::string name = std::to_string(each.level) + each.name;
      EXPECT_TRUE(names.insert(name).second) << name << " is listed twice";
      EXPECT_LE(each.level, 1u);
      EXPECT_EQ(each.reason[0] != 0, each.chosen || !each.eligible) << name << each.reason;
      EXPECT_TRUE(each.eligible || each.predictedUs == 0) << name;
      if (!each.chosen) continue;
      ++chosen;
      EXPECT_TRUE(each.eligible);
      EXPECT_EQ(each.level, 0u) << "these ranks share memory";
      EXPECT_GT(each.predictedUs, 0);
      EXPECT_LT(each.predictedUs, 1e6);
    }
    EXPECT_EQ(chosen, 1);
    EXPECT_TRUE(names.contains("1ring") && names.contains("0slots"));
  }
  const auto refused = [](const std::vector<HcclAlgorithmInfo>& infos, const std::string& name) {
    const auto at = std::find_if(infos.begin(), infos.end(),
                                 [&](const HcclAlgorithmInfo& each) { return each.name == name; });
    return at != infos.end() && !at->eligible;
  };
  EXPECT_TRUE(refused(describe(world.comm(0), false), "push")) << "it needs device memory";
  EXPECT_FALSE(refused(describe(world.comm(0), true), "push"));
}

TEST(CommAlgorithms, OfAProgramWithLongerEntries) {
  ApiWorld world(2);
  struct Longer {
    HcclAlgorithmInfo known;
    double later;
  };
  const std::vector<HcclAlgorithmInfo> infos = describe(world.comm(0), true);
  std::vector<Longer> longer(infos.size());
  for (Longer& each : longer) each.later = 1;
  auto number = static_cast<std::uint32_t>(longer.size());
  OK(HcclCommDescribeAlgorithms(world.comm(0), "allreduce", 1024, true, &longer[0].known,
                                sizeof(Longer), &number));
  for (std::size_t i = 0; i < longer.size(); ++i) {
    EXPECT_STREQ(longer[i].known.name, infos[i].name);
    EXPECT_EQ(longer[i].known.level, infos[i].level);
    EXPECT_EQ(longer[i].later, 0);
  }
}

TEST(CommAlgorithms, OfWrongArguments) {
  ApiWorld world(1);
  HcclAlgorithmInfo info;
  const auto ask = [&](const char* op, HcclAlgorithmInfo* infos, std::size_t size,
                       std::uint32_t* number) {
    return HcclCommDescribeAlgorithms(world.comm(0), op, 8, true, infos, size, number);
  };
  std::uint32_t one = 1;
  SAYS(ask("nothing", &info, sizeof info, &one), HCCL_E_PARA, "\"nothing\"");
  SAYS(ask("allreduce", &info, sizeof info - 1, &one), HCCL_E_PARA, "infoSize");
  SAYS(ask("allreduce", &info, sizeof info, &one), HCCL_E_PARA, "room for 1 of");
  EXPECT_GT(one, 1u) << "how many there are";
  SAYS(ask("allreduce", nullptr, sizeof info, &one), HCCL_E_PTR, "infos");
  SAYS(ask("allreduce", &info, sizeof info, nullptr), HCCL_E_PTR, "infoNum");
  SAYS(ask(nullptr, &info, sizeof info, &one), HCCL_E_PTR, "op");
}

// ---- In use ----

HcclResult refuse_all(HcclComm, HcclCommStatePhase, void*) { return HCCL_E_UNAVAIL; }

TEST(CommDestroy, IsRefusedWhileAnotherThreadWaitsInAnOperation) {
  ApiWorld world(2);
  // This callback keeps the communicator alive until the other thread is in its operation.
  OK(HcclCommRegCommStateCallback("test", refuse_all, nullptr));
  std::thread waiting([&] {
    std::int32_t value = 1;
    EXPECT_EQ(sum(world.comm(0), &value), HCCL_SUCCESS) << HcclGetLastErrorText();
  });
  HcclResult destroyed = HCCL_E_UNAVAIL;
  while (destroyed == HCCL_E_UNAVAIL) {
    std::this_thread::yield();
    destroyed = HcclCommDestroy(world.comm(0));
  }
  EXPECT_EQ(destroyed, HCCL_E_AGAIN) << HcclGetLastErrorText();
  EXPECT_NE(std::strstr(HcclGetLastErrorText(), "comm is in use, please try again later"), nullptr);
  OK(HcclCommRegCommStateCallback("test", ignore, nullptr));
  std::int32_t value = 1;
  EXPECT_EQ(sum(world.comm(1), &value), HCCL_SUCCESS);
  waiting.join();
}

}  // namespace
}  // namespace hccl::testing
