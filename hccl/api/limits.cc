// Functions of hccl/hccl_framework.h that end a communicator, report a call that the caller
// rejected, or limit the time of operations.
#include <chrono>

#include "hccl/api/checks.h"
#include "hccl/api/guard.h"
#include "hccl/api/state.h"
#include "hccl/hccl_framework.h"

using hccl::Status;
using hccl::api::guard;
using hccl::api::on_comm;
using hccl::api::State;

namespace {
constexpr std::size_t kReasonBytes = 1024;

std::string reason_text(const char* reason) { return {reason, ::strnlen(reason, kReasonBytes)}; }
}  // namespace

extern "C" {

HcclResult HcclCommAbort(HcclComm comm, const char* reason) {
  return on_comm("HcclCommAbort", comm, [&](auto& communicator) -> Status {
    communicator.abort(reason == nullptr ? std::string() : reason_text(reason));
    return {};
  });
}

HcclResult HcclCommRefuse(HcclComm comm, const char* reason) {
  return guard("HcclCommRefuse", [&]() -> Status {
    HCCL_CHECK_PTR(reason);
    HCCL_ASSIGN_OR_RETURN(const auto communicator, State::get().communicators().get(comm));
    communicator->operations().refused(reason_text(reason));
    return {};
  });
}

HcclResult HcclCommSetTimeout(HcclComm comm, uint64_t milliseconds) {
  return on_comm("HcclCommSetTimeout", comm, [&](auto& communicator) -> Status {
    HCCL_RETURN_IF_ERROR(hccl::api::check_milliseconds(milliseconds, "milliseconds"));
    communicator.settings().timeout = std::chrono::milliseconds(milliseconds);
    return {};
  });
}

HcclResult HcclCommGetTimeout(HcclComm comm, uint64_t* milliseconds) {
  return on_comm("HcclCommGetTimeout", comm, [&](auto& communicator) -> Status {
    HCCL_CHECK_PTR(milliseconds);
    *milliseconds = static_cast<std::uint64_t>(communicator.settings().timeout.load().count());
    return {};
  });
}

}  // extern "C"
