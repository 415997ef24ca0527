// HcclCommConfig field by field, and the settings of the process.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/api_world.h"
#include "tests/support/calls.h"

namespace hccl::testing {
namespace {

HcclCommConfig fresh() {
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  return config;
}

void put(char* field, const char* text) { std::memcpy(field, text, std::strlen(text) + 1); }

void set_version(HcclCommConfig& config, std::uint32_t version) {
  std::memcpy(config.reserved + 12, &version, sizeof version);
}

// A communicator of one rank with this configuration.
HcclResult init(const HcclCommConfig& config, HcclComm* comm) {
  HcclRootInfo info;
  EXPECT_EQ(HcclGetRootInfo(&info), HCCL_SUCCESS);
  return HcclCommInitRootInfoConfig(1, &info, 0, &config, comm);
}

struct Case {
  const char* what;
  std::function<void(HcclCommConfig&)> change;
  const char* refused = nullptr;  // a part of the error text; null: accepted
};

void check(const std::vector<Case>& cases) {
  for (const Case& each : cases) {
    HcclCommConfig config = fresh();
    each.change(config);
    HcclComm comm = nullptr;
    const HcclResult result = init(config, &comm);
    EXPECT_EQ(result, each.refused == nullptr ? HCCL_SUCCESS : HCCL_E_PARA)
        << each.what << ": " << HcclGetLastErrorText();
    if (each.refused != nullptr) {
      EXPECT_NE(std::strstr(HcclGetLastErrorText(), each.refused), nullptr)
          << each.what << ": " << HcclGetLastErrorText();
    }
    if (comm != nullptr) {
      EXPECT_EQ(HcclCommDestroy(comm), HCCL_SUCCESS);
    }
  }
}

using C = HcclCommConfig;

TEST(CommConfig, EachFieldIsTakenOrRefusedByName) {
  check({
      {"nothing set", [](C&) {}},
      {"no magic word", [](C& c) { c.reserved[8] = 0; }, "HcclCommConfigInit"},
      {"another size", [](C& c) { c.reserved[0] = 1; }},
      {"a newer version", [](C& c) { set_version(c, 12); }},
      {"buffer 0", [](C& c) { c.hcclBufferSize = 0; }, "config.hcclBufferSize is 0"},
      {"buffer 1", [](C& c) { c.hcclBufferSize = 1; }},
      {"buffer huge", [](C& c) { c.hcclBufferSize = 0xfffffffe; }, "config.hcclBufferSize"},
      {"deterministic 2", [](C& c) { c.hcclDeterministic = 2; }},
      {"deterministic 3", [](C& c) { c.hcclDeterministic = 3; }, "config.hcclDeterministic is 3"},
      {"name without end", [](C& c) { std::memset(c.hcclCommName, 'n', sizeof c.hcclCommName); },
       "config.hcclCommName has no end"},
      {"udi", [](C& c) { put(c.hcclUdi, "label"); }},
      {"udi without end", [](C& c) { std::memset(c.hcclUdi, 'u', sizeof c.hcclUdi); },
       "config.hcclUdi has no end"},
      {"expansion mode unknown", [](C& c) { c.hcclOpExpansionMode = 99; }},
      {"traffic class", [](C& c) { c.hcclRdmaTrafficClass = 132; }},
      {"traffic class odd", [](C& c) { c.hcclRdmaTrafficClass = 133; },
       "config.hcclRdmaTrafficClass is 133"},
      {"traffic class large", [](C& c) { c.hcclRdmaTrafficClass = 256; },
       "config.hcclRdmaTrafficClass is 256"},
      {"service level", [](C& c) { c.hcclRdmaServiceLevel = 7; }},
      {"service level 8", [](C& c) { c.hcclRdmaServiceLevel = 8; },
       "config.hcclRdmaServiceLevel is 8"},
      {"world rank and job", [](C& c) { c.hcclWorldRankID = 7, c.hcclJobID = ~0ull; }},
      {"zero copy 1", [](C& c) { c.aclGraphZeroCopyEnable = 1; }},
      {"zero copy 2", [](C& c) { c.aclGraphZeroCopyEnable = 2; },
       "config.aclGraphZeroCopyEnable is 2"},
      {"time-out for ever", [](C& c) { c.hcclExecTimeOut = 0; }},
      {"time-out out of range", [](C& c) { c.hcclExecTimeOut = -2; }},
      {"algo", [](C& c) { put(c.hcclAlgo, "level0:NA; level1:ring"); }},
      {"algo per operation",
       [](C& c) { put(c.hcclAlgo, "allreduce=level1:H-D_R/alltoall=level1:NA"); }},
      {"algo unknown", [](C& c) { put(c.hcclAlgo, "level1:rings"); }, "config.hcclAlgo: "},
      {"algo without end", [](C& c) { std::memset(c.hcclAlgo, 'a', sizeof c.hcclAlgo); },
       "config.hcclAlgo has no end"},
      {"retry", [](C& c) { put(c.hcclRetryEnable, "L0:0, L1:1, L2:0"); }},
      {"retry one level", [](C& c) { put(c.hcclRetryEnable, "L2:1"); }},
      {"retry unknown level", [](C& c) { put(c.hcclRetryEnable, "L3:1"); },
       "config.hcclRetryEnable"},
      {"retry level twice", [](C& c) { put(c.hcclRetryEnable, "L1:1,L1:1"); },
       "config.hcclRetryEnable"},
      {"retry other value", [](C& c) { put(c.hcclRetryEnable, "L1:2"); }, "config.hcclRetryEnable"},
      {"retry trailing comma", [](C& c) { put(c.hcclRetryEnable, "L1:1,"); },
       "config.hcclRetryEnable"},
      {"retry params",
       [](C& c) { put(c.hcclRetryParams, "MaxCnt:10, HoldTime:0,IntervalTime:60000"); }},
      {"retry params out of range",
       [](C& c) { put(c.hcclRetryParams, "MaxCnt:11,HoldTime:0,IntervalTime:0"); },
       "config.hcclRetryParams"},
      {"retry params order",
       [](C& c) { put(c.hcclRetryParams, "HoldTime:0,MaxCnt:1,IntervalTime:0"); },
       "config.hcclRetryParams"},
      {"retry params missing", [](C& c) { put(c.hcclRetryParams, "MaxCnt:1,HoldTime:0"); },
       "config.hcclRetryParams"},
      {"buffer name without end",
       [](C& c) { std::memset(c.hcclBufferName, 'b', sizeof c.hcclBufferName); },
       "config.hcclBufferName has no end"},
      {"QoS, window size, depth",
       [](C& c) { c.hcclQos = 3, c.hcclSymWinMaxMemSizePerRank = 64, c.hcclChannelSqDepth = 9; }},
  });
}

// Any value is allowed in a field that is newer than the configuration's version.
TEST(CommConfig, OlderVersionsReadOnlyWhatTheyKnow) {
  const auto at = [](std::uint32_t version, std::function<void(C&)> change) {
    return [=](C& c) {
      set_version(c, version);
      change(c);
    };
  };
  const auto spoil_zero_copy = [](C& c) { c.aclGraphZeroCopyEnable = 2; };
  const auto spoil_algo = [](C& c) { put(c.hcclAlgo, "x"); };
  const auto spoil_class = [](C& c) { c.hcclRdmaTrafficClass = 1; };
  const auto spoil_name = [](C& c) { std::memset(c.hcclCommName, 'n', sizeof c.hcclCommName); };
  const auto spoil_buffer = [](C& c) { c.hcclBufferSize = 0; };
  const auto spoil_buffer_name = [](C& c) {
    std::memset(c.hcclBufferName, 'b', sizeof c.hcclBufferName);
  };
  check({
      {"buffer at 0", at(0, spoil_buffer)},
      {"buffer at 1", at(1, spoil_buffer), "hcclBufferSize"},
      {"name at 1", at(1, spoil_name)},
      {"name at 2", at(2, spoil_name), "hcclCommName"},
      {"class at 4", at(4, spoil_class)},
      {"class at 5", at(5, spoil_class), "hcclRdmaTrafficClass"},
      {"zero copy at 6", at(6, spoil_zero_copy)},
      {"zero copy at 7", at(7, spoil_zero_copy), "aclGraphZeroCopyEnable"},
      {"algo at 7", at(7, spoil_algo)},
      {"algo at 8", at(8, spoil_algo), "hcclAlgo"},
      {"buffer name at 8", at(8, spoil_buffer_name)},
      {"buffer name at 9", at(9, spoil_buffer_name), "hcclBufferName"},
  });
}

TEST(CommConfig, CanBeAskedFor) {
  HcclCommConfig config = fresh();
  put(config.hcclAlgo, "allreduce=level0:NA; level1:ring");
  config.hcclOpExpansionMode = 3;
  HcclComm comm = nullptr, plain = nullptr;
  ASSERT_EQ(init(config, &comm), HCCL_SUCCESS) << HcclGetLastErrorText();
  ASSERT_EQ(init(fresh(), &plain), HCCL_SUCCESS);
  char algo[HCCL_COMM_ALGO_MAX_LENGTH];
  EXPECT_EQ(HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_HCCL_ALGO, sizeof algo, algo), HCCL_SUCCESS);
  EXPECT_STREQ(algo, "allreduce=level0:NA;level1:ring");
  HcclOpExpansionMode mode = HCCL_OP_EXPANSION_MODE_INVALID;
  OK(HcclConfigGetInfo(comm, HCCL_CONFIG_TYPE_OP_EXPANSION_MODE, sizeof mode, &mode));
  EXPECT_EQ(mode, HCCL_OP_EXPANSION_MODE_AIV);
  OK(HcclConfigGetInfo(plain, HCCL_CONFIG_TYPE_OP_EXPANSION_MODE, sizeof mode, &mode));
  EXPECT_EQ(mode, HCCL_OP_EXPANSION_MODE_HOST);
  EXPECT_EQ(HcclGetCommConfigCapability(), 12u);
  EXPECT_EQ(HcclCommDestroy(comm), HCCL_SUCCESS);
  EXPECT_EQ(HcclCommDestroy(plain), HCCL_SUCCESS);
}

// The communicator's time-out of one second ends an operation, not the environment's half hour.
TEST(CommConfig, TheTimeOutOfOperationsIsTheCommunicators) {
  HcclCommConfig config = fresh();
  config.hcclExecTimeOut = 1;
  ApiWorld world(2, &config);
  EXPECT_EQ(HcclBarrier(world.comm(0), nullptr), HCCL_E_TIMEOUT) << HcclGetLastErrorText();
}

TEST(CommConfig, RanksMustAgree) {
  HcclRootInfo info;
  OK(HcclGetRootInfo(&info));
  on_threads(2, [&](int rank) {
    HcclCommConfig config = fresh();
    config.hcclDeterministic = static_cast<std::uint32_t>(rank);
    HcclComm comm = nullptr;
    SAYS(HcclCommInitRootInfoConfig(2, &info, config.hcclDeterministic, &config, &comm),
         HCCL_E_PARA, "deterministic");
  });
}

HcclConfigValue value_of(std::int32_t value) {
  HcclConfigValue made;
  made.value = value;
  return made;
}

TEST(CommSettings, DeterminismIsKeptAndReachesCommunicators) {
  ApiWorld world(2);
  HcclConfigValue value = value_of(77);
  OK(HcclGetConfig(HCCL_DETERMINISTIC, &value));
  const std::int32_t before = value.value;
  for (const std::int32_t each : {2, 1, 0}) {
    EXPECT_EQ(HcclSetConfig(HCCL_DETERMINISTIC, value_of(each)), HCCL_SUCCESS);
    EXPECT_EQ(HcclGetConfig(HCCL_DETERMINISTIC, &value), HCCL_SUCCESS);
    EXPECT_EQ(value.value, each);
    world.expect_usable();
    ApiWorld later(2);
    later.expect_usable();
  }
  EXPECT_EQ(HcclSetConfig(HCCL_DETERMINISTIC, value_of(before)), HCCL_SUCCESS);
}

}  // namespace
}  // namespace hccl::testing
