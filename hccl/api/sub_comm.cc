// A communicator of some of a world's ranks: HcclCreateSubCommConfig and HcclCommCreateGroup.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hccl/api/checks.h"
#include "hccl/api/comm_config.h"
#include "hccl/api/guard.h"
#include "hccl/api/state.h"
#include "hccl/hccl_framework.h"

namespace {

using hccl::Code;
using hccl::Result;
using hccl::Status;
using hccl::api::State;

constexpr uint64_t kNoMember = 0xFFFFFFFF;  // HCCL's subCommId of a rank that is no member

Result<std::vector<int>> check_ranks(const hccl::core::Communicator& world, uint32_t number,
                                     const uint32_t* ids, std::optional<uint32_t> mine) {
  const auto bad = [](std::string text) { return Status(Code::kPara, std::move(text)); };
  if (number == 0 || number > static_cast<uint32_t>(world.size())) {
    return bad("rankNum is " + std::to_string(number) + ", the world has " +
               std::to_string(world.size()) + " ranks");
  }
  std::vector<int> ranks;
  std::vector<bool> seen(static_cast<std::size_t>(world.size()));
  for (uint32_t i = 0; i < number; ++i) {
    const std::string where = "rankIds[" + std::to_string(i) + "]";
    HCCL_RETURN_IF_ERROR(hccl::api::check_rank(ids[i], world.size(), where.c_str()));
    if (seen[ids[i]]) return bad(where + " is " + std::to_string(ids[i]) + ", for the second time");
    seen[ids[i]] = true;
    ranks.push_back(static_cast<int>(ids[i]));
  }
  if (mine && (*mine >= number || ranks[*mine] != world.rank())) {
    return bad("subCommRankId is " + std::to_string(*mine) + ", which is not where rankIds has " +
               std::to_string(world.rank()) + ", the caller");
  }
  if (!seen[static_cast<std::size_t>(world.rank())]) {
    return bad("rankIds does not have " + std::to_string(world.rank()) + ", the caller");
  }
  return ranks;
}

/// A call whose arguments have passed the checks.
struct Request {
  std::vector<int> ranks;
  hccl::api::CommConfig own;
  hccl::api::Communicators::Claim claim;
};

/// Checks the arguments. Without a name in the configuration, the name is the world's with
/// `suffix`.
Result<Request> prepare(const hccl::core::Communicator& world, uint32_t number, const uint32_t* ids,
                        std::optional<uint32_t> mine, const HcclCommConfig* config,
                        const std::string& suffix) {
  Request request;
  HCCL_ASSIGN_OR_RETURN(request.ranks, check_ranks(world, number, ids, mine));
  State& state = State::get();
  auto environment = world.config();
  environment.deterministic = world.settings().deterministic();
  HCCL_ASSIGN_OR_RETURN(auto own, hccl::api::load_comm_config(config, environment, state.log()));
  if (own.name.empty()) own.name = world.name() + suffix;
  if (own.name.size() >= COMM_NAME_MAX_LENGTH) {
    return Status(Code::kPara, "the name that comm's gives, \"" + own.name + "\", is too long");
  }
  const auto& uuid = world.id();
  own.about.family =
      suffix + " " + std::string(reinterpret_cast<const char*>(uuid.data()), uuid.size());
  const auto place = std::find(request.ranks.begin(), request.ranks.end(), world.rank());
  HCCL_ASSIGN_OR_RETURN(
      request.claim, state.communicators().claim(own.name, own.about.family,
                                                 static_cast<int>(place - request.ranks.begin())));
  request.own = std::move(own);
  return request;
}

Result<Request> check(const hccl::core::Communicator& world, uint32_t number, const uint32_t* ids,
                      uint64_t id, uint32_t mine, const HcclCommConfig* config) {
  if (!world.is_world()) return Status(Code::kPara, "comm is a sub-communicator itself");
  if (ids == nullptr) return hccl::api::null_pointer("rankIds");
  if (config == nullptr) return hccl::api::null_pointer("config");
  if (id == kNoMember) {
    return Status(Code::kPara, "subCommId is 0xFFFFFFFF, which is for ranks that are no members");
  }
  return prepare(world, number, ids, mine, config, "_sub_" + std::to_string(id));
}

Result<Request> check_group(const hccl::core::Communicator& world, uint32_t number,
                            const uint32_t* ids, const char* name, uint64_t milliseconds) {
  if (!world.is_world()) return Status(Code::kPara, "world is a group itself");
  if (ids == nullptr) return hccl::api::null_pointer("rankIds");
  if (name == nullptr) return hccl::api::null_pointer("name");
  HCCL_RETURN_IF_ERROR(hccl::api::check_milliseconds(milliseconds, "timeoutMs"));
  return prepare(world, number, ids, {}, nullptr,
                 std::string("_").append(name, ::strnlen(name, COMM_NAME_MAX_LENGTH)));
}

Status make(HcclComm handle, hccl::core::Communicator& world, Result<Request> request,
            const char* function, uint64_t id, std::chrono::milliseconds patience, bool idle,
            HcclComm* comm) {
  if (!request.ok()) {
    world.refused_group(std::string(function) + ": " + request.status().message());
    return request.status();
  }
  auto& communicators = State::get().communicators();
  auto& own = request->own;
  const std::uint64_t instance =
      communicators.next_instance(handle, own.name, request->ranks) * kNoMember + id;
  HCCL_ASSIGN_OR_RETURN(
      auto made, world.group(own.name, request->ranks, instance, &own.config, patience, idle));
  *comm = communicators.add(std::move(made), std::move(own.about));
  return {};
}

}  // namespace

extern "C" {

HcclResult HcclCreateSubCommConfig(HcclComm* comm, uint32_t rankNum, uint32_t* rankIds,
                                   uint64_t subCommId, uint32_t subCommRankId,
                                   HcclCommConfig* config, HcclComm* subComm) {
  static constexpr const char* kFunction = "HcclCreateSubCommConfig";
  return hccl::api::guard(kFunction, [&]() -> Status {
    HCCL_CHECK_PTR(comm);
    State& state = State::get();
    HCCL_ASSIGN_OR_RETURN(const auto world, state.communicators().get(*comm));
    if (subComm != nullptr && rankIds == nullptr && subCommId == kNoMember && world->is_world()) {
      *subComm = nullptr;
      return {};
    }
    auto request = subComm == nullptr
                       ? Result<Request>(hccl::api::null_pointer("subComm"))
                       : check(*world, rankNum, rankIds, subCommId, subCommRankId, config);
    return make(*comm, *world, std::move(request), kFunction, subCommId, {}, false, subComm);
  });
}

HcclResult HcclCommCreateGroup(HcclComm world, uint32_t rankNum, const uint32_t* rankIds,
                               const char* name, uint64_t timeoutMs, HcclComm* comm) {
  static constexpr const char* kFunction = "HcclCommCreateGroup";
  return hccl::api::guard(kFunction, [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto whole, State::get().communicators().get(world));
    const Status made =
        make(world, *whole,
             comm == nullptr ? Result<Request>(hccl::api::null_pointer("comm"))
                             : check_group(*whole, rankNum, rankIds, name, timeoutMs),
             kFunction, 0, std::chrono::milliseconds(timeoutMs), true, comm);
    return made.ok() || !whole->cut_off() ? made : Status(Code::kUnavail, made.message());
  });
}

}  // extern "C"
