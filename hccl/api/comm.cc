// Joining and leaving: hccl/hccl_comm.h.
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "hccl/api/call_group.h"
#include "hccl/api/comm_config.h"
#include "hccl/api/guard.h"
#include "hccl/api/state.h"
#include "hccl/base/caught.h"
#include "hccl/hccl_comm.h"

using hccl::Code;
using hccl::Result;
using hccl::Status;
using hccl::api::CommunicatorPtr;
using hccl::api::Communicators;
using hccl::api::guard;
using hccl::api::State;

static_assert(HCCL_ROOT_INFO_BYTES == hccl::join::RootInfo::kBytes);
static_assert(HCCL_E_REMOTE == static_cast<int>(Code::kRemote));
static_assert(HCCL_E_OOM == static_cast<int>(Code::kOom));
static_assert(HCCL_E_TIMEOUT == static_cast<int>(Code::kTimeout));

namespace {

constexpr uint32_t kMostRanks = 32768;
constexpr std::size_t kPathBytes = 4096;  // including the NUL
constexpr const char* kWorldName = "hccl_world_group";

Status give(Result<CommunicatorPtr> made, Communicators::About about, HcclComm* comm) {
  if (!made.ok()) return made.status();
  *comm = State::get().communicators().add(std::move(made).value(), std::move(about));
  return {};
}

using JoinCall = Result<std::function<Status()>>;

// Checks the arguments. Returns the rest of the call, which joins and stores the handle in `comm`.
JoinCall join_root(uint32_t size, const HcclRootInfo* root, uint32_t rank,
                   const HcclCommConfig* given, HcclComm* comm) {
  if (size == 0 || size > kMostRanks) {
    return Status(Code::kPara, "nRanks is " + std::to_string(size) + ", it must be 1 to " +
                                   std::to_string(kMostRanks));
  }
  if (rank >= size) {
    return Status(Code::kPara,
                  "rank is " + std::to_string(rank) + ", nRanks is " + std::to_string(size));
  }
  const auto info =
      hccl::join::RootInfo::decode(std::span<const char, HCCL_ROOT_INFO_BYTES>(root->internal));
  if (!info.ok()) return info.status().with_context("rootInfo");
  State& state = State::get();
  HCCL_ASSIGN_OR_RETURN(const auto environment, state.config());
  HCCL_ASSIGN_OR_RETURN(auto own, hccl::api::load_comm_config(given, environment, state.log()));
  own.about.family =
      "root " + std::string(reinterpret_cast<const char*>(info->id.data()), info->id.size());
  const bool named = !own.name.empty();
  if (!named) {
    own.name = info->address + "%" + info->name() + "_" + std::to_string(info->port);
  }
  const int its_size = static_cast<int>(size), its_rank = static_cast<int>(rank);
  const auto join = [=, root = *info]() -> Status {
    State& its = State::get();
    HCCL_ASSIGN_OR_RETURN(const auto claim,
                          its.communicators().claim(own.name, own.about.family, its_rank));
    return give(
        its.open(its.worlds().join(root, its_size, its_rank, own.config), own.config, own.name),
        own.about, comm);
  };
  return std::function<Status()>(join);
}

// As join_root().
JoinCall join_cluster(const char* path, uint32_t rank, const HcclCommConfig* given,
                      HcclComm* comm) {
  if (::strnlen(path, kPathBytes) == kPathBytes) {
    return Status(Code::kPara, "clusterInfo has more than 4095 bytes");
  }
  State& state = State::get();
  HCCL_ASSIGN_OR_RETURN(const auto environment, state.config());
  HCCL_ASSIGN_OR_RETURN(auto own, hccl::api::load_comm_config(given, environment, state.log()));
  own.about.family = std::string("table ") + path;
  const auto join_table = [own = std::move(own), table = std::string(path), rank,
                           comm]() -> Status {
    State& its = State::get();
    const hccl::api::ClusterWorlds::Rank world{table, rank};
    HCCL_RETURN_IF_ERROR(its.cluster_worlds().reserve(world));
    const auto join = [&]() -> Result<CommunicatorPtr> {
      // The worlds of different rank tables may all have the default name of a world. Any other
      // name is unique.
      Communicators::Claim claim;
      if (!own.name.empty()) {
        HCCL_ASSIGN_OR_RETURN(
            claim, its.communicators().claim(own.name, own.about.family, static_cast<int>(rank)));
      }
      auto joined = its.open(its.worlds().join_by_file(table, std::to_string(rank), own.config),
                             own.config, own.name.empty() ? std::string(kWorldName) : own.name);
      if (!joined.ok()) return joined.status().with_context("clusterInfo");
      HCCL_RETURN_IF_ERROR(give(*joined, own.about, comm));
      return joined;
    };
    // Also after an exception this rank can join again.
    return its.cluster_worlds().record(world, hccl::guarded(join)).status();
  };
  return std::function<Status()>(join_table);
}

// Runs a function that makes a communicator: now, or at the end of the thread's group of calls. If
// check() refuses the arguments, the group does not run.
template <class Check>
HcclResult make(const char* function, Check check) noexcept {
  return guard(function, [&]() -> Status {
    try {
      auto join = check();
      const Status status =
          join.ok() ? hccl::api::join_later(function, std::move(*join)) : join.status();
      if (!status.ok()) hccl::api::refuse_call_group(status, function);
      return status;
    } catch (...) {
      hccl::api::refuse_call_group(hccl::caught(), function);
      throw;
    }
  });
}

}  // namespace

extern "C" {

HcclResult HcclGetRootInfo(HcclRootInfo* rootInfo) {
  return guard("HcclGetRootInfo", [&]() -> Status {
    HCCL_CHECK_PTR(rootInfo);
    HCCL_ASSIGN_OR_RETURN(const auto config, State::get().config());
    HCCL_ASSIGN_OR_RETURN(const auto info, State::get().worlds().make_root(config, false));
    info.encode(std::span<char, HCCL_ROOT_INFO_BYTES>(rootInfo->internal));
    return {};
  });
}

HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank,
                                HcclComm* comm) {
  return make("HcclCommInitRootInfo", [&]() -> JoinCall {
    HCCL_CHECK_PTR(rootInfo);
    HCCL_CHECK_PTR(comm);
    return join_root(nRanks, rootInfo, rank, nullptr, comm);
  });
}

HcclResult HcclCommInitRootInfoConfig(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank,
                                      const HcclCommConfig* config, HcclComm* comm) {
  return make("HcclCommInitRootInfoConfig", [&]() -> JoinCall {
    HCCL_CHECK_PTR(rootInfo);
    HCCL_CHECK_PTR(config);
    HCCL_CHECK_PTR(comm);
    return join_root(nRanks, rootInfo, rank, config, comm);
  });
}

HcclResult HcclCommInitClusterInfo(const char* clusterInfo, uint32_t rank, HcclComm* comm) {
  return make("HcclCommInitClusterInfo", [&]() -> JoinCall {
    HCCL_CHECK_PTR(clusterInfo);
    HCCL_CHECK_PTR(comm);
    return join_cluster(clusterInfo, rank, nullptr, comm);
  });
}

HcclResult HcclCommInitClusterInfoConfig(const char* clusterInfo, uint32_t rank,
                                         HcclCommConfig* config, HcclComm* comm) {
  return make("HcclCommInitClusterInfoConfig", [&]() -> JoinCall {
    HCCL_CHECK_PTR(clusterInfo);
    HCCL_CHECK_PTR(config);
    HCCL_CHECK_PTR(comm);
    return join_cluster(clusterInfo, rank, config, comm);
  });
}

HcclResult HcclCommInitLauncher(HcclComm* comm) {
  return guard("HcclCommInitLauncher", [&]() -> Status {
    HCCL_CHECK_PTR(comm);
    State& state = State::get();
    HCCL_ASSIGN_OR_RETURN(const auto config, state.config());
    return give(state.open(state.worlds().join_by_launcher(config), config, kWorldName), {}, comm);
  });
}

HcclResult HcclCommDestroy(HcclComm comm) {
  return guard("HcclCommDestroy", [&]() -> Status {
    State& state = State::get();
    if (const std::string group = state.groups().name_of(comm); !group.empty()) {
      return Status(Code::kPara, "comm belongs to the group \"" + group +
                                     "\": HcomDestroyGroup or HcomDestroy comes first");
    }
    // The callbacks run only if the destruction will probably succeed.
    HCCL_RETURN_IF_ERROR(state.communicators().unused(comm));
    {
      HCCL_ASSIGN_OR_RETURN(const auto communicator, state.communicators().get(comm));
      HCCL_RETURN_IF_ERROR(hccl::api::idle(*communicator));
    }
    HCCL_RETURN_IF_ERROR(state.callbacks().call(comm, HCCL_COMM_STATE_PHASE_DESTROY_PRE));
    {
      HCCL_ASSIGN_OR_RETURN(const auto communicator,
                            state.communicators().take(comm, hccl::api::idle));
      state.memory().forget(comm);
      communicator->leave();
    }
    const Status told = state.callbacks().call(comm, HCCL_COMM_STATE_PHASE_DESTROY_POST);
    if (!told.ok()) state.log()->warn("HcclCommDestroy: {}", told.message());
    return {};
  });
}

}  // extern "C"
