// The event functions.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "hccl/acl/acl_rt.h"
#include "hccl/acl/failure.h"
#include "hccl/acl/runtime.h"
#include "hccl/base/caught.h"

namespace hccl::acl {
namespace {

Table<Event>& events() { return Runtime::get().events(); }

Result<std::shared_ptr<Event>> find_event(aclrtEvent handle) { return known(events().get(handle)); }

Status create(aclrtEvent* event, std::uint32_t flag) {
  constexpr std::uint32_t kFlags = ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS |
                                   ACL_EVENT_TIME_LINE | ACL_EVENT_DEVICE_USE_ONLY |
                                   ACL_EVENT_EXTERNAL | ACL_EVENT_IPC;
  ACL_CHECK_PTR(event);
  if (flag == 0 || (flag & ~kFlags) != 0) {
    return bad("flag " + std::to_string(flag) + " is unknown");
  }
  if ((flag & ACL_EVENT_IPC) != 0) {
    return failure(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "flag: events are not shared by processes");
  }
  const bool sync = (flag & ACL_EVENT_SYNC) != 0;
  const Event::Uses uses{sync, sync, (flag & ACL_EVENT_TIME_LINE) != 0};
  *event = events().add(std::make_shared<Event>(uses));
  return {};
}

// Releases the waiters even if there is no memory for the text.
void complete_skipped(Event& event, std::uint64_t number) noexcept {
  try {
    event.complete(number, failure(ACL_ERROR_RT_STREAM_ABORT,
                                   "the stream that an event was recorded in has failed"));
  } catch (...) {
    event.complete(number, caught());
  }
}

// The default stream has no queue: its event is complete at once.
Status record(aclrtEvent handle, aclrtStream stream) {
  HCCL_ASSIGN_OR_RETURN(const auto event, find_event(handle));
  if (stream == nullptr) {
    event->complete(event->issue(), Status());
    return {};
  }
  HCCL_ASSIGN_OR_RETURN(const auto found, known(find_stream(stream)));
  const std::uint64_t number = event->issue();
  try {
    found->submit(
        [event, number] {
          event->complete(number, Status());
          return Status();
        },
        [event, number] { complete_skipped(*event, number); });
  } catch (...) {
    event->withdraw(number, caught());
    throw;
  }
  return {};
}

// `seconds` is the limit that was set when the program issued the wait; 0 means no limit.
Status wait_within(Event& event, std::uint64_t number, std::uint32_t seconds,
                   const AbortFlag* abandoned) {
  const Deadline end =
      seconds == 0 ? Deadline::never() : Deadline::after(std::chrono::seconds(seconds));
  Status status = event.wait_for(number, end, abandoned);
  if (status.code() != Code::kTimeout) return status;
  return failure(ACL_ERROR_RT_WAIT_TIMEOUT, "event was not complete in " + std::to_string(seconds) +
                                                " s, the limit of aclrtSetOpWaitTimeout");
}

// Calls wait_ends() when a wait in a stream ends, also if the wait throws.
struct WaitEnds {
  Event& event;
  ~WaitEnds() { event.wait_ends(); }
};

Status stream_wait(aclrtStream stream, aclrtEvent handle) {
  std::shared_ptr<Stream> found;
  if (stream != nullptr) {
    HCCL_ASSIGN_OR_RETURN(found, known(find_stream(stream)));
  }
  HCCL_ASSIGN_OR_RETURN(const auto event, find_event(handle));
  if (!event->uses().wait) return bad("event was created without ACL_EVENT_SYNC");
  const std::uint64_t number = event->awaited();
  const std::uint32_t seconds = Runtime::get().wait_limit();
  if (found == nullptr) return wait_within(*event, number, seconds, nullptr);
  // The stream outlives its tasks.
  const AbortFlag* const abandoned = &found->abandoned();
  event->wait_enters();
  try {
    found->submit(
        [event, number, seconds, abandoned] {
          const WaitEnds ends{*event};
          return wait_within(*event, number, seconds, abandoned);
        },
        [event] { event->wait_ends(); });
  } catch (...) {
    event->wait_ends();
    throw;
  }
  return {};
}

Status synchronize(aclrtEvent handle, std::int32_t timeout) {
  if (timeout < -1) return bad("timeout is " + std::to_string(timeout));
  HCCL_ASSIGN_OR_RETURN(const auto event, find_event(handle));
  const std::uint64_t number = event->last();
  if (number == 0) return bad("event was not recorded");
  Status status = event->wait_for(number, deadline_of(timeout), nullptr);
  if (status.code() != Code::kTimeout) return status;
  return failure(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, status.message());
}

Result<Event::Clock::time_point> time_of(aclrtEvent handle, const std::string& argument) {
  auto found = events().get(handle);
  if (!found.ok()) {
    const Status status(found.status().code(), argument + " " + found.status().message());
    return known(Result<std::shared_ptr<Event>>(status)).status();
  }
  const Event& event = **found;
  if (!event.uses().time) return bad(argument + " was created without ACL_EVENT_TIME_LINE");
  switch (event.state()) {
    case Event::State::kUnset:
      return failure(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, argument + " was not recorded");
    case Event::State::kPending:
      return failure(ACL_ERROR_RT_EVENT_NOT_COMPLETE, argument + " is not complete yet");
    case Event::State::kComplete:
      break;
  }
  return event.time();
}

}  // namespace
}  // namespace hccl::acl

using namespace hccl::acl;  // NOLINT(google-build-using-namespace): C functions' bodies
using hccl::Status;

extern "C" {

aclError aclrtCreateEvent(aclrtEvent* event) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(event);
    *event = events().add(std::make_shared<Event>(Event::Uses{true, false, true}));
    return {};
  });
}

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
  return guard(__func__, [&] { return create(event, flag); });
}

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) {
  return guard(__func__, [&] { return create(event, flag); });
}

aclError aclrtDestroyEvent(aclrtEvent event) {
  return guard(__func__, [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto taken, known(events().take(event)));
    taken->end();
    return {};
  });
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  return guard(__func__, [&] { return record(event, stream); });
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  return guard(__func__, [&] { return stream_wait(stream, event); });
}

aclError aclrtSetOpWaitTimeout(uint32_t timeout) {
  return guard(__func__, [&]() -> Status {
    Runtime::get().limit_waits(timeout);
    return {};
  });
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
  return guard(__func__, [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto found, find_event(event));
    if (stream != nullptr) HCCL_RETURN_IF_ERROR(known(find_stream(stream)).status());
    if (!found->uses().reset) return bad("event was not created with ACL_EVENT_SYNC");
    // Waits know the number of their record, so nothing has to happen in the stream.
    found->reset();
    return {};
  });
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  return guard(__func__, [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto found, find_event(event));
    ACL_CHECK_PTR(status);
    *status = found->state() == Event::State::kComplete ? ACL_EVENT_RECORDED_STATUS_COMPLETE
                                                        : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return {};
  });
}

aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus* status) {
  return guard(__func__, [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto found, find_event(event));
    ACL_CHECK_PTR(status);
    const bool over = found->state() == Event::State::kComplete && !found->has_waits();
    *status = over ? ACL_EVENT_WAIT_STATUS_COMPLETE : ACL_EVENT_WAIT_STATUS_NOT_READY;
    return {};
  });
}

aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus* status) {
  return guard(__func__, [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto found, find_event(event));
    ACL_CHECK_PTR(status);
    *status = found->state() == Event::State::kComplete ? ACL_EVENT_STATUS_COMPLETE
                                                        : ACL_EVENT_STATUS_NOT_READY;
    return {};
  });
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  return guard(__func__, [&] { return synchronize(event, -1); });
}

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout) {
  return guard(__func__, [&] { return synchronize(event, timeout); });
}

aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(ms);
    HCCL_ASSIGN_OR_RETURN(const auto start, time_of(startEvent, "startEvent"));
    HCCL_ASSIGN_OR_RETURN(const auto end, time_of(endEvent, "endEvent"));
    if (end < start) {
      return failure(ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL, "endEvent is before startEvent");
    }
    *ms = std::chrono::duration<float, std::milli>(end - start).count();
    return {};
  });
}

}  // extern "C"
