// The border between C and the library. Every C function runs its body inside guard(), which turns
// a Status or an exception into an HcclResult and stores the text for HcclGetLastErrorText.
#pragma once

#include <string_view>

#include "hccl/acl/process.h"
#include "hccl/base/status.h"
#include "hccl/base/thread.h"
#include "hccl/hccl_types.h"

namespace hccl::api {

/// Stores the text of the calling thread's last failure.
void set_last_error(std::string_view text) noexcept;

/// Stores the text of a failure of `function`, and returns the failure's code.
[[gnu::cold]] HcclResult record_error(const Status& failure, const char* function) noexcept;
/// As record_error(), for the exception that is being handled.
[[gnu::cold]] HcclResult record_exception(const char* function) noexcept;

template <class Body>
[[gnu::always_inline]] inline HcclResult guard(const char* function, Body&& body) noexcept {
  const NotCancelled not_cancelled;
  try {
    const Status status = acl::copied() ? acl::copy_refused() : body();
    return status.ok() ? HCCL_SUCCESS : record_error(status, function);
  } catch (...) {
    return record_exception(function);
  }
}

[[gnu::cold]] Status null_pointer(const char* argument);

#define HCCL_CHECK_PTR(argument) \
  if ((argument) == nullptr) return ::hccl::api::null_pointer(#argument)

}  // namespace hccl::api
