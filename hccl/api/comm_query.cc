// Queries of communicators: hccl/hccl_comm.h, hccl/hccl_framework.h.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "hccl/api/checks.h"
#include "hccl/api/state.h"
#include "hccl/hccl_comm.h"
#include "hccl/hccl_framework.h"

using hccl::Code;
using hccl::Result;
using hccl::Status;
using hccl::api::guard;
using hccl::api::on_comm;
using hccl::api::State;

namespace {

auto find(HcclComm comm) { return State::get().communicators().get(comm); }

Result<HcclComm> find_named(const char* name, const char* argument) {
  HCCL_RETURN_IF_ERROR(hccl::api::check_text(name, COMM_NAME_MAX_LENGTH - 1, argument));
  auto found = State::get().communicators().find(name);
  return found.ok() ? found : found.status().with_context(argument);
}

// Returns the communicator's name, as HcclGetCommName does.
std::string name_of(const hccl::core::Communicator& communicator) {
  return communicator.membership().name.substr(0, COMM_NAME_MAX_LENGTH - 1);
}

// Finds an operation by its name in HCCL_ALGO, for example reducescatter for reduce_scatter.
Result<hccl::Op> op_named(const std::string& word) {
  using hccl::Op;
  for (const Op op : {Op::kAllReduce, Op::kBroadcast, Op::kReduceScatter, Op::kAllGather,
                      Op::kReduce, Op::kScatter, Op::kAllToAll, Op::kBarrier}) {
    std::string known(hccl::to_string(op));
    std::erase(known, '_');
    if (word == known) return op;
  }
  return Status(Code::kPara, "op is \"" + word + "\", expected a word of HCCL_ALGO or barrier");
}

}  // namespace

extern "C" {

HcclResult HcclCommDescribeAlgorithms(HcclComm comm, const char* op, uint64_t bytes,
                                      bool deviceMemory, HcclAlgorithmInfo* infos, size_t infoSize,
                                      uint32_t* infoNum) {
  return on_comm("HcclCommDescribeAlgorithms", comm, [&](auto& communicator) -> Status {
    HCCL_CHECK_PTR(op);
    HCCL_CHECK_PTR(infoNum);
    HCCL_ASSIGN_OR_RETURN(const hccl::Op which, op_named(op));
    if (infoSize < sizeof(HcclAlgorithmInfo)) {
      return Status(Code::kPara, "infoSize is " + std::to_string(infoSize) + ", expected " +
                                     std::to_string(sizeof(HcclAlgorithmInfo)) + " or more");
    }
    if (!communicator.operations().is_open()) {
      return Status(hccl::Code::kAgain, "comm gets its algorithms with its first operation");
    }
    const auto found = communicator.operations().selection().describe(which, bytes, deviceMemory);
    const uint32_t capacity = *infoNum;
    *infoNum = static_cast<uint32_t>(found.size());
    if (infos == nullptr && capacity == 0) return {};  // the caller asks only for the number
    HCCL_CHECK_PTR(infos);
    if (capacity < found.size()) {
      return Status(Code::kPara, "infos has room for " + std::to_string(capacity) + " of " +
                                     std::to_string(found.size()) + " algorithms");
    }
    // A program built with newer headers has longer entries. The fields that this library does not
    // know become 0.
    auto* at = reinterpret_cast<std::byte*>(infos);
    std::memset(at, 0, found.size() * infoSize);
    for (const auto& each : found) {
      HcclAlgorithmInfo info{};
      each.name.copy(info.name, sizeof info.name - 1);
      each.reason.copy(info.reason, sizeof info.reason - 1);
      info.predictedUs = each.predicted_ns / 1e3;
      info.level = each.local ? 0 : 1;
      info.eligible = each.eligible;
      info.chosen = each.chosen;
      std::memcpy(at, &info, sizeof info);
      at += infoSize;
    }
    return {};
  });
}

HcclResult HcclGetRankSize(HcclComm comm, uint32_t* rankSize) {
  return on_comm("HcclGetRankSize", comm, [&](auto& communicator) -> Status {
    HCCL_CHECK_PTR(rankSize);
    *rankSize = static_cast<uint32_t>(communicator.size());
    return {};
  });
}

HcclResult HcclGetRankId(HcclComm comm, uint32_t* rank) {
  return on_comm("HcclGetRankId", comm, [&](auto& communicator) -> Status {
    HCCL_CHECK_PTR(rank);
    *rank = static_cast<uint32_t>(communicator.rank());
    return {};
  });
}

HcclResult HcclCommGetWorldRanks(HcclComm comm, uint32_t* worldRanks) {
  return on_comm("HcclCommGetWorldRanks", comm, [&](auto& communicator) -> Status {
    HCCL_CHECK_PTR(worldRanks);
    std::ranges::copy(communicator.membership().ranks, worldRanks);
    return {};
  });
}

HcclResult HcclGetCommName(HcclComm comm, char* commName) {
  return on_comm("HcclGetCommName", comm, [&](auto& communicator) -> Status {
    HCCL_CHECK_PTR(commName);
    const std::string name = name_of(communicator);
    std::memcpy(commName, name.c_str(), name.size() + 1);
    return {};
  });
}

HcclResult HcclCommGetHandleWithName(const char* commName, HcclComm* comm) {
  return guard("HcclCommGetHandleWithName", [&]() -> Status {
    HCCL_CHECK_PTR(commName);
    HCCL_CHECK_PTR(comm);
    HCCL_ASSIGN_OR_RETURN(*comm, find_named(commName, "commName"));
    return {};
  });
}

HcclResult HcclCommGetStatus(const char* commId, HcclCommStatus* status) {
  return guard("HcclCommGetStatus", [&]() -> Status {
    HCCL_CHECK_PTR(commId);
    HCCL_CHECK_PTR(status);
    HCCL_ASSIGN_OR_RETURN(const HcclComm comm, find_named(commId, "commId"));
    HCCL_ASSIGN_OR_RETURN(const auto communicator, find(comm));
    *status = !communicator->async_error().ok()           ? HCCL_COMM_STATUS_INVALID
              : communicator->settings().suspended.load() ? HCCL_COMM_STATUS_SUSPENDING
                                                          : HCCL_COMM_STATUS_READY;
    return {};
  });
}

HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult* asyncError) {
  return on_comm("HcclGetCommAsyncError", comm, [&](auto& communicator) -> Status {
    HCCL_CHECK_PTR(asyncError);
    const Status failure = communicator.async_error();
    // HCCL knows only these two results.
    *asyncError = failure.ok() ? HCCL_SUCCESS : HCCL_E_REMOTE;
    if (!failure.ok()) hccl::api::set_last_error(failure.message());
    return {};
  });
}

HcclResult HcclConfigGetInfo(HcclComm comm, HcclConfigType cfgType, uint32_t infoLen, void* info) {
  return on_comm("HcclConfigGetInfo", comm, [&](auto& communicator) -> Status {
    const auto wrong_length = [&](const std::string& expected) {
      return Status(Code::kPara,
                    "infoLen is " + std::to_string(infoLen) + ", it must be " + expected);
    };
    switch (cfgType) {
      case HCCL_CONFIG_TYPE_OP_EXPANSION_MODE: {
        if (infoLen != sizeof(HcclOpExpansionMode)) {
          return wrong_length(std::to_string(sizeof(HcclOpExpansionMode)));
        }
        HCCL_CHECK_PTR(info);
        HCCL_ASSIGN_OR_RETURN(const auto about, State::get().communicators().about(comm));
        std::memcpy(info, &about.expansion, sizeof about.expansion);
        return {};
      }
      case HCCL_CONFIG_TYPE_HCCL_ALGO: {
        if (infoLen < HCCL_COMM_ALGO_MAX_LENGTH) {
          return wrong_length("at least " + std::to_string(HCCL_COMM_ALGO_MAX_LENGTH));
        }
        HCCL_CHECK_PTR(info);
        const std::string algo =
            communicator.membership().config.algo.substr(0, HCCL_COMM_ALGO_MAX_LENGTH - 1);
        std::memcpy(info, algo.c_str(), algo.size() + 1);
        return {};
      }
      case HCCL_CONFIG_TYPE_DETERMINISTIC: {
        const auto value = static_cast<uint32_t>(communicator.settings().deterministic.load());
        if (infoLen != sizeof value) return wrong_length(std::to_string(sizeof value));
        HCCL_CHECK_PTR(info);
        std::memcpy(info, &value, sizeof value);
        return {};
      }
      case HCCL_CONFIG_TYPE_UB_MULTI_CHANNEL_NUM:
      case HCCL_CONFIG_TYPE_UDI:
        return Status(Code::kNotSupport,
                      "cfgType " + std::to_string(cfgType) + " is of hardware that is not here");
      default:
        break;
    }
    return Status(Code::kPara, "cfgType " + std::to_string(cfgType) + " is unknown");
  });
}

}  // extern "C"
