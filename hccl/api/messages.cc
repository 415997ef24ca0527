// Messages with tags: hccl/hccl_framework.h.

#include "hccl/api/checks.h"
#include "hccl/api/guard.h"
#include "hccl/api/request_out.h"
#include "hccl/api/state.h"
#include "hccl/base/thread.h"
#include "hccl/hccl_framework.h"

using hccl::Status;
using hccl::api::on_comm;
using hccl::api::RequestOut;
using hccl::core::Message;

namespace {

Message::Done callback(const char* function, HcclRequestCallback done, void* arg) {
  if (done == nullptr) return nullptr;
  return [=](const Status& status) {
    const HcclResult result =
        status.ok() ? HCCL_SUCCESS : hccl::api::record_error(status, function);
    const hccl::ProgramMask mask;
    done(arg, result);
  };
}

}  // namespace

extern "C" {

HcclResult HcclIsend(const void* buf, uint64_t bytes, uint32_t dest, int32_t tag, HcclComm comm,
                     HcclRequestCallback done, void* arg, HcclRequest* request) {
  return on_comm("HcclIsend", comm, [&](auto& communicator) -> Status {
    HCCL_RETURN_IF_ERROR(hccl::api::need(buf, bytes, "buf"));
    HCCL_RETURN_IF_ERROR(hccl::api::check_rank(dest, communicator.size(), "dest"));
    RequestOut out(request);
    out.set(communicator.mailbox().send(static_cast<int>(dest), tag, buf, bytes,
                                        callback("HcclIsend", done, arg)));
    return {};
  });
}

HcclResult HcclIrecv(void* buf, uint64_t bytes, uint32_t source, int32_t tag, HcclComm comm,
                     HcclRequestCallback done, void* arg, HcclRequest* request) {
  return on_comm("HcclIrecv", comm, [&](auto& communicator) -> Status {
    HCCL_RETURN_IF_ERROR(hccl::api::need(buf, bytes, "buf"));
    int from = Message::kAnyRank;
    if (source != HCCL_ANY_RANK) {
      HCCL_RETURN_IF_ERROR(hccl::api::check_rank(source, communicator.size(), "source"));
      from = static_cast<int>(source);
    }
    RequestOut out(request);
    out.set(communicator.mailbox().recv(from, tag, buf, bytes, callback("HcclIrecv", done, arg)));
    return {};
  });
}

}  // extern "C"
