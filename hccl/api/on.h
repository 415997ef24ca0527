// The way of an operation of hccl.h and hccl_framework.h from C to operations.h.
#pragma once

#include "hccl/api/entry.h"
#include "hccl/api/state.h"

namespace hccl::api {

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
    return status.ok() ? HCCL_SUCCESS : refused(status, function);
  } catch (...) {
    return keep_exception();
  }
}

}  // namespace hccl::api
