#include "hccl/api/comm_config.h"

#include <array>
#include <cstring>
#include <string_view>

#include "hccl/base/npu_settings.h"
#include "hccl/select/algorithms.h"

namespace hccl::api {
namespace {

// The first bytes of an HcclCommConfig.
struct Head {
  std::size_t size;
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t reserved;
};
static_assert(sizeof(Head) == HCCL_COMM_CONFIG_INFO_BYTES);

// The version of HcclCommConfig that introduced a field.
enum Since : std::uint32_t {
  kBufferSize = 1,
  kDeterministic = 1,
  kName = 2,
  kUdi = 3,
  kExpansionMode = 4,
  kTrafficClass = 5,
  kServiceLevel = 5,
  kWorldRank = 6,
  kZeroCopy = 7,
  kExecTimeOut = 8,
  kAlgo = 8,
  kRetry = 8,
  kBufferName = 9,
};

Status bad(const char* field, const std::string& value, const char* expected) {
  return Status(Code::kPara,
                std::string("config.") + field + " is " + value + ", it must be " + expected);
}

// Returns the text in a field of fixed length.
template <std::size_t kSize>
Result<std::string> text(const char (&field)[kSize], const char* name) {
  const std::size_t length = ::strnlen(field, kSize);
  if (length < kSize) return std::string(field, length);
  return Status(Code::kPara, std::string("config.") + name + " has no end within " +
                                 std::to_string(kSize) + " bytes");
}

HcclOpExpansionMode expansion(std::uint32_t mode, const Log& log) {
  constexpr std::array kModes{HCCL_OP_EXPANSION_MODE_HOST,     HCCL_OP_EXPANSION_MODE_HOST,
                              HCCL_OP_EXPANSION_MODE_AI_CPU,   HCCL_OP_EXPANSION_MODE_AIV,
                              HCCL_OP_EXPANSION_MODE_AIV_ONLY, HCCL_OP_EXPANSION_MODE_CCU_MS,
                              HCCL_OP_EXPANSION_MODE_CCU_SCHED};
  if (mode < kModes.size()) return kModes[mode];
  log.warn("config.hcclOpExpansionMode {} is unknown: HOST is used", mode);
  return HCCL_OP_EXPANSION_MODE_HOST;
}

// Reads the fields that have an effect.
Status load_effective(const HcclCommConfig& given, std::uint32_t version, CommConfig& out,
                      const Log& log) {
  if (version >= kBufferSize && given.hcclBufferSize != HCCL_COMM_BUFFSIZE_CONFIG_NOT_SET) {
    if (given.hcclBufferSize == 0 || given.hcclBufferSize > (1u << 20)) {
      return bad("hcclBufferSize", std::to_string(given.hcclBufferSize), "1 to 1048576 (MB)");
    }
    out.config.buffer_mb = given.hcclBufferSize;
  }
  if (version >= kDeterministic &&
      given.hcclDeterministic != HCCL_COMM_DETERMINISTIC_CONFIG_NOT_SET) {
    if (given.hcclDeterministic > 2) {
      return bad("hcclDeterministic", std::to_string(given.hcclDeterministic), "0, 1 or 2");
    }
    out.config.deterministic = static_cast<Deterministic>(given.hcclDeterministic);
    out.about.own_deterministic = true;
  }
  if (version >= kName) {
    HCCL_ASSIGN_OR_RETURN(out.name, text(given.hcclCommName, "hcclCommName"));
  }
  if (version >= kExpansionMode) out.about.expansion = expansion(given.hcclOpExpansionMode, log);
  if (version >= kExecTimeOut && given.hcclExecTimeOut != HCCL_COMM_EXECTIMEOUT_CONFIG_NOT_SET) {
    if (given.hcclExecTimeOut < 0) {
      log.warn("config.hcclExecTimeOut {} is out of range: {} s is used", given.hcclExecTimeOut,
               out.config.exec_timeout.count());
    } else {
      out.config.exec_timeout = std::chrono::seconds(given.hcclExecTimeOut);
    }
  }
  if (version >= kAlgo) {
    HCCL_ASSIGN_OR_RETURN(const std::string algo, text(given.hcclAlgo, "hcclAlgo"));
    if (!algo.empty()) {
      HCCL_RETURN_IF_ERROR(out.config.set_algo(algo).with_context("config.hcclAlgo"));
      HCCL_RETURN_IF_ERROR(select::check_names(out.config).with_context("config.hcclAlgo"));
    }
  }
  return {};
}

// Checks the fields about devices and their network, which have no effect.
Status check_others(const HcclCommConfig& given, std::uint32_t version) {
  if (version >= kUdi) HCCL_RETURN_IF_ERROR(text(given.hcclUdi, "hcclUdi").status());
  if (version >= kTrafficClass &&
      given.hcclRdmaTrafficClass != HCCL_COMM_TRAFFIC_CLASS_CONFIG_NOT_SET &&
      (given.hcclRdmaTrafficClass > 255 || given.hcclRdmaTrafficClass % 4 != 0)) {
    return bad("hcclRdmaTrafficClass", std::to_string(given.hcclRdmaTrafficClass),
               "a multiple of 4, 0 to 255");
  }
  if (version >= kServiceLevel &&
      given.hcclRdmaServiceLevel != HCCL_COMM_SERVICE_LEVEL_CONFIG_NOT_SET &&
      given.hcclRdmaServiceLevel > 7) {
    return bad("hcclRdmaServiceLevel", std::to_string(given.hcclRdmaServiceLevel), "0 to 7");
  }
  if (version >= kZeroCopy && given.aclGraphZeroCopyEnable > 1) {
    return bad("aclGraphZeroCopyEnable", std::to_string(given.aclGraphZeroCopyEnable), "0 or 1");
  }
  if (version >= kRetry) {
    HCCL_ASSIGN_OR_RETURN(const std::string enable, text(given.hcclRetryEnable, "hcclRetryEnable"));
    if (!is_retry_enable(enable)) {
      return bad("hcclRetryEnable", "\"" + enable + "\"", kRetryEnableExpected);
    }
    HCCL_ASSIGN_OR_RETURN(const std::string params, text(given.hcclRetryParams, "hcclRetryParams"));
    if (!is_retry_params(params)) {
      return bad("hcclRetryParams", "\"" + params + "\"", kRetryParamsExpected);
    }
  }
  if (version >= kBufferName) {
    HCCL_RETURN_IF_ERROR(text(given.hcclBufferName, "hcclBufferName").status());
  }
  return {};
}

}  // namespace

Result<CommConfig> load_comm_config(const HcclCommConfig* given, const Config& environment,
                                    const Logger& log) {
  CommConfig out;
  out.config = environment;
  if (given == nullptr) return out;
  Head head;
  std::memcpy(&head, given->reserved, sizeof head);
  if (head.magic != HCCL_COMM_CONFIG_MAGIC_WORD) {
    return Status(Code::kPara, "config was not filled by HcclCommConfigInit");
  }
  if (head.version != HCCL_COMM_CONFIG_VERSION || head.size != sizeof(HcclCommConfig)) {
    log->warn("config has version {} and {} bytes, this library's has version {} and {}",
              head.version, head.size, HCCL_COMM_CONFIG_VERSION, sizeof(HcclCommConfig));
  }
  HCCL_RETURN_IF_ERROR(load_effective(*given, head.version, out, *log));
  HCCL_RETURN_IF_ERROR(check_others(*given, head.version));
  return out;
}

}  // namespace hccl::api
