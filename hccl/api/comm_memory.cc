// Memory ranges and symmetric windows: hccl/hccl_comm.h.
#include <array>
#include <set>
#include <string>
#include <vector>

#include "hccl/api/checks.h"
#include "hccl/api/guard.h"
#include "hccl/api/state.h"
#include "hccl/hccl_comm.h"

using hccl::Code;
using hccl::DataType;
using hccl::Result;
using hccl::Status;
using hccl::api::guard;
using hccl::api::on_comm;
using hccl::api::RegisteredMemory;
using hccl::api::State;

namespace {

Status check_zero(std::uint64_t value, const char* argument) {
  if (value == 0) return {};
  return Status(Code::kPara,
                std::string(argument) + " is " + std::to_string(value) + ", only 0 is known");
}

enum Act : std::uint64_t { kRegister = 1, kDeregister = 2 };

// Compares `act` and `number` among all ranks. If ranks differ, all ranks get kPara. `what` names
// `number` in the text.
Status agree(hccl::core::Communicator& communicator, Act act, std::uint64_t number,
             const char* what) {
  const std::array<std::uint64_t, 2> mine = {act, number};
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(communicator.size()));
  HCCL_RETURN_IF_ERROR(communicator.operations().run(
      {hccl::Op::kAllGather, mine.data(), all.data(), mine.size(), DataType::kUint64}));
  for (std::size_t rank = 0; rank * mine.size() < all.size(); ++rank) {
    const std::uint64_t other_act = all[rank * mine.size()];
    const std::uint64_t other = all[rank * mine.size() + 1];
    if (other_act != mine[0]) {
      return Status(Code::kPara, "rank " + std::to_string(rank) +
                                     (other_act == kRegister ? " registers" : " deregisters") +
                                     " a window at this point");
    }
    if (other != number) {
      return Status(Code::kPara, std::string(what) + " is " + std::to_string(number) + ", rank " +
                                     std::to_string(rank) + " has " + std::to_string(other));
    }
  }
  return {};
}

// Returns the result of local checks. If they refused the call, reports that to the ranks that wait
// in agree().
Status checked(hccl::core::Communicator& communicator, const char* function, Status status) {
  if (!status.ok() && communicator.async_error().ok()) {
    communicator.operations().refused(std::string(function) + ": " + status.message());
  }
  return status;
}

Status check_window(void* addr, std::uint64_t size, const HcclCommSymWindow* winHandle,
                    std::uint32_t flag) {
  HCCL_CHECK_PTR(addr);
  HCCL_RETURN_IF_ERROR(RegisteredMemory::check(addr, size, "addr"));
  HCCL_CHECK_PTR(winHandle);
  return flag == 1 ? Status()
                   : Status(Code::kPara, "flag is " + std::to_string(flag) + ", only 1 is known");
}

Result<RegisteredMemory::Window> own_memory(HcclComm comm, void* handle, const char* argument) {
  HCCL_ASSIGN_OR_RETURN(const auto found, State::get().memory().window(handle));
  if (found.comm == comm && found.number == 0) return found;
  return Status(Code::kPara,
                std::string(argument) + " is not of HcclCommRegister with this communicator");
}

}  // namespace

extern "C" {

HcclResult HcclCommSetMemoryRange(HcclComm comm, void* baseVirPtr, size_t size, size_t alignment,
                                  uint64_t flags) {
  return on_comm("HcclCommSetMemoryRange", comm, [&](auto&) -> Status {
    HCCL_CHECK_PTR(baseVirPtr);
    HCCL_RETURN_IF_ERROR(check_zero(alignment, "alignment"));
    HCCL_RETURN_IF_ERROR(check_zero(flags, "flags"));
    return State::get().memory().set_range(comm, baseVirPtr, size);
  });
}

HcclResult HcclCommUnsetMemoryRange(HcclComm comm, void* baseVirPtr) {
  return on_comm("HcclCommUnsetMemoryRange", comm, [&](auto&) -> Status {
    HCCL_CHECK_PTR(baseVirPtr);
    return State::get().memory().unset_range(comm, baseVirPtr);
  });
}

HcclResult HcclCommActivateCommMemory(HcclComm comm, void* virPtr, size_t size, size_t offset,
                                      aclrtDrvMemHandle handle, uint64_t flags) {
  return on_comm("HcclCommActivateCommMemory", comm, [&](auto&) -> Status {
    HCCL_CHECK_PTR(virPtr);
    HCCL_RETURN_IF_ERROR(check_zero(offset, "offset"));
    HCCL_CHECK_PTR(handle);
    HCCL_RETURN_IF_ERROR(check_zero(flags, "flags"));
    return State::get().memory().activate(comm, virPtr, size);
  });
}

HcclResult HcclCommDeactivateCommMemory(HcclComm comm, void* virPtr) {
  return on_comm("HcclCommDeactivateCommMemory", comm, [&](auto&) -> Status {
    HCCL_CHECK_PTR(virPtr);
    return State::get().memory().deactivate(comm, virPtr);
  });
}

HcclResult HcclCommSymWinRegister(HcclComm comm, void* addr, uint64_t size,
                                  HcclCommSymWindow* winHandle, uint32_t flag) {
  return on_comm("HcclCommSymWinRegister", comm, [&](auto& communicator) -> Status {
    HCCL_RETURN_IF_ERROR(
        checked(communicator, "HcclCommSymWinRegister", check_window(addr, size, winHandle, flag)));
    HCCL_RETURN_IF_ERROR(agree(communicator, kRegister, size, "size"));
    *winHandle = State::get().memory().add_window(comm, addr, size);
    return {};
  });
}

HcclResult HcclCommSymWinDeregister(HcclCommSymWindow winHandle) {
  return guard("HcclCommSymWinDeregister", [&]() -> Status {
    State& state = State::get();
    HCCL_ASSIGN_OR_RETURN(const auto window, state.memory().window(winHandle));
    if (window.number == 0) return Status(Code::kPara, "winHandle is of HcclCommRegister");
    {
      const auto communicator = state.communicators().get(window.comm);
      if (!communicator.ok()) {
        static_cast<void>(state.memory().remove_window(winHandle));
        return communicator.status().with_context("winHandle");
      }
      HCCL_RETURN_IF_ERROR(agree(**communicator, kDeregister, window.number, "winHandle's number"));
    }
    return state.memory().remove_window(winHandle);
  });
}

HcclResult HcclCommSymWinGet(HcclComm comm, void* ptr, size_t size, HcclCommSymWindow* winHandle,
                             size_t* offset) {
  return on_comm("HcclCommSymWinGet", comm, [&](auto&) -> Status {
    HCCL_CHECK_PTR(ptr);
    HCCL_RETURN_IF_ERROR(RegisteredMemory::check(ptr, size, "ptr"));
    HCCL_CHECK_PTR(winHandle);
    HCCL_CHECK_PTR(offset);
    HCCL_ASSIGN_OR_RETURN(const auto place, State::get().memory().find(comm, ptr, size));
    *winHandle = place.window;
    *offset = place.offset;
    return {};
  });
}

HcclResult HcclCommRegister(HcclComm comm, void* addr, uint64_t size, void** handle,
                            uint32_t flag) {
  return on_comm("HcclCommRegister", comm, [&](auto&) -> Status {
    HCCL_CHECK_PTR(addr);
    HCCL_RETURN_IF_ERROR(RegisteredMemory::check(addr, size, "addr"));
    HCCL_CHECK_PTR(handle);
    HCCL_RETURN_IF_ERROR(check_zero(flag, "flag"));
    *handle = State::get().memory().add_window(comm, addr, size, true);
    return {};
  });
}

HcclResult HcclCommDeregister(HcclComm comm, void* handle) {
  return on_comm("HcclCommDeregister", comm, [&](auto&) -> Status {
    HCCL_RETURN_IF_ERROR(own_memory(comm, handle, "handle").status());
    return State::get().memory().remove_window(handle);
  });
}

HcclResult HcclCommExchangeMem(HcclComm comm, void* windowHandle, uint32_t* peerRanks,
                               uint32_t peerRankNum) {
  return on_comm("HcclCommExchangeMem", comm, [&](auto& communicator) -> Status {
    HCCL_RETURN_IF_ERROR(own_memory(comm, windowHandle, "windowHandle").status());
    HCCL_CHECK_PTR(peerRanks);
    std::set<uint32_t> seen = {static_cast<uint32_t>(communicator.rank())};
    for (uint32_t i = 0; i < peerRankNum; ++i) {
      const std::string where = "peerRanks[" + std::to_string(i) + "]";
      HCCL_RETURN_IF_ERROR(hccl::api::check_rank(peerRanks[i], communicator.size(), where.c_str()));
      if (seen.insert(peerRanks[i]).second) continue;
      return Status(Code::kPara, where + " is this rank, or is named twice");
    }
    return {};
  });
}

}  // extern "C"
