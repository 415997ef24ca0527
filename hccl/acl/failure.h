// The border between C and the runtime: every entry runs inside guard(), which turns any Status or
// exception into an aclError and stores the error's text for aclGetRecentErrMsg.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "hccl/acl/acl_base.h"
#include "hccl/acl/process.h"
#include "hccl/base/status.h"
#include "hccl/base/thread.h"

namespace hccl::acl {

/// Makes a failure with a code of the runtime. Only this room knows these codes.
inline Status failure(aclError code, std::string text) {
  return Status(static_cast<Code>(code), std::move(text));
}
inline Status bad(std::string text) { return failure(ACL_ERROR_RT_PARAM_INVALID, std::move(text)); }

/// Returns the number of an enumerator that the program passed. The number may be invalid, so the
/// caller must check it.
template <class Enum>
unsigned number(const Enum& value) {
  unsigned result = 0;
  static_assert(sizeof value == sizeof result);
  std::memcpy(&result, &value, sizeof result);
  return result;
}

/// Converts a table's kPara to the runtime's code for an invalid handle.
template <class T>
Result<T> known(Result<T> found) {
  if (found.ok() || found.status().code() != Code::kPara) return found;
  return failure(ACL_ERROR_RT_INVALID_HANDLE, found.status().message());
}

/// Returns the runtime's code for any Status: the Status's code if that is a code of the runtime,
/// otherwise the nearest to HCCL's code.
aclError code_of(const Status& status);

/// Stores "function: text" as the text of the calling thread's last failure, of HCCL or of the
/// runtime, for HcclGetLastErrorText and aclGetRecentErrMsg. `function` may be empty.
void record_text(std::string_view function, std::string_view text) noexcept;
const char* last_text() noexcept;
/// Returns how many texts the calling thread has recorded.
std::uint64_t texts_recorded() noexcept;

/// Stores code and text as the calling thread's last failure.
aclError record_error(aclError code, std::string_view function, std::string_view text) noexcept;
/// As record_error(), for the exception being handled.
aclError record_exception(std::string_view function) noexcept;

template <class Body>
aclError guard(const char* function, Body&& body) noexcept {
  const NotCancelled not_cancelled;
  try {
    const Status status = copied() ? copy_refused() : body();
    if (status.ok()) return ACL_SUCCESS;
    return record_error(code_of(status), function, status.message());
  } catch (...) {
    return record_exception(function);
  }
}

#define ACL_CHECK_PTR(argument) \
  if ((argument) == nullptr) return ::hccl::acl::bad(#argument " is null")

}  // namespace hccl::acl
