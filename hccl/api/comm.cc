// Communicators: hccl/hccl_comm.h.
#include <cstring>
#include <string>

#include "hccl/api/guard.h"
#include "hccl/api/launch.h"
#include "hccl/api/state.h"
#include "hccl/base/auth.h"
#include "hccl/core/interfaces.h"
#include "hccl/hccl_comm.h"

using hccl::Code;
using hccl::Result;
using hccl::Status;
using hccl::api::CommunicatorPtr;
using hccl::api::guard;
using hccl::api::State;

static_assert(HCCL_ROOT_INFO_BYTES == hccl::core::RootInfo::kBytes);
static_assert(HCCL_E_REMOTE == static_cast<int>(Code::kRemote));
static_assert(HCCL_E_OOM == static_cast<int>(Code::kOom));
static_assert(HCCL_E_TIMEOUT == static_cast<int>(Code::kTimeout));

namespace {

constexpr uint32_t kMostRanks = 32768;
constexpr std::size_t kPathBytes = 4096;  // with the NUL

Status give(Result<CommunicatorPtr> made, HcclComm* comm) {
  if (!made.ok()) return made.status();
  *comm = State::get().communicators().add(std::move(made).value());
  return {};
}

}  // namespace

extern "C" {

HcclResult HcclGetRootInfo(HcclRootInfo* rootInfo) {
  return guard("HcclGetRootInfo", [&]() -> Status {
    HCCL_CHECK_PTR(rootInfo);
    HCCL_ASSIGN_OR_RETURN(const auto info, hccl::api::make_root());
    info.encode(std::span<char, HCCL_ROOT_INFO_BYTES>(rootInfo->internal));
    return {};
  });
}

HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank,
                                HcclComm* comm) {
  return guard("HcclCommInitRootInfo", [&]() -> Status {
    HCCL_CHECK_PTR(rootInfo);
    HCCL_CHECK_PTR(comm);
    if (nRanks == 0 || nRanks > kMostRanks) {
      return Status(Code::kPara, "nRanks is " + std::to_string(nRanks) + ", it must be 1 to " +
                                     std::to_string(kMostRanks));
    }
    if (rank >= nRanks) {
      return Status(Code::kPara,
                    "rank is " + std::to_string(rank) + ", nRanks is " + std::to_string(nRanks));
    }
    const auto info = hccl::core::RootInfo::decode(
        std::span<const char, HCCL_ROOT_INFO_BYTES>(rootInfo->internal));
    if (!info.ok()) return info.status().with_context("rootInfo");
    HCCL_ASSIGN_OR_RETURN(const auto config, State::get().config());
    return give(
        State::get().join(*info, static_cast<int>(nRanks), static_cast<int>(rank), config,
                          info->address + "%" + info->name() + "_" + std::to_string(info->port)),
        comm);
  });
}

HcclResult HcclCommInitClusterInfo(const char* clusterInfo, uint32_t rank, HcclComm* comm) {
  return guard("HcclCommInitClusterInfo", [&]() -> Status {
    HCCL_CHECK_PTR(clusterInfo);
    HCCL_CHECK_PTR(comm);
    if (::strnlen(clusterInfo, kPathBytes) == kPathBytes) {
      return Status(Code::kPara, "clusterInfo has more than 4095 bytes");
    }
    auto& worlds = State::get().cluster_worlds();
    HCCL_RETURN_IF_ERROR(worlds.reserve({clusterInfo, rank}));
    auto made = hccl::api::join_by_file(clusterInfo, std::to_string(rank), "hccl_world_group");
    if (!made.ok()) made = made.status().with_context("clusterInfo");
    return give(worlds.keep({clusterInfo, rank}, std::move(made)), comm);
  });
}

HcclResult HcclCommInitLauncher(HcclComm* comm) {
  return guard("HcclCommInitLauncher", [&]() -> Status {
    HCCL_CHECK_PTR(comm);
    return give(hccl::api::join_by_launcher("hccl_world_group"), comm);
  });
}

HcclResult HcclCommDestroy(HcclComm comm) {
  return guard("HcclCommDestroy", [&]() -> Status {
    if (const std::string group = State::get().groups().name_of(comm); !group.empty()) {
      return Status(Code::kPara, "comm belongs to the group \"" + group +
                                     "\": HcomDestroyGroup or HcomDestroy comes first");
    }
    HCCL_ASSIGN_OR_RETURN(const auto communicator,
                          State::get().communicators().take(comm, hccl::api::idle));
    communicator->leave();
    return {};
  });
}

HcclResult HcclGetRankSize(HcclComm comm, uint32_t* rankSize) {
  return guard("HcclGetRankSize", [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto communicator, State::get().communicators().get(comm));
    HCCL_CHECK_PTR(rankSize);
    *rankSize = static_cast<uint32_t>(communicator->size());
    return {};
  });
}

HcclResult HcclGetRankId(HcclComm comm, uint32_t* rank) {
  return guard("HcclGetRankId", [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto communicator, State::get().communicators().get(comm));
    HCCL_CHECK_PTR(rank);
    *rank = static_cast<uint32_t>(communicator->rank());
    return {};
  });
}

HcclResult HcclGetCommName(HcclComm comm, char* commName) {
  return guard("HcclGetCommName", [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto communicator, State::get().communicators().get(comm));
    HCCL_CHECK_PTR(commName);
    const std::string name = communicator->name().substr(0, COMM_NAME_MAX_LENGTH - 1);
    std::memcpy(commName, name.c_str(), name.size() + 1);
    return {};
  });
}

HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult* asyncError) {
  return guard("HcclGetCommAsyncError", [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto communicator, State::get().communicators().get(comm));
    HCCL_CHECK_PTR(asyncError);
    *asyncError = static_cast<HcclResult>(communicator->async_error().code());
    return {};
  });
}

}  // extern "C"
