// The border between C and the library: every entry runs inside guard(), which turns any Status,
// and any exception, into an HcclResult and keeps the text for HcclGetLastErrorText.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "hccl/base/status.h"
#include "hccl/hccl_types.h"

namespace hccl::api {

/// Keeps the text of the calling thread's last failure.
void set_last_error(std::string text);

inline HcclResult result(const Status& status) {
  if (status.ok()) return HCCL_SUCCESS;
  set_last_error(status.message());
  return static_cast<HcclResult>(status.code());
}

template <class Body>
HcclResult guard(const char* function, Body&& body) noexcept {
  try {
    const Status status = body();
    return status.ok() ? HCCL_SUCCESS : result(status.with_context(function));
  } catch (const std::bad_alloc&) {
    return result(Status(Code::kOom, std::string(function) + ": out of memory"));
  } catch (const std::exception& e) {
    return result(Status(Code::kInternal, std::string(function) + ": " + e.what()));
  }
}

inline Status null_pointer(const char* argument) {
  return Status(Code::kPtr, std::string(argument) + " is null");
}

#define HCCL_CHECK_PTR(argument) \
  if ((argument) == nullptr) return ::hccl::api::null_pointer(#argument)

}  // namespace hccl::api
