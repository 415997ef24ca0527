// Suspending, resuming, and the callbacks of state changes: hccl/hccl_comm.h.
#include "hccl/api/checks.h"
#include "hccl/api/state.h"
#include "hccl/hccl_comm.h"

using hccl::Status;
using hccl::api::guard;
using hccl::api::on_comm;
using hccl::api::State;

namespace {
constexpr std::size_t kRegNameBytes = 160;
}

extern "C" {

HcclResult HcclCommSuspend(HcclComm comm) {
  return on_comm("HcclCommSuspend", comm, [&](auto& communicator) -> Status {
    communicator.settings().suspended = true;
    return {};
  });
}

HcclResult HcclCommResume(HcclComm comm) {
  return guard("HcclCommResume", [&]() -> Status {
    State& state = State::get();
    HCCL_ASSIGN_OR_RETURN(const auto communicator, state.communicators().get(comm));
    if (const Status failure = communicator->async_error(); !failure.ok()) {
      return failure.with_context(
          "comm has failed for good and cannot be resumed; destroy it, and join anew");
    }
    HCCL_RETURN_IF_ERROR(state.callbacks().call(comm, HCCL_COMM_STATE_PHASE_RESUME_PRE));
    communicator->settings().suspended = false;
    const Status told = state.callbacks().call(comm, HCCL_COMM_STATE_PHASE_RESUME_POST);
    if (!told.ok()) state.log()->warn("HcclCommResume: {}", told.message());
    return {};
  });
}

HcclResult HcclCommRegCommStateCallback(const char* regName, HcclCommStateCallback cb, void* args) {
  return guard("HcclCommRegCommStateCallback", [&]() -> Status {
    HCCL_CHECK_PTR(regName);
    HCCL_CHECK_PTR(cb);
    HCCL_RETURN_IF_ERROR(hccl::api::check_text(regName, kRegNameBytes, "regName"));
    State::get().callbacks().add(regName, cb, args);
    return {};
  });
}

}  // extern "C"
