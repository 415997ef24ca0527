// The border between C and the library: every entry runs inside guard(), which turns any Status,
// and any exception, into an HcclResult and keeps the text for HcclGetLastErrorText.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "hccl/base/status.h"
#include "hccl/hccl_types.h"

namespace hccl::api {

/// Keeps the text of the calling thread's last failure.
void set_last_error(std::string_view text) noexcept;

template <class Body>
HcclResult guard(const char* function, Body&& body) noexcept {
  try {
    const Status status = body();
    if (status.ok()) return HCCL_SUCCESS;
    set_last_error(status.with_context(function).message());
    return static_cast<HcclResult>(status.code());
  } catch (const std::bad_alloc&) {
    set_last_error("out of memory");
    return HCCL_E_OOM;
  } catch (const std::exception& e) {
    set_last_error(e.what());
    return HCCL_E_INTERNAL;
  } catch (...) {
    set_last_error("unknown exception");
    return HCCL_E_INTERNAL;
  }
}

inline Status null_pointer(const char* argument) {
  return Status(Code::kPtr, std::string(argument) + " is null");
}

#define HCCL_CHECK_PTR(argument) \
  if ((argument) == nullptr) return ::hccl::api::null_pointer(#argument)

}  // namespace hccl::api
