// Every function of hccl_comm.h that api_test.cc does not test, with every argument wrong.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/api_world.h"
#include "tests/support/calls.h"

namespace hccl::testing {
namespace {

HcclResult nothing(HcclComm, HcclCommStatePhase, void*) { return HCCL_SUCCESS; }

// Calls with each wrong value of an argument `comm`.
void refuses_comm(const char* function, const std::function<HcclResult(HcclComm)>& call) {
  static int on_heap = 0;
  REFUSED_BY(function, call(nullptr), HCCL_E_PTR, "comm");
  REFUSED_BY(function, call(&on_heap), HCCL_E_PARA, "comm");
  REFUSED_BY(function, call(reinterpret_cast<HcclComm>(1)), HCCL_E_PARA, "comm");
}

TEST(CommWrong, Joining) {
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  HcclRootInfo info;
  OK(HcclGetRootInfo(&info));
  HcclRootInfo garbage{};
  HcclComm comm = nullptr;
  std::vector<HcclComm> comms(4);
  const auto all = [&](std::vector<std::int32_t> devices) {
    return HcclCommInitAll(static_cast<std::uint32_t>(devices.size()), devices.data(),
                           comms.data());
  };
  std::int32_t device = 0;
  REFUSED(HcclCommInitRootInfoConfig(1, nullptr, 0, &config, &comm), HCCL_E_PTR, "rootInfo");
  REFUSED(HcclCommInitRootInfoConfig(1, &info, 0, nullptr, &comm), HCCL_E_PTR, "config");
  REFUSED(HcclCommInitRootInfoConfig(1, &info, 0, &config, nullptr), HCCL_E_PTR, "comm");
  REFUSED(HcclCommInitRootInfoConfig(0, &info, 0, &config, &comm), HCCL_E_PARA, "nRanks");
  REFUSED(HcclCommInitRootInfoConfig(2, &info, 2, &config, &comm), HCCL_E_PARA, "rank");
  REFUSED(HcclCommInitRootInfoConfig(1, &garbage, 0, &config, &comm), HCCL_E_PARA, "rootInfo");
  REFUSED(HcclCommInitClusterInfoConfig(nullptr, 0, &config, &comm), HCCL_E_PTR, "clusterInfo");
  REFUSED(HcclCommInitClusterInfoConfig("/x.json", 0, nullptr, &comm), HCCL_E_PTR, "config");
  REFUSED(HcclCommInitClusterInfoConfig("/x.json", 0, &config, nullptr), HCCL_E_PTR, "comm");
  REFUSED(HcclCommInitClusterInfoConfig(std::string(5000, 'a').c_str(), 0, &config, &comm),
          HCCL_E_PARA, "clusterInfo");
  REFUSED(HcclCommInitAll(1, nullptr, comms.data()), HCCL_E_PTR, "devices");
  REFUSED(HcclCommInitAll(1, &device, nullptr), HCCL_E_PTR, "comms");
  REFUSED(HcclCommInitAll(0, &device, comms.data()), HCCL_E_PARA, "ndev");
  REFUSED_BY("HcclCommInitAll", all({0, 1, 0}), HCCL_E_PARA, "devices has 0 twice");
  REFUSED_BY("HcclCommInitAll", all({0, -1}), HCCL_E_PARA, "devices has -1");
  REFUSED_BY("HcclCommInitAll", all({0, 1 << 30}), HCCL_E_PARA, "devices has 1073741824");
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
  const auto create = [&](std::vector<std::uint32_t> ranks, std::uint32_t mine,
                          std::uint64_t id = 1) {
    return HcclCreateSubCommConfig(&comm, static_cast<std::uint32_t>(ranks.size()), ranks.data(),
                                   id, mine, &config, &made);
  };
  std::uint32_t self[3] = {0, 1, 0};
  HcclComm none = nullptr;
  HcclComm invented = &none;
  REFUSED(HcclCreateSubCommConfig(nullptr, 1, self, 1, 0, &config, &made), HCCL_E_PTR, "comm");
  REFUSED(HcclCreateSubCommConfig(&none, 1, self, 1, 0, &config, &made), HCCL_E_PTR, "comm");
  REFUSED(HcclCreateSubCommConfig(&invented, 1, self, 1, 0, &config, &made), HCCL_E_PARA, "comm");
  REFUSED(HcclCreateSubCommConfig(&comm, 1, nullptr, 1, 0, &config, &made), HCCL_E_PTR, "rankIds");
  REFUSED(HcclCreateSubCommConfig(&comm, 1, self, 1, 0, nullptr, &made), HCCL_E_PTR, "config");
  REFUSED(HcclCreateSubCommConfig(&comm, 1, self, 1, 0, &config, nullptr), HCCL_E_PTR, "subComm");
  REFUSED(HcclCreateSubCommConfig(&comm, 0, self, 1, 0, &config, &made), HCCL_E_PARA, "rankNum");
  REFUSED(HcclCreateSubCommConfig(&comm, 3, self, 1, 0, &config, &made), HCCL_E_PARA, "rankNum");
  REFUSED_BY("HcclCreateSubCommConfig", create({0, 2}, 0), HCCL_E_PARA, "rankIds[1] is 2");
  REFUSED_BY("HcclCreateSubCommConfig", create({0, 0}, 0), HCCL_E_PARA, "rankIds[1] is 0");
  REFUSED_BY("HcclCreateSubCommConfig", create({1, 0}, 0), HCCL_E_PARA, "subCommRankId is 0");
  REFUSED_BY("HcclCreateSubCommConfig", create({1, 0}, 2), HCCL_E_PARA, "subCommRankId is 2");
  REFUSED_BY("HcclCreateSubCommConfig", create({1}, 0), HCCL_E_PARA, "subCommRankId is 0");
  REFUSED_BY("HcclCreateSubCommConfig", create({0}, 0, 0xFFFFFFFF), HCCL_E_PARA, "subCommId");
  config.hcclBufferSize = 0;
  REFUSED_BY("HcclCreateSubCommConfig", create({0}, 0), HCCL_E_PARA, "config.hcclBufferSize");
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
  const auto set = [](std::int32_t to) {
    HcclConfigValue wanted;
    wanted.value = to;
    return HcclSetConfig(HCCL_DETERMINISTIC, wanted);
  };
  REFUSED(HcclCommGetHandleWithName(nullptr, &found), HCCL_E_PTR, "commName");
  REFUSED(HcclCommGetHandleWithName("x", nullptr), HCCL_E_PTR, "comm");
  REFUSED(HcclCommGetHandleWithName("", &found), HCCL_E_PARA, "commName");
  REFUSED(HcclCommGetHandleWithName(long_name.c_str(), &found), HCCL_E_PARA, "commName");
  REFUSED(HcclCommGetHandleWithName("nobody", &found), HCCL_E_NOT_FOUND, "commName");
  REFUSED(HcclCommGetStatus(nullptr, &status), HCCL_E_PTR, "commId");
  REFUSED(HcclCommGetStatus("x", nullptr), HCCL_E_PTR, "status");
  REFUSED(HcclCommGetStatus("", &status), HCCL_E_PARA, "commId");
  REFUSED(HcclCommGetStatus("nobody", &status), HCCL_E_NOT_FOUND, "commId");
  REFUSED(HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_OP_EXPANSION_MODE, 3, &mode), HCCL_E_PARA,
          "infoLen");
  REFUSED(HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_OP_EXPANSION_MODE, 8, &mode), HCCL_E_PARA,
          "infoLen");
  REFUSED(HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_OP_EXPANSION_MODE, 4, nullptr), HCCL_E_PTR,
          "info");
  REFUSED(HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_HCCL_ALGO, 1599, algo), HCCL_E_PARA, "infoLen");
  REFUSED(HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_HCCL_ALGO, 1600, nullptr), HCCL_E_PTR, "info");
  REFUSED(HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_INVALID, 4, &mode), HCCL_E_PARA, "cfgType");
  REFUSED(HcclSetConfig(HCCL_CONFIG_RESERVED, value), HCCL_E_PARA, "config");
  REFUSED_BY("HcclSetConfig", set(3), HCCL_E_PARA, "configValue");
  REFUSED_BY("HcclSetConfig", set(-1), HCCL_E_PARA, "configValue");
  REFUSED(HcclGetConfig(HCCL_CONFIG_RESERVED, &value), HCCL_E_PARA, "config");
  REFUSED(HcclGetConfig(HCCL_DETERMINISTIC, nullptr), HCCL_E_PTR, "configValue");
  REFUSED(HcclCommRegCommStateCallback(nullptr, nothing, nullptr), HCCL_E_PTR, "regName");
  REFUSED(HcclCommRegCommStateCallback("x", nullptr, nullptr), HCCL_E_PTR, "cb");
  REFUSED(HcclCommRegCommStateCallback("", nothing, nullptr), HCCL_E_PARA, "regName");
  REFUSED(HcclCommRegCommStateCallback(std::string(161, 'r').c_str(), nothing, nullptr),
          HCCL_E_PARA, "regName");
  OK(HcclCommRegCommStateCallback(std::string(160, 'r').c_str(), nothing, nullptr));
  refuses_comm("HcclCommSuspend", HcclCommSuspend);
  refuses_comm("HcclCommResume", HcclCommResume);
  refuses_comm("HcclConfigGetInfo", [&](HcclComm c) {
    return HcclConfigGetInfo(c, HCCL_CONFIG_TYPE_OP_EXPANSION_MODE, 4, &mode);
  });
  std::uint32_t ranks[] = {0, 1, 2};
  bool backup[] = {false, true, false};
  EXPECT_EQ(HcclCommWorkingDevNicSet(comm, ranks, backup, 2), HCCL_SUCCESS);
  refuses_comm("HcclCommWorkingDevNicSet",
               [&](HcclComm c) { return HcclCommWorkingDevNicSet(c, ranks, backup, 2); });
  REFUSED(HcclCommWorkingDevNicSet(comm, nullptr, backup, 1), HCCL_E_PTR, "ranks");
  REFUSED(HcclCommWorkingDevNicSet(comm, ranks, nullptr, 1), HCCL_E_PTR, "useBackup");
  REFUSED(HcclCommWorkingDevNicSet(comm, ranks, backup, 0), HCCL_E_PARA, "nRanks");
  REFUSED(HcclCommWorkingDevNicSet(comm, ranks, backup, 3), HCCL_E_PARA, "nRanks");
  REFUSED(HcclCommWorkingDevNicSet(comm, ranks + 1, backup, 2), HCCL_E_PARA, "ranks[1]");
  world.expect_usable();
}

TEST(CommWrong, Memory) {
  ApiWorld world(2);
  const HcclComm comm = world.comm(0);
  char space[64];
  HcclCommSymWindow window = nullptr;
  std::size_t offset = 0;
  constexpr std::size_t kHuge = ~std::size_t{0};
  const auto activate = [&](void* at, std::size_t size, std::size_t from, void* handle,
                            std::uint64_t flags) {
    return HcclCommActivateCommMemory(comm, at, size, from, handle, flags);
  };
  REFUSED(HcclCommSetMemoryRange(comm, nullptr, 1, 0, 0), HCCL_E_PTR, "baseVirPtr");
  REFUSED(HcclCommSetMemoryRange(comm, space, 0, 0, 0), HCCL_E_PARA, "size");
  REFUSED(HcclCommSetMemoryRange(comm, space, kHuge, 0, 0), HCCL_E_PARA, "size");
  REFUSED(HcclCommSetMemoryRange(comm, space, 1, 1, 0), HCCL_E_PARA, "alignment");
  REFUSED(HcclCommSetMemoryRange(comm, space, 1, 0, 1), HCCL_E_PARA, "flags");
  REFUSED(HcclCommUnsetMemoryRange(comm, nullptr), HCCL_E_PTR, "baseVirPtr");
  REFUSED(HcclCommUnsetMemoryRange(comm, space), HCCL_E_PARA, "baseVirPtr");
  REFUSED_BY("HcclCommActivateCommMemory", activate(nullptr, 1, 0, space, 0), HCCL_E_PTR, "virPtr");
  REFUSED_BY("HcclCommActivateCommMemory", activate(space, 0, 0, space, 0), HCCL_E_PARA, "size");
  REFUSED_BY("HcclCommActivateCommMemory", activate(space, kHuge, 0, space, 0), HCCL_E_PARA,
             "size");
  REFUSED_BY("HcclCommActivateCommMemory", activate(space, 1, 1, space, 0), HCCL_E_PARA, "offset");
  REFUSED_BY("HcclCommActivateCommMemory", activate(space, 1, 0, nullptr, 0), HCCL_E_PTR, "handle");
  REFUSED_BY("HcclCommActivateCommMemory", activate(space, 1, 0, space, 1), HCCL_E_PARA, "flags");
  REFUSED_BY("HcclCommActivateCommMemory", activate(space, 1, 0, space, 0), HCCL_E_PARA, "virPtr");
  REFUSED(HcclCommDeactivateCommMemory(comm, nullptr), HCCL_E_PTR, "virPtr");
  REFUSED(HcclCommDeactivateCommMemory(comm, space), HCCL_E_PARA, "virPtr");
  REFUSED(HcclCommSymWinRegister(comm, nullptr, 1, &window, 1), HCCL_E_PTR, "addr");
  REFUSED(HcclCommSymWinRegister(comm, space, 0, &window, 1), HCCL_E_PARA, "size");
  REFUSED(HcclCommSymWinRegister(comm, space, kHuge, &window, 1), HCCL_E_PARA, "size");
  REFUSED(HcclCommSymWinRegister(comm, space, 1, nullptr, 1), HCCL_E_PTR, "winHandle");
  REFUSED(HcclCommSymWinRegister(comm, space, 1, &window, 0), HCCL_E_PARA, "flag");
  REFUSED(HcclCommSymWinRegister(comm, space, 1, &window, 2), HCCL_E_PARA, "flag");
  REFUSED(HcclCommSymWinDeregister(nullptr), HCCL_E_PTR, "winHandle");
  REFUSED(HcclCommSymWinDeregister(space), HCCL_E_PARA, "winHandle");
  REFUSED(HcclCommSymWinDeregister(comm), HCCL_E_PARA, "winHandle");
  REFUSED(HcclCommSymWinGet(comm, nullptr, 1, &window, &offset), HCCL_E_PTR, "ptr");
  REFUSED(HcclCommSymWinGet(comm, space, 0, &window, &offset), HCCL_E_PARA, "size");
  REFUSED(HcclCommSymWinGet(comm, space, 1, nullptr, &offset), HCCL_E_PTR, "winHandle");
  REFUSED(HcclCommSymWinGet(comm, space, 1, &window, nullptr), HCCL_E_PTR, "offset");
  REFUSED(HcclCommSymWinGet(comm, space, 1, &window, &offset), HCCL_E_NOT_FOUND, "ptr");
  refuses_comm("HcclCommSetMemoryRange",
               [&](HcclComm c) { return HcclCommSetMemoryRange(c, space, 1, 0, 0); });
  refuses_comm("HcclCommUnsetMemoryRange",
               [&](HcclComm c) { return HcclCommUnsetMemoryRange(c, space); });
  refuses_comm("HcclCommActivateCommMemory",
               [&](HcclComm c) { return HcclCommActivateCommMemory(c, space, 1, 0, space, 0); });
  refuses_comm("HcclCommDeactivateCommMemory",
               [&](HcclComm c) { return HcclCommDeactivateCommMemory(c, space); });
  refuses_comm("HcclCommSymWinRegister",
               [&](HcclComm c) { return HcclCommSymWinRegister(c, space, 1, &window, 1); });
  refuses_comm("HcclCommSymWinGet",
               [&](HcclComm c) { return HcclCommSymWinGet(c, space, 1, &window, &offset); });
  EXPECT_EQ(window, nullptr);
  world.expect_usable();
}

}  // namespace
}  // namespace hccl::testing
