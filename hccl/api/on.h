// The way of an operation of hccl.h and hccl_framework.h from C to operations.h.
#pragma once

#include "hccl/api/entry.h"
#include "hccl/api/state.h"

namespace hccl::api {

/// Finds the communicator and runs one of operations.h on it.
template <class Operation, class... Arguments>
HcclResult on(const char* function, HcclComm comm, Operation operation, Arguments... arguments) {
  return enter(function, [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto communicator, State::get().communicators().get(comm));
    log_entry(*communicator, function, arguments...);
    return operation(communicator.shared(), arguments...);
  });
}

}  // namespace hccl::api
