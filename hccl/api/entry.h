// Runs an operation of hccl.h, hccl_framework.h or hcom.h: logs the call, checks its arguments
// (operations.h), and runs the call now, in a stream or with a group of calls.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include "hccl/api/call_group.h"
#include "hccl/api/guard.h"
#include "hccl/api/operations.h"
#include "hccl/api/overlaps.h"
#include "hccl/api/state.h"
#include "hccl/base/caught.h"

namespace hccl::api {

/// Returns the result of a refused call. If the call was made between HcclGroupStart and
/// HcclGroupEnd, its group does not run.
[[gnu::cold]] inline HcclResult refused(const Status& why, const char* function) {
  refuse_call_group(why, function);
  return record_error(why, function);
}

/// As refused(), for the exception that is being handled.
[[gnu::cold]] inline HcclResult refused_by_exception(const char* function) noexcept {
  refuse_call_group(caught(), function);
  return record_exception(function);
}

namespace detail {
inline void put(std::string& text, const void* pointer) { text += fmt::format("{}, ", pointer); }
// Omits a parameter that the check has and the public function lacks.
inline void put(std::string&, std::nullptr_t) {}
// Omits the tag of a function that has none.
inline void put(std::string& text, SrTag tag) {
  if (tag) text += std::to_string(*tag) + ", ";
}
template <class Number>
  requires(!std::is_pointer_v<Number>)
void put(std::string& text, Number number) {
  text += std::to_string(static_cast<std::uint64_t>(number)) + ", ";
}
}  // namespace detail

/// Logs a call at level trace, for example "Entry-HcclAllReduce: <name>: 0x7f..., 0x7f..., 1024, 4,
/// 0, 0x0".
template <class... Arguments>
[[gnu::cold]] void trace_entry(const core::Communicator& communicator, const char* function,
                               aclrtStream stream, Arguments... arguments) {
  std::string text;
  (detail::put(text, arguments), ...);
  communicator.membership().log->trace("Entry-{}: {}: {}{}", function,
                                       communicator.membership().name, text, stream);
}

/// Called after a failed call. If its arguments were refused, reports that to the ranks that may
/// wait for this rank's call.
template <class Check, class... Arguments>
[[gnu::cold]] void report_refusal(core::Communicator& communicator, const Status& why,
                                  const char* function, Check check,
                                  const Arguments&... arguments) {
  const bool by_argument =
      why.code() == Code::kPara || why.code() == Code::kPtr || why.code() == Code::kNotSupport;
  if (!by_argument || !communicator.async_error().ok()) return;
  const NotCancelled not_cancelled;
  const std::string text = std::string(function) + ": " + why.message();
  // Sends and receives have a separate order.
  auto messages = messages_of(communicator, check, arguments...);
  messages ? communicator.operations().refused(std::move(*messages), text)
           : communicator.operations().refused(text);
}

/// Checks a call and runs it. Without a stream the call runs on the caller's thread. In a stream
/// the call runs later, but takes its place in the communicator's order now. If the calling thread
/// has opened a group of calls, the call runs at the end of the group. `before` is the result of
/// earlier checks; they check the arguments that `check` does not get.
template <class Check, class... Arguments>
HcclResult issue(const char* function, const CommunicatorPtr& comm, Status before,
                 aclrtStream stream, Check check, Arguments... arguments) {
  if (comm->membership().log->writes(LogLevel::kTrace)) {
    trace_entry(*comm, function, stream, arguments...);
  }
  Status status = std::move(before);
  if (status.ok()) {
    auto checked = check(*comm, arguments...);
    status = checked.ok() ? check_overlaps(*comm, *checked) : checked.status();
    if (status.ok()) {
      const ThreadCalls& thread = thread_calls();
      if constexpr (requires { checked->tag; }) checked->tag = thread.tag;
      if (stream != nullptr || thread.open != nullptr) {
        const NotCancelled not_cancelled;
        status = run_later(comm, stream, std::move(*checked));
      } else if constexpr (std::is_base_of_v<Call, std::remove_reference_t<decltype(*checked)>>) {
        status = comm->operations().run(*checked);
      } else {
        status = comm->operations().exchange(*checked);
      }
    }
  }
  if (status.ok()) return HCCL_SUCCESS;
  report_refusal(*comm, status, function, check, arguments...);
  return refused(status, function);
}

/// As issue(), for the communicator with this handle.
template <class Check, class... Arguments>
HcclResult issue_by_handle(const char* function, HcclComm comm, aclrtStream stream, Check check,
                           Arguments... arguments) noexcept {
  try {
    if (acl::copied()) return record_error(acl::copy_refused(), function);
    const auto communicator = State::get().communicators().get(comm);
    if (!communicator.ok()) return refused(communicator.status(), function);
    return issue(function, communicator->shared(), Status(), stream, check, arguments...);
  } catch (...) {
    return refused_by_exception(function);
  }
}

}  // namespace hccl::api
