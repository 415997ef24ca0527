// Requests, and calls that are submitted: hccl/hccl_framework.h.
#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "hccl/acl/failure.h"
#include "hccl/api/call_group.h"
#include "hccl/api/guard.h"
#include "hccl/api/request_out.h"
#include "hccl/api/state.h"
#include "hccl/base/thread.h"
#include "hccl/hccl_framework.h"

using hccl::Code;
using hccl::Status;
using hccl::WorkQueue;
using hccl::api::guard;
using hccl::api::RequestOut;
using hccl::api::State;

namespace {

// Runs the call. The status never has the error text of an earlier call.
Status run(HcclCall call, void* arg) {
  const std::uint64_t before = hccl::acl::texts_recorded();
  const HcclResult result = call(arg);
  if (result == HCCL_SUCCESS) return {};
  const bool told = hccl::acl::texts_recorded() != before;
  return Status(static_cast<Code>(result), told ? hccl::acl::last_text() : "");
}

HcclResult record_error(const Status& status) {
  if (status.ok()) return HCCL_SUCCESS;
  hccl::api::set_last_error(status.message());
  return static_cast<HcclResult>(status.code());
}

// Replaces ProgramMask if signals may stay blocked, because ProgramMask costs two system calls.
struct NoMask {
  NoMask() {}  // NOLINT(modernize-use-equals-default): a variable of this type is used
};

template <class Mask>
WorkQueue::Done with_callback(HcclRequestCallback done, void* arg) {
  return [done, arg](const Status& status) {
    const Mask mask;
    const HcclResult result = record_error(status);
    if (done != nullptr) done(arg, result);
  };
}

// Submits a call to a new queue, which ends after the call.
WorkQueue::Ticket submit_alone(WorkQueue::Work work, WorkQueue::Done done) {
  const auto queue = std::make_shared<WorkQueue>("hccl-request");
  try {
    return queue->submit(std::move(work), [queue, done = std::move(done)](const Status& status) {
      done(status);
      queue->end(false);
    });
  } catch (...) {
    queue->end(false);  // the queue's thread may have started
    throw;
  }
}

}  // namespace

extern "C" {

HcclResult HcclSubmit(HcclCall call, HcclComm comm, bool callerWaits, HcclRequestCallback done,
                      void* arg, HcclRequest* request) {
  return guard("HcclSubmit", [&]() -> Status {
    HCCL_CHECK_PTR(call);
    State& state = State::get();
    if (request != nullptr) *request = nullptr;
    const auto work = [=] { return run(call, arg); };
    const WorkQueue::Done told = request == nullptr ? with_callback<hccl::ProgramMask>(done, arg)
                                                    : with_callback<NoMask>(done, arg);
    if (comm == nullptr) {
      RequestOut out(request);
      out.set(submit_alone(work, told));
      return {};
    }
    if (hccl::api::in_call_group()) {
      return Status(Code::kPara, "in an open HcclGroupStart no call can be submitted");
    }
    if (callerWaits) {
      // get_shared() does not mark the communicator as in use, so the callback may destroy it.
      HCCL_ASSIGN_OR_RETURN(const auto communicator, state.communicators().get_shared(comm));
      if (communicator->operations().requests()->run_now(work, told)) return {};
    }
    HCCL_ASSIGN_OR_RETURN(const auto communicator, state.communicators().get(comm));
    RequestOut out(request);
    out.set(communicator->operations().requests()->submit(work, told));
    return {};
  });
}

HcclResult HcclRequestWait(HcclRequest request, int64_t timeoutMs, uint32_t* source) {
  Status own;  // the result of a submitted call
  const HcclResult waited = guard("HcclRequestWait", [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto found, State::get().requests().get(request));
    if (timeoutMs < 0) return Status(Code::kPara, "timeoutMs is negative");
    const auto limit = std::chrono::milliseconds(std::min<std::int64_t>(timeoutMs, 1'000'000'000));
    HCCL_RETURN_IF_ERROR(
        found->wait(timeoutMs == 0 ? hccl::Deadline::never() : hccl::Deadline::after(limit)));
    const int* const peer = found->peer();
    if (peer == nullptr) {
      own = found->status();
      return {};
    }
    HCCL_RETURN_IF_ERROR(found->status());
    if (source != nullptr) *source = static_cast<std::uint32_t>(*peer);
    return {};
  });
  return own.ok() ? waited : record_error(own);
}

HcclResult HcclRequestTest(HcclRequest request, bool* done) {
  return guard("HcclRequestTest", [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto found, State::get().requests().get(request));
    HCCL_CHECK_PTR(done);
    *done = found->done();
    return {};
  });
}

HcclResult HcclRequestMark(HcclRequest request) {
  return guard("HcclRequestMark", [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto found, State::get().requests().get(request));
    found->mark();
    return {};
  });
}

HcclResult HcclRequestFree(HcclRequest request) {
  return guard("HcclRequestFree", [&]() -> Status {
    const auto any = [](hccl::Request&) { return Status(); };
    return State::get().requests().take(request, any).status();
  });
}

}  // extern "C"
