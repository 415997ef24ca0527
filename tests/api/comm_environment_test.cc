// The environment takes precedence over HcclSetConfig, and a communicator's configuration over
// both. Runs with HCCL_DETERMINISTIC=true and HCCL_BUFFSIZE=7.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "hccl/hccl_comm.h"
#include "tests/support/calls.h"
#include "tests/support/threads.h"

namespace {

HcclConfigValue value_of(std::int32_t value) {
  HcclConfigValue made;
  made.value = value;
  return made;
}

TEST(CommEnvironment, GoesBeforeSetConfigAndBehindTheConfiguration) {
  ASSERT_STREQ(std::getenv("HCCL_DETERMINISTIC"), "true");
  EXPECT_EQ(HcclSetConfig(HCCL_DETERMINISTIC, value_of(2)), HCCL_SUCCESS);
  HcclConfigValue value = value_of(77);
  EXPECT_EQ(HcclGetConfig(HCCL_DETERMINISTIC, &value), HCCL_SUCCESS);
  EXPECT_EQ(value.value, 1);
  // Rank 0 takes 7 MB from its configuration, rank 1 from the environment: the sizes agree.
  HcclRootInfo info;
  OK(HcclGetRootInfo(&info));
  std::vector<HcclComm> comms(2);
  hccl::testing::on_threads(2, [&](int rank) {
    const auto me = static_cast<std::uint32_t>(rank);
    HcclCommConfig config;
    HcclCommConfigInit(&config);
    if (rank == 0) config.hcclBufferSize = 7;
    OK(HcclCommInitRootInfoConfig(2, &info, me, &config, &comms[me]));
  });
  for (HcclComm comm : comms) EXPECT_EQ(HcclCommDestroy(comm), HCCL_SUCCESS);
}

// Variables of the device are checked before a rank joins, as all others.
TEST(CommEnvironment, ABadVariableOfTheDeviceIsRefused) {
  EXPECT_EXIT(
      {
        ::setenv("HCCL_DEVICE_MEMORY", "0", 1);
        HcclRootInfo info;
        const HcclResult result = HcclGetRootInfo(&info);
        std::fputs(HcclGetLastErrorText(), stderr);
        std::_Exit(result);
      },
      ::testing::ExitedWithCode(HCCL_E_PARA), "HCCL_DEVICE_MEMORY");
}

}  // namespace
