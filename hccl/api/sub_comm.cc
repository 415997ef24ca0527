// A communicator of some ranks of another communicator: HcclCreateSubCommConfig,
// HcclCommCreateGroup, HcclCommCreateNextGroup and HcclCommShrink.
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

constexpr uint64_t kNoMember = 0xFFFFFFFF;  // HCCL's subCommId of a rank that is not a member

Status bad(std::string text) { return {Code::kPara, std::move(text)}; }

// Reads a list of ranks. Each must be a rank of `parent` and occur once. `list` is the list's name
// in error texts.
Result<std::vector<int>> read_ranks(const hccl::core::Communicator& parent, uint32_t number,
                                    const uint32_t* ids, const std::string& list) {
  std::vector<int> ranks;
  std::vector<bool> seen(static_cast<std::size_t>(parent.size()));
  for (uint32_t i = 0; i < number; ++i) {
    const std::string where = list + "[" + std::to_string(i) + "]";
    HCCL_RETURN_IF_ERROR(hccl::api::check_rank(ids[i], parent.size(), where.c_str()));
    if (seen[ids[i]]) return bad(where + " is " + std::to_string(ids[i]) + ", for the second time");
    seen[ids[i]] = true;
    ranks.push_back(static_cast<int>(ids[i]));
  }
  return ranks;
}

bool has(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

Result<std::vector<int>> check_ranks(const hccl::core::Communicator& world, uint32_t number,
                                     const uint32_t* ids, std::optional<uint32_t> mine) {
  if (number == 0 || number > static_cast<uint32_t>(world.size())) {
    return bad("rankNum is " + std::to_string(number) + ", the world has " +
               std::to_string(world.size()) + " ranks");
  }
  HCCL_ASSIGN_OR_RETURN(auto ranks, read_ranks(world, number, ids, "rankIds"));
  if (mine && (*mine >= number || ranks[*mine] != world.rank())) {
    return bad("subCommRankId is " + std::to_string(*mine) + ", which is not where rankIds has " +
               std::to_string(world.rank()) + ", the caller");
  }
  if (!has(ranks, world.rank())) {
    return bad("rankIds does not have " + std::to_string(world.rank()) + ", the caller");
  }
  return ranks;
}

// Checks the excluded ranks. Returns the ranks of `parent` that HcclCommShrink keeps if they live.
Result<std::vector<int>> check_excluded(const hccl::core::Communicator& parent, const uint32_t* ids,
                                        uint32_t number) {
  if (ids == nullptr && number != 0) return hccl::api::null_pointer("excludeIds");
  HCCL_ASSIGN_OR_RETURN(const auto excluded, read_ranks(parent, number, ids, "excludeIds"));
  if (has(excluded, parent.rank())) {
    return bad("excludeIds has " + std::to_string(parent.rank()) + ", the caller");
  }
  std::vector<int> kept;
  for (int rank = 0; rank < parent.size(); ++rank) {
    if (!has(excluded, rank)) kept.push_back(rank);
  }
  return kept;
}

// "job" becomes "job_shrunk", then "job_shrunk2", so that names stay short.
std::string shrunk_name(const std::string& parent) {
  static constexpr std::string_view kShrunk = "_shrunk";
  const std::size_t digits = parent.find_last_not_of("0123456789") + 1;
  const std::string_view stem = std::string_view(parent).substr(0, digits);
  if (!stem.ends_with(kShrunk)) return parent + std::string(kShrunk);
  const std::string_view number = std::string_view(parent).substr(digits, 9);
  return std::string(stem) +
         std::to_string(number.empty() ? 2 : std::stol(std::string(number)) + 1);
}

/// A call whose arguments have passed the checks.
struct Request {
  std::vector<int> ranks;
  hccl::api::CommConfig own;
  hccl::api::Communicators::Claim claim;
};

/// Reads the configuration. If the configuration has no name, the name is `name`. `what`
/// distinguishes the communicators that are made from `world`.
Result<Request> prepare(const hccl::core::Communicator& world, Result<std::vector<int>> ranks,
                        const HcclCommConfig* config, const std::string& name,
                        const std::string& what) {
  Request request;
  HCCL_ASSIGN_OR_RETURN(request.ranks, std::move(ranks));
  State& state = State::get();
  auto environment = world.membership().config;
  environment.deterministic = world.settings().deterministic.load();
  HCCL_ASSIGN_OR_RETURN(auto own, hccl::api::load_comm_config(config, environment, state.log()));
  if (own.name.empty()) own.name = name;
  if (own.name.size() >= COMM_NAME_MAX_LENGTH) {
    return Status(Code::kPara, "the name that comm's gives, \"" + own.name + "\", is too long");
  }
  const auto& uuid = world.membership().id;
  own.about.family =
      what + " " + std::string(reinterpret_cast<const char*>(uuid.data()), uuid.size());
  const auto place = std::find(request.ranks.begin(), request.ranks.end(), world.rank());
  HCCL_ASSIGN_OR_RETURN(
      request.claim, state.communicators().claim(own.name, own.about.family,
                                                 static_cast<int>(place - request.ranks.begin())));
  request.own = std::move(own);
  return request;
}

Result<Request> check(const hccl::core::Communicator& world, uint32_t number, const uint32_t* ids,
                      uint64_t id, uint32_t mine, const HcclCommConfig* config) {
  if (!world.membership().has_groups())
    return Status(Code::kPara, "comm is a sub-communicator itself");
  if (ids == nullptr) return hccl::api::null_pointer("rankIds");
  if (config == nullptr) return hccl::api::null_pointer("config");
  if (id == kNoMember) {
    return Status(Code::kPara, "subCommId is 0xFFFFFFFF, which is for ranks that are no members");
  }
  const std::string suffix = "_sub_" + std::to_string(id);
  return prepare(world, check_ranks(world, number, ids, mine), config,
                 world.membership().name + suffix, suffix);
}

Result<Request> check_group(const hccl::core::Communicator& world, uint32_t number,
                            const uint32_t* ids, const char* name, uint64_t milliseconds) {
  if (!world.membership().has_groups()) return Status(Code::kPara, "world is a group itself");
  if (ids == nullptr) return hccl::api::null_pointer("rankIds");
  if (name == nullptr) return hccl::api::null_pointer("name");
  HCCL_RETURN_IF_ERROR(hccl::api::check_milliseconds(milliseconds, "timeoutMs"));
  const auto suffix = std::string("_").append(name, ::strnlen(name, COMM_NAME_MAX_LENGTH));
  return prepare(world, check_ranks(world, number, ids, {}), nullptr,
                 world.membership().name + suffix, suffix);
}

// Reports to the other ranks that this rank makes no group, so that they do not wait. Returns
// `why`.
Status refuse(hccl::core::Communicator& world, const Status& why, const char* function) {
  world.refused_group(std::string(function) + ": " + why.message());
  return why;
}

Status make(HcclComm handle, hccl::core::Communicator& world, Result<Request> request,
            const char* function, uint64_t id, std::chrono::milliseconds patience, bool own_name,
            HcclComm* comm) {
  if (!request.ok()) return refuse(world, request.status(), function);
  auto& communicators = State::get().communicators();
  auto& own = request->own;
  const std::string common = own_name ? std::string() : own.name;
  const std::uint64_t instance =
      communicators.next_instance(handle, common, request->ranks) * kNoMember + id;
  HCCL_ASSIGN_OR_RETURN(
      auto made, world.group(own.name, request->ranks, instance, &own.config, patience, own_name));
  *comm = communicators.add(made, std::move(own.about));
  return {};
}

HcclResult create_group(const char* function, HcclComm world, uint32_t number, const uint32_t* ids,
                        const char* name, uint64_t milliseconds, bool own_name, HcclComm* comm) {
  return hccl::api::guard(function, [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto whole, State::get().communicators().get(world));
    auto request = comm == nullptr ? Result<Request>(hccl::api::null_pointer("comm"))
                                   : check_group(*whole, number, ids, name, milliseconds);
    const Status made = make(world, *whole, std::move(request), function, 0,
                             std::chrono::milliseconds(milliseconds), own_name, comm);
    return made.ok() || !whole->membership().control->is_lost()
               ? made
               : Status(Code::kUnavail, made.message());
  });
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
    if (subComm != nullptr && rankIds == nullptr && subCommId == kNoMember &&
        world->membership().has_groups()) {
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
  return create_group("HcclCommCreateGroup", world, rankNum, rankIds, name, timeoutMs, false, comm);
}

HcclResult HcclCommCreateNextGroup(HcclComm world, uint32_t rankNum, const uint32_t* rankIds,
                                   const char* name, uint64_t timeoutMs, HcclComm* comm) {
  return create_group("HcclCommCreateNextGroup", world, rankNum, rankIds, name, timeoutMs, true,
                      comm);
}

HcclResult HcclCommShrink(HcclComm comm, const uint32_t* excludeIds, uint32_t excludeNum,
                          const HcclCommConfig* config, HcclComm* smaller) {
  static constexpr const char* kFunction = "HcclCommShrink";
  return hccl::api::guard(kFunction, [&]() -> Status {
    auto& communicators = State::get().communicators();
    HCCL_ASSIGN_OR_RETURN(const auto parent, communicators.get(comm));
    auto request = smaller == nullptr
                       ? Result<Request>(hccl::api::null_pointer("smaller"))
                       : prepare(*parent, check_excluded(*parent, excludeIds, excludeNum), config,
                                 shrunk_name(parent->membership().name), "shrunk");
    if (!request.ok()) return refuse(*parent, request.status(), kFunction);
    auto& own = request->own;
    HCCL_ASSIGN_OR_RETURN(
        auto made, parent->shrink(own.name, request->ranks,
                                  communicators.next_instance(comm, kFunction, {}), &own.config));
    *smaller = communicators.add(made, std::move(own.about));
    return {};
  });
}

}  // extern "C"
