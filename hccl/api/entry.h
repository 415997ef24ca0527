// How an operation enters the library: guard(), the group of calls it may be in, and the log.
#pragma once

#include <fmt/core.h>

#include <utility>

#include "hccl/api/call_group.h"
#include "hccl/api/guard.h"
#include "hccl/base/caught.h"

namespace hccl::api {

/// The result of a call that may stand between HcclGroupStart and HcclGroupEnd, and was refused:
/// the group does not run.
[[gnu::cold]] inline HcclResult refused(const Status& why, const char* function) {
  refuse_call_group(why, function);
  return keep(why, function);
}

/// The same for the exception that is being handled.
[[gnu::cold]] inline HcclResult refused_by_exception(const char* function) noexcept {
  refuse_call_group(caught(), function);
  return keep_exception(function);
}

/// guard() for such a call.
template <class Body>
HcclResult enter(const char* function, Body&& body) noexcept {
  try {
    const Status status = body();
    return status.ok() ? HCCL_SUCCESS : refused(status, function);
  } catch (...) {
    return refused_by_exception(function);
  }
}

namespace detail {
inline void put(std::string& text, const void* pointer) { text += fmt::format("{}", pointer); }
template <class Number>
  requires(!std::is_pointer_v<Number>)
void put(std::string& text, Number number) {
  text += std::to_string(static_cast<std::uint64_t>(number));
}
}  // namespace detail

/// "Entry-HcclAllReduce: 0x7f..., 0x7f..., 1024, 4, 0, 0x0" at level trace.
template <class... Arguments>
[[gnu::cold]] void trace_entry(const core::Communicator& communicator, const char* function,
                               Arguments... arguments) {
  std::string text;
  ((text += text.empty() ? "" : ", ", detail::put(text, arguments)), ...);
  communicator.log()->trace("Entry-{}: {}: {}", function, communicator.name(), text);
}
/// One comparison if that level is off.
template <class... Arguments>
void log_entry(const core::Communicator& communicator, const char* function,
               Arguments... arguments) {
  if (communicator.log()->writes(LogLevel::kTrace)) {
    trace_entry(communicator, function, arguments...);
  }
}

}  // namespace hccl::api
