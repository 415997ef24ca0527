// Values and layouts of hccl_types.h are those of HCCL's header, against which programs were
// compiled.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

#include "hccl/hccl_comm.h"

namespace {

#define AT(field, offset) static_assert(offsetof(HcclCommConfig, field) == (offset), #field)
static_assert(sizeof(HcclCommConfig) == 2248);
AT(reserved, 0);
AT(hcclBufferSize, 24);
AT(hcclDeterministic, 28);
AT(hcclCommName, 32);
AT(hcclUdi, 160);
AT(hcclOpExpansionMode, 288);
AT(hcclRdmaTrafficClass, 292);
AT(hcclRdmaServiceLevel, 296);
AT(hcclWorldRankID, 300);
AT(hcclJobID, 304);
AT(aclGraphZeroCopyEnable, 312);
AT(hcclExecTimeOut, 316);
AT(hcclAlgo, 320);
AT(hcclRetryEnable, 1920);
AT(hcclRetryParams, 1970);
AT(hcclBufferName, 2098);
AT(hcclQos, 2228);
AT(hcclSymWinMaxMemSizePerRank, 2232);
AT(hcclChannelSqDepth, 2240);
#undef AT

static_assert(sizeof(HcclRootInfo) == 4108 && alignof(HcclRootInfo) == 1);
static_assert(sizeof(HcclSendRecvItem) == 32);
static_assert(offsetof(HcclSendRecvItem, sendRecvType) == 0);
static_assert(offsetof(HcclSendRecvItem, buf) == 8);
static_assert(offsetof(HcclSendRecvItem, count) == 16);
static_assert(offsetof(HcclSendRecvItem, dataType) == 24);
static_assert(offsetof(HcclSendRecvItem, remoteRank) == 28);
static_assert(sizeof(HcclConfigValue) == 4);
static_assert(sizeof(HcclOpExpansionMode) == 4 && sizeof(HcclCommStatus) == 4);

static_assert(HCCL_E_IN_STATUS == 1041 && HCCL_E_RESERVED == 1042 && HCCL_E_OOM == 24);
static_assert(HCCL_CMD_BATCH_WRITE == 18 && HCCL_CMD_HALF_ALLTOALLV == 20 && HCCL_CMD_ALL == 21);
static_assert(HCCL_CMD_FINALIZE == 100 && HCCL_CMD_MAX == 104);
static_assert(HCCL_COMM_CONFIG_RETRY == 10 && HCCL_COMM_CONFIG_RESERVED == 12);
static_assert(HCCL_COMM_STATUS_INVALID == 254 && HCCL_COMM_STATE_PHASE_RESUME_POST == 3);
static_assert(HCCL_SEND_RECV_RESERVED == 2 && HCCL_CONFIG_RESERVED == 1);
static_assert(HCCL_OP_EXPANSION_MODE_AIV_ONLY == 6 && HCCL_CONFIG_TYPE_HCCL_ALGO == 1);
static_assert(HCCL_COMM_CONFIG_MAGIC_WORD == 0xf0f0f0f0 && HCCL_COMM_CONFIG_VERSION == 11);
static_assert(HCCL_COMM_EXECTIMEOUT_CONFIG_NOT_SET == -1);
static_assert(HCCL_DEFAULT_SYMMETRIC_MEMORY_STRIDE == 16 && HCCL_COMM_DEFAULT_BUFFSIZE == 200);

TEST(CommLayout, InitFillsAConfigurationWithNothingSet) {
  HcclCommConfig config;
  std::memset(&config, 0xAB, sizeof config);
  HcclCommConfigInit(&config);
  struct {
    std::size_t size;
    std::uint32_t magic;
    std::uint32_t version;
    std::uint64_t reserved;
  } head;
  static_assert(sizeof head == HCCL_COMM_CONFIG_INFO_BYTES);
  std::memcpy(&head, &config, sizeof head);
  EXPECT_EQ(head.size, 2248u);
  EXPECT_EQ(head.magic, 0xf0f0f0f0u);
  EXPECT_EQ(head.version, 11u);
  EXPECT_EQ(head.reserved, 0u);
  EXPECT_EQ(config.hcclBufferSize, 0xffffffffu);
  EXPECT_EQ(config.hcclDeterministic, 0xffffffffu);
  EXPECT_EQ(config.hcclRdmaTrafficClass, 0xffffffffu);
  EXPECT_EQ(config.hcclRdmaServiceLevel, 0xffffffffu);
  EXPECT_EQ(config.hcclQos, 0xffffffffu);
  EXPECT_EQ(config.hcclChannelSqDepth, 0xffffffffu);
  EXPECT_EQ(config.hcclExecTimeOut, -1);
  EXPECT_EQ(config.hcclOpExpansionMode, 0u);
  EXPECT_EQ(config.hcclWorldRankID, 0u);
  EXPECT_EQ(config.hcclJobID, 0u);
  EXPECT_EQ(config.aclGraphZeroCopyEnable, 0);
  EXPECT_EQ(config.hcclSymWinMaxMemSizePerRank, 16u);
  for (const char* text : {config.hcclCommName, config.hcclUdi, config.hcclAlgo,
                           config.hcclRetryEnable, config.hcclRetryParams, config.hcclBufferName}) {
    EXPECT_STREQ(text, "");
  }
  HcclCommConfigInit(nullptr);
}

}  // namespace
