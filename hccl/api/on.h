// The way of an operation of hccl.h and hccl_framework.h from C to operations.h.
#pragma once

#include <string>
#include <type_traits>

#include "hccl/api/entry.h"
#include "hccl/api/operations.h"
#include "hccl/api/state.h"

namespace hccl::api {

/// A call has failed: if its arguments were refused, says so to the ranks that may wait for it.
template <class Operation, class... Arguments>
[[gnu::cold]] void tell_refusal(core::Communicator& communicator, const Status& why,
                                const char* function, Operation operation,
                                const Arguments&... arguments) {
  const bool by_argument =
      why.code() == Code::kPara || why.code() == Code::kPtr || why.code() == Code::kNotSupport;
  if (!by_argument || !communicator.async_error().ok()) return;
  const std::string text = std::string(function) + ": " + why.message();
  // Sends and receives have an order of their own.
  auto messages = messages_of(communicator, operation, arguments...);
  messages ? communicator.refused(std::move(*messages), text) : communicator.refused(text);
}

/// Finds the communicator and runs one of operations.h on it. As enter(), without its closures:
/// this is the shortest way to an operation.
template <class Operation, class... Arguments>
HcclResult on(const char* function, HcclComm comm, Operation operation,
              Arguments... arguments) noexcept {
  try {
    const auto communicator = State::get().communicators().get(comm);
    if (!communicator.ok()) return refused(communicator.status(), function);
    log_entry(**communicator, function, arguments...);
    const Status status = operation(communicator->shared(), arguments...);
    if (status.ok()) return HCCL_SUCCESS;
    tell_refusal(**communicator, status, function, operation, arguments...);
    return refused(status, function);
  } catch (...) {
    return refused_by_exception(function);
  }
}

}  // namespace hccl::api
