// Groups by name, and operations on them: hccl/hcom.h.
#include "hccl/hcom.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "hccl/api/checks.h"
#include "hccl/api/entry.h"
#include "hccl/api/state.h"
#include "hccl/base/caught.h"

namespace api = hccl::api;
using api::check_text;
using api::guard;
using api::State;
using hccl::Code;
using hccl::Result;
using hccl::Status;

namespace {

Result<api::CommunicatorPtr> find(const char* group) {
  HCCL_ASSIGN_OR_RETURN(const std::string name, api::group_name(group));
  return State::get().groups().get(name);
}

constexpr std::size_t kNameBytes = 127;        // the most bytes of identify
constexpr std::size_t kTableBytes = 40 << 20;  // the most bytes of a rank table's text
constexpr std::size_t kPathBytes = 4095;
constexpr std::size_t kTagBytes = 255;
constexpr uint32_t kMostRanks = 32768;

// Makes the world that this process joins with `join`.
template <class Join>
Status init(Join join) {
  State& state = State::get();
  if (state.groups().contains(HCCL_WORLD_GROUP)) {
    return Status(Code::kUnavail, "the world exists already: HcomDestroy comes first");
  }
  HCCL_ASSIGN_OR_RETURN(const auto config, state.config());
  HCCL_ASSIGN_OR_RETURN(const auto made,
                        state.open(join(state.worlds(), config), config, HCCL_WORLD_GROUP));
  const HcclComm handle = state.communicators().add(made);
  const Status adopted =
      hccl::guarded([&] { return state.groups().adopt_world(made, handle, true); });
  if (!adopted.ok()) {
    static_cast<void>(state.communicators().take(handle, api::idle));
    made->leave();
  }
  return adopted;
}

// Runs a query about a group: *answer becomes the result of `question`.
template <class Question>
HcclResult ask(const char* function, const char* group, uint32_t* answer, const char* argument,
               Question question) {
  return guard(function, [&]() -> Status {
    if (answer == nullptr) return api::null_pointer(argument);
    HCCL_ASSIGN_OR_RETURN(const auto communicator, find(group));
    HCCL_ASSIGN_OR_RETURN(*answer, question(*communicator));
    return {};
  });
}

uint32_t servers(const hccl::core::Communicator& communicator) {
  const auto& hosts = communicator.membership().placement.hosts;
  return static_cast<uint32_t>(*std::max_element(hosts.begin(), hosts.end()) + 1);
}

// HCCL assumes that every server has the same number of ranks.
uint32_t local_size(const hccl::core::Communicator& communicator) {
  return std::max<uint32_t>(1, static_cast<uint32_t>(communicator.size()) / servers(communicator));
}

Result<std::pair<std::string, std::vector<int>>> check_group(const char* group, uint32_t number,
                                                             const uint32_t* ids) {
  if (group == nullptr) return api::null_pointer("group");
  if (ids == nullptr) return api::null_pointer("rankIds");
  HCCL_ASSIGN_OR_RETURN(std::string name, api::group_name(group));
  if (number == 0 || number > kMostRanks) {
    return Status(Code::kPara, "rankNum is " + std::to_string(number) + ", it must be 1 to " +
                                   std::to_string(kMostRanks));
  }
  std::vector<int> ranks;
  for (uint32_t i = 0; i < number; ++i) {
    if (ids[i] >= kMostRanks) {
      return Status(Code::kPara, "rankIds has " + std::to_string(ids[i]) + ", more than " +
                                     std::to_string(kMostRanks - 1));
    }
    ranks.push_back(static_cast<int>(ids[i]));
  }
  return std::pair(std::move(name), std::move(ranks));
}

template <class Check, class... Arguments>
HcclResult issue_in_group(const char* function, const char* tag, const char* group,
                          aclrtStream stream, Check check, Arguments... arguments) noexcept {
  try {
    if (hccl::acl::copied()) return api::record_error(hccl::acl::copy_refused(), function);
    Status checked = check_text(tag, kTagBytes, "tag");
    const auto communicator = find(group);
    if (!communicator.ok()) {
      return api::refused(checked.ok() ? communicator.status() : checked, function);
    }
    return api::issue(function, *communicator, std::move(checked), stream, check, arguments...);
  } catch (...) {
    return api::refused_by_exception(function);
  }
}

}  // namespace

extern "C" {

HcclResult HcomInitByFile(const char* rankTablePath, const char* identify) {
  return guard("HcomInitByFile", [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_text(rankTablePath, kPathBytes, "rankTablePath"));
    HCCL_RETURN_IF_ERROR(check_text(identify, kNameBytes, "identify"));
    return init([&](auto& worlds, const auto& config) {
      return worlds.join_by_file(rankTablePath, identify, config);
    });
  });
}

HcclResult HcomInitByString(const char* rankTable, const char* identify) {
  return guard("HcomInitByString", [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_text(rankTable, kTableBytes, "rankTable"));
    HCCL_RETURN_IF_ERROR(check_text(identify, kNameBytes, "identify"));
    return init([&](auto& worlds, const auto& config) {
      return worlds.join_by_text(rankTable, identify, config);
    });
  });
}

HcclResult HcomInitByLauncher(void) {
  return guard("HcomInitByLauncher", [] {
    return init([](auto& worlds, const auto& config) { return worlds.join_by_launcher(config); });
  });
}

HcclResult HcomInitByComm(HcclComm comm) {
  return guard("HcomInitByComm", [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(auto communicator, State::get().communicators().get_shared(comm));
    return State::get().groups().adopt_world(std::move(communicator), comm, false);
  });
}

HcclResult HcomDestroy(void) {
  return guard("HcomDestroy", [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto world, State::get().groups().clear());
    if (world != nullptr) world->leave();
    return {};
  });
}

HcclResult HcomGetInitStatus(bool* initialized) {
  return guard("HcomGetInitStatus", [&]() -> Status {
    HCCL_CHECK_PTR(initialized);
    *initialized = State::get().groups().contains(HCCL_WORLD_GROUP);
    return {};
  });
}

HcclResult HcomGetRankSize(const char* group, uint32_t* rankSize) {
  return ask("HcomGetRankSize", group, rankSize, "rankSize",
             [](const auto& c) -> Result<uint32_t> { return static_cast<uint32_t>(c.size()); });
}

HcclResult HcomGetRankId(const char* group, uint32_t* rankId) {
  return ask("HcomGetRankId", group, rankId, "rankId",
             [](const auto& c) -> Result<uint32_t> { return static_cast<uint32_t>(c.rank()); });
}

HcclResult HcomGetLocalRankSize(const char* group, uint32_t* localRankSize) {
  return ask("HcomGetLocalRankSize", group, localRankSize, "localRankSize",
             [](const auto& c) -> Result<uint32_t> { return local_size(c); });
}

HcclResult HcomGetLocalRankId(const char* group, uint32_t* localRankId) {
  return ask("HcomGetLocalRankId", group, localRankId, "localRankId",
             [](const auto& c) -> Result<uint32_t> {
               return static_cast<uint32_t>(c.rank()) % local_size(c);
             });
}

HcclResult HcomGetWorldRankFromGroupRank(const char* group, uint32_t groupRank,
                                         uint32_t* worldRank) {
  return ask("HcomGetWorldRankFromGroupRank", group, worldRank, "worldRank",
             [&](const auto& c) -> Result<uint32_t> {
               if (groupRank >= c.membership().ranks.size()) {
                 return Status(Code::kPara, "groupRank is " + std::to_string(groupRank) +
                                                ", the group has " + std::to_string(c.size()) +
                                                " ranks");
               }
               return static_cast<uint32_t>(c.membership().ranks[groupRank]);
             });
}

HcclResult HcomGetGroupRankFromWorldRank(uint32_t worldRank, const char* group,
                                         uint32_t* groupRank) {
  return ask("HcomGetGroupRankFromWorldRank", group, groupRank, "groupRank",
             [&](const auto& c) -> Result<uint32_t> {
               const auto& ranks = c.membership().ranks;
               const auto at = std::find(ranks.begin(), ranks.end(), static_cast<int>(worldRank));
               if (at == ranks.end()) {
                 return Status(Code::kPara,
                               "worldRank " + std::to_string(worldRank) + " is not in the group");
               }
               return static_cast<uint32_t>(at - ranks.begin());
             });
}

HcclResult HcomCreateGroup(const char* group, uint32_t rankNum, uint32_t* rankIds) {
  return guard("HcomCreateGroup", [&]() -> Status {
    const auto request = check_group(group, rankNum, rankIds);
    if (!request.ok()) return State::get().groups().refuse(request.status());
    return State::get().groups().create(request->first, request->second);
  });
}

HcclResult HcomDestroyGroup(const char* group) {
  return guard("HcomDestroyGroup", [&]() -> Status {
    HCCL_CHECK_PTR(group);
    HCCL_ASSIGN_OR_RETURN(const std::string name, api::group_name(group));
    return State::get().groups().destroy(name);
  });
}

bool HcomFindGroup(const char* group) {
  bool found = false;
  static_cast<void>(guard("HcomFindGroup", [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const std::string name, api::group_name(group));
    found = State::get().groups().contains(name);
    return {};
  }));
  return found;
}

HcclResult HcomGetCommHandleByGroup(const char* group, HcclComm* comm) {
  return guard("HcomGetCommHandleByGroup", [&]() -> Status {
    HCCL_CHECK_PTR(comm);
    HCCL_ASSIGN_OR_RETURN(const std::string name, api::group_name(group));
    HCCL_ASSIGN_OR_RETURN(*comm, State::get().groups().handle(name));
    return {};
  });
}

HcclResult HcomAllReduce(const char* tag, void* inputPtr, void* outputPtr, uint64_t count,
                         HcclDataType dataType, HcclReduceOp op, const char* group,
                         aclrtStream stream) {
  return issue_in_group("HcomAllReduce", tag, group, stream, api::all_reduce, inputPtr, outputPtr,
                        count, dataType, op, nullptr);
}

HcclResult HcomBroadcast(const char* tag, void* ptr, uint64_t count, HcclDataType dataType,
                         uint32_t root, const char* group, aclrtStream stream) {
  return issue_in_group("HcomBroadcast", tag, group, stream, api::broadcast, ptr, count, dataType,
                        root);
}

HcclResult HcomReduceScatter(const char* tag, void* inputPtr, void* outputPtr, uint64_t count,
                             HcclDataType dataType, HcclReduceOp op, const char* group,
                             aclrtStream stream) {
  return issue_in_group("HcomReduceScatter", tag, group, stream, api::reduce_scatter, inputPtr,
                        outputPtr, count, dataType, op, nullptr);
}

HcclResult HcomAllGather(const char* tag, void* inputPtr, void* outputPtr, uint64_t inputCount,
                         HcclDataType dataType, const char* group, aclrtStream stream) {
  return issue_in_group("HcomAllGather", tag, group, stream, api::all_gather, inputPtr, outputPtr,
                        inputCount, dataType);
}

HcclResult HcomReduce(const char* tag, void* inputPtr, void* outputPtr, uint64_t count,
                      HcclDataType dataType, HcclReduceOp op, uint32_t root, const char* group,
                      aclrtStream stream) {
  return issue_in_group("HcomReduce", tag, group, stream, api::reduce, inputPtr, outputPtr, count,
                        dataType, op, nullptr, root);
}

HcclResult HcomSend(const char* tag, void* inputPtr, uint64_t count, HcclDataType dataType,
                    uint32_t destRank, uint32_t srTag, const char* group, aclrtStream stream) {
  return issue_in_group("HcomSend", tag, group, stream, api::send, inputPtr, count, dataType,
                        destRank, api::SrTag(srTag));
}

HcclResult HcomReceive(const char* tag, void* outputPtr, uint64_t count, HcclDataType dataType,
                       uint32_t srcRank, uint32_t srTag, const char* group, aclrtStream stream) {
  return issue_in_group("HcomReceive", tag, group, stream, api::recv, outputPtr, count, dataType,
                        srcRank, api::SrTag(srTag));
}

HcclResult HcomReduceScatterV(const char* tag, void* sendBuf, const void* sendCounts,
                              const void* sdispls, void* recvBuf, uint64_t recvCount,
                              HcclDataType dataType, HcclReduceOp op, const char* group,
                              aclrtStream stream) {
  return issue_in_group("HcomReduceScatterV", tag, group, stream, api::reduce_scatter_v, sendBuf,
                        sendCounts, sdispls, recvBuf, recvCount, dataType, op);
}

// HCCL declares recvBuf const, although the operation writes to it.

HcclResult HcomAllGatherV(const char* tag, const void* sendBuf, uint64_t sendCount,
                          const void* recvBuf, const void* recvCounts, const void* rdispls,
                          HcclDataType dataType, const char* group, aclrtStream stream) {
  return issue_in_group("HcomAllGatherV", tag, group, stream, api::all_gather_v, sendBuf, sendCount,
                        const_cast<void*>(recvBuf), recvCounts, rdispls, dataType);
}

HcclResult HcomAlltoAllV(const void* sendBuf, const void* sendCounts, const void* sdispls,
                         HcclDataType sendType, const void* recvBuf, const void* recvCounts,
                         const void* rdispls, HcclDataType recvType, const char* group,
                         aclrtStream stream, const char* tag) {
  return issue_in_group("HcomAlltoAllV", tag, group, stream, api::all_to_all_v, sendBuf, sendCounts,
                        sdispls, sendType, const_cast<void*>(recvBuf), recvCounts, rdispls,
                        recvType);
}

HcclResult HcomAlltoAllVC(const void* sendBuf, const void* sendCountMatrix, HcclDataType sendType,
                          const void* recvBuf, HcclDataType recvType, const char* group,
                          aclrtStream stream, const char* tag) {
  return issue_in_group("HcomAlltoAllVC", tag, group, stream, api::all_to_all_vc, sendBuf,
                        sendCountMatrix, sendType, const_cast<void*>(recvBuf), recvType);
}

HcclResult HcomAllToAll(const void* sendBuf, uint64_t sendCount, HcclDataType sendType,
                        const void* recvBuf, uint64_t recvCount, HcclDataType recvType,
                        const char* group, aclrtStream stream, const char* tag) {
  return issue_in_group("HcomAllToAll", tag, group, stream, api::all_to_all, sendBuf, sendCount,
                        sendType, const_cast<void*>(recvBuf), recvCount, recvType);
}

}  // extern "C"
