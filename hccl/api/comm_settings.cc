// Settings of the process and of single communicators, and a setting for hardware that hosts lack:
// hccl/hccl_comm.h.
#include <string>

#include "hccl/api/checks.h"
#include "hccl/api/guard.h"
#include "hccl/api/state.h"
#include "hccl/hccl_comm.h"

using hccl::Code;
using hccl::Status;
using hccl::api::guard;
using hccl::api::on_comm;
using hccl::api::State;

namespace {

Status check_config(HcclConfig config) {
  if (config == HCCL_DETERMINISTIC) return {};
  return Status(Code::kPara, "config " + std::to_string(static_cast<int>(config)) + " is unknown");
}

Status check_value(HcclConfigValue value) {
  if (value.value >= 0 && value.value <= 2) return {};
  return Status(Code::kPara,
                "configValue is " + std::to_string(value.value) + ", it must be 0, 1 or 2");
}

}  // namespace

extern "C" {

HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue configValue) {
  return guard("HcclSetConfig", [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_config(config));
    HCCL_RETURN_IF_ERROR(check_value(configValue));
    return State::get().set_deterministic(static_cast<hccl::Deterministic>(configValue.value));
  });
}

HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue* configValue) {
  return guard("HcclGetConfig", [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_config(config));
    HCCL_CHECK_PTR(configValue);
    HCCL_ASSIGN_OR_RETURN(const auto now, State::get().config());
    configValue->value = static_cast<int32_t>(now.deterministic);
    return {};
  });
}

HcclResult HcclSetCommConfig(HcclComm comm, HcclConfig config, HcclConfigValue configValue) {
  return guard("HcclSetCommConfig", [&]() -> Status {
    auto& communicators = State::get().communicators();
    HCCL_ASSIGN_OR_RETURN(const auto communicator, communicators.get(comm));
    HCCL_RETURN_IF_ERROR(check_config(config));
    HCCL_RETURN_IF_ERROR(check_value(configValue));
    communicators.set_deterministic(comm, static_cast<hccl::Deterministic>(configValue.value));
    return {};
  });
}

HcclResult HcclGetCommConfig(HcclComm comm, HcclConfig config, HcclConfigValue* configValue) {
  return on_comm("HcclGetCommConfig", comm, [&](auto& communicator) -> Status {
    HCCL_RETURN_IF_ERROR(check_config(config));
    HCCL_CHECK_PTR(configValue);
    configValue->value = static_cast<int32_t>(communicator.settings().deterministic.load());
    return {};
  });
}

uint32_t HcclGetCommConfigCapability(void) { return HCCL_COMM_CONFIG_RESERVED; }

HcclResult HcclCommWorkingDevNicSet(HcclComm comm, uint32_t* ranks, bool* useBackup,
                                    uint32_t nRanks) {
  return guard("HcclCommWorkingDevNicSet", [&]() -> Status {
    State& state = State::get();
    HCCL_ASSIGN_OR_RETURN(const auto communicator, state.communicators().get(comm));
    HCCL_CHECK_PTR(ranks);
    HCCL_CHECK_PTR(useBackup);
    if (nRanks == 0 || nRanks > static_cast<uint32_t>(communicator->size())) {
      return Status(Code::kPara, "nRanks is " + std::to_string(nRanks) + ", the communicator has " +
                                     std::to_string(communicator->size()) + " ranks");
    }
    for (uint32_t i = 0; i < nRanks; ++i) {
      const std::string where = "ranks[" + std::to_string(i) + "]";
      HCCL_RETURN_IF_ERROR(hccl::api::check_rank(ranks[i], communicator->size(), where.c_str()));
    }
    state.log()->warn("HcclCommWorkingDevNicSet: this host has no other network cards");
    return {};
  });
}

}  // extern "C"
