// Every function of hccl_comm.h that api_test.cc does not have, with every argument wrong.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/api_world.h"
#include "tests/support/wrong.h"

namespace hccl::testing {
namespace {

HcclResult nothing(HcclComm, HcclCommStatePhase, void*) { return HCCL_SUCCESS; }

// What any comm argument must refuse.
void refuse_comm(const char* function, const std::function<HcclResult(HcclComm)>& call) {
  static int on_heap = 0;
  refuse({{function, [&] { return call(nullptr); }, HCCL_E_PTR, "comm"},
          {function, [&] { return call(&on_heap); }, HCCL_E_PARA, "comm"},
          {function, [&] { return call(reinterpret_cast<HcclComm>(1)); }, HCCL_E_PARA, "comm"}});
}

TEST(CommWrong, Joining) {
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  HcclRootInfo info;
  ASSERT_EQ(HcclGetRootInfo(&info), HCCL_SUCCESS);
  HcclRootInfo garbage{};
  HcclComm comm = nullptr;
  std::vector<HcclComm> comms(4);
  const auto all = [&](std::vector<std::int32_t> devices) {
    return [devices, &comms]() mutable {
      return HcclCommInitAll(static_cast<std::uint32_t>(devices.size()), devices.data(),
                             comms.data());
    };
  };
  const char* const root = "HcclCommInitRootInfoConfig";
  const char* const table = "HcclCommInitClusterInfoConfig";
  std::int32_t device = 0;
  refuse({
      {root, [&] { return HcclCommInitRootInfoConfig(1, nullptr, 0, &config, &comm); }, HCCL_E_PTR,
       "rootInfo"},
      {root, [&] { return HcclCommInitRootInfoConfig(1, &info, 0, nullptr, &comm); }, HCCL_E_PTR,
       "config"},
      {root, [&] { return HcclCommInitRootInfoConfig(1, &info, 0, &config, nullptr); }, HCCL_E_PTR,
       "comm"},
      {root, [&] { return HcclCommInitRootInfoConfig(0, &info, 0, &config, &comm); }, HCCL_E_PARA,
       "nRanks"},
      {root, [&] { return HcclCommInitRootInfoConfig(2, &info, 2, &config, &comm); }, HCCL_E_PARA,
       "rank"},
      {root, [&] { return HcclCommInitRootInfoConfig(1, &garbage, 0, &config, &comm); },
       HCCL_E_PARA, "rootInfo"},
      {table, [&] { return HcclCommInitClusterInfoConfig(nullptr, 0, &config, &comm); }, HCCL_E_PTR,
       "clusterInfo"},
      {table, [&] { return HcclCommInitClusterInfoConfig("/x.json", 0, nullptr, &comm); },
       HCCL_E_PTR, "config"},
      {table, [&] { return HcclCommInitClusterInfoConfig("/x.json", 0, &config, nullptr); },
       HCCL_E_PTR, "comm"},
      {table,
       [&] {
         return HcclCommInitClusterInfoConfig(std::string(5000, 'a').c_str(), 0, &config, &comm);
       },
       HCCL_E_PARA, "clusterInfo"},
      {"HcclCommInitAll", [&] { return HcclCommInitAll(1, nullptr, comms.data()); }, HCCL_E_PTR,
       "devices"},
      {"HcclCommInitAll", [&] { return HcclCommInitAll(1, &device, nullptr); }, HCCL_E_PTR,
       "comms"},
      {"HcclCommInitAll", [&] { return HcclCommInitAll(0, &device, comms.data()); }, HCCL_E_PARA,
       "ndev"},
      {"HcclCommInitAll", all({0, 1, 0}), HCCL_E_PARA, "devices has 0 twice"},
      {"HcclCommInitAll", all({0, -1}), HCCL_E_PARA, "devices has -1"},
      {"HcclCommInitAll", all({0, 1 << 30}), HCCL_E_PARA, "devices has 1073741824"},
  });
  EXPECT_EQ(HcclCommInitClusterInfoConfig("/not/there.json", 0, &config, &comm), HCCL_E_PARA);
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(comms, std::vector<HcclComm>(4));
}

TEST(CommWrong, SubCommunicators) {
  ApiWorld world(2);
  HcclComm comm = world.comm(0);
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  HcclComm made = nullptr;
  const char* const name = "HcclCreateSubCommConfig";
  const auto create = [&](std::vector<std::uint32_t> ranks, std::uint32_t mine,
                          std::uint64_t id = 1) {
    return [=, &comm, &config, &made]() mutable {
      return HcclCreateSubCommConfig(&comm, static_cast<std::uint32_t>(ranks.size()), ranks.data(),
                                     id, mine, &config, &made);
    };
  };
  std::uint32_t self[3] = {0, 1, 0};
  HcclComm none = nullptr;
  HcclComm invented = &none;
  refuse({
      {name, [&] { return HcclCreateSubCommConfig(nullptr, 1, self, 1, 0, &config, &made); },
       HCCL_E_PTR, "comm"},
      {name, [&] { return HcclCreateSubCommConfig(&none, 1, self, 1, 0, &config, &made); },
       HCCL_E_PTR, "comm"},
      {name, [&] { return HcclCreateSubCommConfig(&invented, 1, self, 1, 0, &config, &made); },
       HCCL_E_PARA, "comm"},
      {name, [&] { return HcclCreateSubCommConfig(&comm, 1, nullptr, 1, 0, &config, &made); },
       HCCL_E_PTR, "rankIds"},
      {name, [&] { return HcclCreateSubCommConfig(&comm, 1, self, 1, 0, nullptr, &made); },
       HCCL_E_PTR, "config"},
      {name, [&] { return HcclCreateSubCommConfig(&comm, 1, self, 1, 0, &config, nullptr); },
       HCCL_E_PTR, "subComm"},
      {name, [&] { return HcclCreateSubCommConfig(&comm, 0, self, 1, 0, &config, &made); },
       HCCL_E_PARA, "rankNum"},
      {name, [&] { return HcclCreateSubCommConfig(&comm, 3, self, 1, 0, &config, &made); },
       HCCL_E_PARA, "rankNum"},
      {name, create({0, 2}, 0), HCCL_E_PARA, "rankIds[1] is 2"},
      {name, create({0, 0}, 0), HCCL_E_PARA, "rankIds[1] is 0"},
      {name, create({1, 0}, 0), HCCL_E_PARA, "subCommRankId is 0"},
      {name, create({1, 0}, 2), HCCL_E_PARA, "subCommRankId is 2"},
      {name, create({1}, 0), HCCL_E_PARA, "subCommRankId is 0"},
      {name, create({0}, 0, 0xFFFFFFFF), HCCL_E_PARA, "subCommId"},
  });
  config.hcclBufferSize = 0;
  refuse({{name, create({0}, 0), HCCL_E_PARA, "config.hcclBufferSize"}});
  EXPECT_EQ(made, nullptr);
  world.expect_usable();
}

TEST(CommWrong, AskingAndSetting) {
  ApiWorld world(2);
  const HcclComm comm = world.comm(0);
  HcclComm found = nullptr;
  HcclCommStatus status = HCCL_COMM_STATUS_RESERVED;
  HcclConfigValue value{};
  HcclOpExpansionMode mode = HCCL_OP_EXPANSION_MODE_INVALID;
  char algo[HCCL_COMM_ALGO_MAX_LENGTH];
  const std::string long_name(128, 'n');
  const char* const info = "HcclConfigGetInfo";
  const char* const by_name = "HcclCommGetHandleWithName";
  const char* const get_status = "HcclCommGetStatus";
  const char* const reg = "HcclCommRegCommStateCallback";
  const auto set = [](std::int32_t to) {
    return [to] {
      HcclConfigValue wanted;
      wanted.value = to;
      return HcclSetConfig(HCCL_DETERMINISTIC, wanted);
    };
  };
  refuse({
      {by_name, [&] { return HcclCommGetHandleWithName(nullptr, &found); }, HCCL_E_PTR, "commName"},
      {by_name, [&] { return HcclCommGetHandleWithName("x", nullptr); }, HCCL_E_PTR, "comm"},
      {by_name, [&] { return HcclCommGetHandleWithName("", &found); }, HCCL_E_PARA, "commName"},
      {by_name, [&] { return HcclCommGetHandleWithName(long_name.c_str(), &found); }, HCCL_E_PARA,
       "commName"},
      {by_name, [&] { return HcclCommGetHandleWithName("nobody", &found); }, HCCL_E_NOT_FOUND,
       "commName"},
      {get_status, [&] { return HcclCommGetStatus(nullptr, &status); }, HCCL_E_PTR, "commId"},
      {get_status, [&] { return HcclCommGetStatus("x", nullptr); }, HCCL_E_PTR, "status"},
      {get_status, [&] { return HcclCommGetStatus("", &status); }, HCCL_E_PARA, "commId"},
      {get_status, [&] { return HcclCommGetStatus("nobody", &status); }, HCCL_E_NOT_FOUND,
       "commId"},
      {info, [&] { return HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_OP_EXPANSION_MODE, 3, &mode); },
       HCCL_E_PARA, "infoLen"},
      {info, [&] { return HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_OP_EXPANSION_MODE, 8, &mode); },
       HCCL_E_PARA, "infoLen"},
      {info,
       [&] { return HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_OP_EXPANSION_MODE, 4, nullptr); },
       HCCL_E_PTR, "info"},
      {info, [&] { return HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_HCCL_ALGO, 1599, algo); },
       HCCL_E_PARA, "infoLen"},
      {info, [&] { return HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_HCCL_ALGO, 1600, nullptr); },
       HCCL_E_PTR, "info"},
      {info, [&] { return HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_INVALID, 4, &mode); },
       HCCL_E_PARA, "cfgType"},
      {"HcclSetConfig", [&] { return HcclSetConfig(HCCL_CONFIG_RESERVED, value); }, HCCL_E_PARA,
       "config"},
      {"HcclSetConfig", set(3), HCCL_E_PARA, "configValue"},
      {"HcclSetConfig", set(-1), HCCL_E_PARA, "configValue"},
      {"HcclGetConfig", [&] { return HcclGetConfig(HCCL_CONFIG_RESERVED, &value); }, HCCL_E_PARA,
       "config"},
      {"HcclGetConfig", [&] { return HcclGetConfig(HCCL_DETERMINISTIC, nullptr); }, HCCL_E_PTR,
       "configValue"},
      {reg, [&] { return HcclCommRegCommStateCallback(nullptr, nothing, nullptr); }, HCCL_E_PTR,
       "regName"},
      {reg, [&] { return HcclCommRegCommStateCallback("x", nullptr, nullptr); }, HCCL_E_PTR, "cb"},
      {reg, [&] { return HcclCommRegCommStateCallback("", nothing, nullptr); }, HCCL_E_PARA,
       "regName"},
      {reg,
       [&] {
         return HcclCommRegCommStateCallback(std::string(161, 'r').c_str(), nothing, nullptr);
       },
       HCCL_E_PARA, "regName"},
  });
  EXPECT_EQ(HcclCommRegCommStateCallback(std::string(160, 'r').c_str(), nothing, nullptr),
            HCCL_SUCCESS);
  refuse_comm("HcclCommSuspend", HcclCommSuspend);
  refuse_comm("HcclCommResume", HcclCommResume);
  refuse_comm(info, [&](HcclComm c) {
    return HcclConfigGetInfo(c, HCCL_CONFIG_TYPE_OP_EXPANSION_MODE, 4, &mode);
  });
  std::uint32_t ranks[] = {0, 1, 2};
  bool backup[] = {false, true, false};
  const char* const nic = "HcclCommWorkingDevNicSet";
  EXPECT_EQ(HcclCommWorkingDevNicSet(comm, ranks, backup, 2), HCCL_SUCCESS);
  refuse_comm(nic, [&](HcclComm c) { return HcclCommWorkingDevNicSet(c, ranks, backup, 2); });
  refuse({
      {nic, [&] { return HcclCommWorkingDevNicSet(comm, nullptr, backup, 1); }, HCCL_E_PTR,
       "ranks"},
      {nic, [&] { return HcclCommWorkingDevNicSet(comm, ranks, nullptr, 1); }, HCCL_E_PTR,
       "useBackup"},
      {nic, [&] { return HcclCommWorkingDevNicSet(comm, ranks, backup, 0); }, HCCL_E_PARA,
       "nRanks"},
      {nic, [&] { return HcclCommWorkingDevNicSet(comm, ranks, backup, 3); }, HCCL_E_PARA,
       "nRanks"},
      {nic, [&] { return HcclCommWorkingDevNicSet(comm, ranks + 1, backup, 2); }, HCCL_E_PARA,
       "ranks[1]"},
  });
  world.expect_usable();
}

TEST(CommWrong, Memory) {
  ApiWorld world(2);
  const HcclComm comm = world.comm(0);
  char space[64];
  HcclCommSymWindow window = nullptr;
  std::size_t offset = 0;
  constexpr std::size_t kHuge = ~std::size_t{0};
  const char* const set = "HcclCommSetMemoryRange";
  const char* const unset = "HcclCommUnsetMemoryRange";
  const char* const act = "HcclCommActivateCommMemory";
  const char* const deact = "HcclCommDeactivateCommMemory";
  const char* const reg = "HcclCommSymWinRegister";
  const char* const get = "HcclCommSymWinGet";
  const auto activate = [&](void* at, std::size_t size, std::size_t from, void* handle,
                            std::uint64_t flags) {
    return [=] { return HcclCommActivateCommMemory(comm, at, size, from, handle, flags); };
  };
  refuse({
      {set, [&] { return HcclCommSetMemoryRange(comm, nullptr, 1, 0, 0); }, HCCL_E_PTR,
       "baseVirPtr"},
      {set, [&] { return HcclCommSetMemoryRange(comm, space, 0, 0, 0); }, HCCL_E_PARA, "size"},
      {set, [&] { return HcclCommSetMemoryRange(comm, space, kHuge, 0, 0); }, HCCL_E_PARA, "size"},
      {set, [&] { return HcclCommSetMemoryRange(comm, space, 1, 1, 0); }, HCCL_E_PARA, "alignment"},
      {set, [&] { return HcclCommSetMemoryRange(comm, space, 1, 0, 1); }, HCCL_E_PARA, "flags"},
      {unset, [&] { return HcclCommUnsetMemoryRange(comm, nullptr); }, HCCL_E_PTR, "baseVirPtr"},
      {unset, [&] { return HcclCommUnsetMemoryRange(comm, space); }, HCCL_E_PARA, "baseVirPtr"},
      {act, activate(nullptr, 1, 0, space, 0), HCCL_E_PTR, "virPtr"},
      {act, activate(space, 0, 0, space, 0), HCCL_E_PARA, "size"},
      {act, activate(space, kHuge, 0, space, 0), HCCL_E_PARA, "size"},
      {act, activate(space, 1, 1, space, 0), HCCL_E_PARA, "offset"},
      {act, activate(space, 1, 0, nullptr, 0), HCCL_E_PTR, "handle"},
      {act, activate(space, 1, 0, space, 1), HCCL_E_PARA, "flags"},
      {act, activate(space, 1, 0, space, 0), HCCL_E_PARA, "virPtr"},
      {deact, [&] { return HcclCommDeactivateCommMemory(comm, nullptr); }, HCCL_E_PTR, "virPtr"},
      {deact, [&] { return HcclCommDeactivateCommMemory(comm, space); }, HCCL_E_PARA, "virPtr"},
      {reg, [&] { return HcclCommSymWinRegister(comm, nullptr, 1, &window, 1); }, HCCL_E_PTR,
       "addr"},
      {reg, [&] { return HcclCommSymWinRegister(comm, space, 0, &window, 1); }, HCCL_E_PARA,
       "size"},
      {reg, [&] { return HcclCommSymWinRegister(comm, space, kHuge, &window, 1); }, HCCL_E_PARA,
       "size"},
      {reg, [&] { return HcclCommSymWinRegister(comm, space, 1, nullptr, 1); }, HCCL_E_PTR,
       "winHandle"},
      {reg, [&] { return HcclCommSymWinRegister(comm, space, 1, &window, 0); }, HCCL_E_PARA,
       "flag"},
      {reg, [&] { return HcclCommSymWinRegister(comm, space, 1, &window, 2); }, HCCL_E_PARA,
       "flag"},
      {"HcclCommSymWinDeregister", [&] { return HcclCommSymWinDeregister(nullptr); }, HCCL_E_PTR,
       "winHandle"},
      {"HcclCommSymWinDeregister", [&] { return HcclCommSymWinDeregister(space); }, HCCL_E_PARA,
       "winHandle"},
      {"HcclCommSymWinDeregister", [&] { return HcclCommSymWinDeregister(comm); }, HCCL_E_PARA,
       "winHandle"},
      {get, [&] { return HcclCommSymWinGet(comm, nullptr, 1, &window, &offset); }, HCCL_E_PTR,
       "ptr"},
      {get, [&] { return HcclCommSymWinGet(comm, space, 0, &window, &offset); }, HCCL_E_PARA,
       "size"},
      {get, [&] { return HcclCommSymWinGet(comm, space, 1, nullptr, &offset); }, HCCL_E_PTR,
       "winHandle"},
      {get, [&] { return HcclCommSymWinGet(comm, space, 1, &window, nullptr); }, HCCL_E_PTR,
       "offset"},
      {get, [&] { return HcclCommSymWinGet(comm, space, 1, &window, &offset); }, HCCL_E_NOT_FOUND,
       "ptr"},
  });
  refuse_comm(set, [&](HcclComm c) { return HcclCommSetMemoryRange(c, space, 1, 0, 0); });
  refuse_comm(unset, [&](HcclComm c) { return HcclCommUnsetMemoryRange(c, space); });
  refuse_comm(act,
              [&](HcclComm c) { return HcclCommActivateCommMemory(c, space, 1, 0, space, 0); });
  refuse_comm(deact, [&](HcclComm c) { return HcclCommDeactivateCommMemory(c, space); });
  refuse_comm(reg, [&](HcclComm c) { return HcclCommSymWinRegister(c, space, 1, &window, 1); });
  refuse_comm(get, [&](HcclComm c) { return HcclCommSymWinGet(c, space, 1, &window, &offset); });
  EXPECT_EQ(window, nullptr);
  world.expect_usable();
}

TEST(CommWrong, WordsOfCodes) {
  const auto words = [](int code) {
    return std::string(HcclGetErrorString(static_cast<HcclResult>(code)));
  };
  EXPECT_EQ(words(0), "no error");
  EXPECT_EQ(words(1), "parameter error");
  EXPECT_EQ(words(22), "error communicator suspending");
  EXPECT_EQ(words(24), "out of memory");
  for (const int inside : {25, 26, 1000, 1040, 1041}) EXPECT_EQ(words(inside), "unknown err");
  for (const int outside : {-1, 1042, 1043, 0x7fffffff}) EXPECT_EQ(words(outside), "unknown error");
}

}  // namespace
}  // namespace hccl::testing
