// The stream functions.
#include <cstdint>
#include <memory>
#include <string>

#include "hccl/acl/acl_rt.h"
#include "hccl/acl/failure.h"
#include "hccl/acl/runtime.h"
#include "hccl/base/thread.h"

namespace hccl::acl {
namespace {

Status create(aclrtStream* stream) {
  ACL_CHECK_PTR(stream);
  Runtime& runtime = Runtime::get();
  *stream = runtime.streams().add(std::make_shared<Stream>(runtime.devices().current_device()));
  return {};
}

// The handle becomes invalid at once. The stream ends here or, if another call still uses the
// stream, when that call returns.
Status destroy(aclrtStream handle, bool force) {
  auto taken = Runtime::get().streams().take(handle, [](const Stream& stream) {
    if (!stream.runs_here()) return Status();
    return failure(ACL_ERROR_RT_STREAM_CONTEXT, "stream is running the task that calls this");
  });
  HCCL_ASSIGN_OR_RETURN(const auto stream, known(std::move(taken)));
  if (force) stream->abandon(failure(ACL_ERROR_RT_STREAM_ABORT, "the stream was destroyed"));
  static_cast<void>(stream->synchronize());
  return {};
}

Status set_failure_mode(aclrtStream stream, std::uint64_t mode) {
  HCCL_ASSIGN_OR_RETURN(const auto found, known(find_stream(stream)));
  if (mode != ACL_CONTINUE_ON_FAILURE && mode != ACL_STOP_ON_FAILURE) {
    return bad("mode " + std::to_string(mode) + " is unknown");
  }
  return found->set_stop_on_failure(mode == ACL_STOP_ON_FAILURE);
}

}  // namespace
}  // namespace hccl::acl

using namespace hccl::acl;  // NOLINT(google-build-using-namespace): C functions' bodies
using hccl::Status;

extern "C" {

aclError aclrtCreateStream(aclrtStream* stream) {
  return guard(__func__, [&] { return create(stream); });
}

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag) {
  return guard(__func__, [&]() -> Status {
    constexpr std::uint32_t kFlags = ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC |
                                     ACL_STREAM_PERSISTENT | ACL_STREAM_HUGE |
                                     ACL_STREAM_CPU_SCHEDULE | ACL_STREAM_DEVICE_USE_ONLY;
    ACL_CHECK_PTR(stream);
    if (priority > 7) return bad("priority is " + std::to_string(priority) + ", not 0 to 7");
    if ((flag & ~kFlags) != 0) return bad("flag has unknown bits");
    return create(stream);
  });
}

aclError aclrtDestroyStream(aclrtStream stream) {
  return guard(__func__, [&] { return destroy(stream, false); });
}

aclError aclrtDestroyStreamForce(aclrtStream stream) {
  return guard(__func__, [&] { return destroy(stream, true); });
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  return guard(__func__, [&]() -> Status {
    if (stream == nullptr) return {};
    HCCL_ASSIGN_OR_RETURN(const auto found, known(find_stream(stream)));
    return found->synchronize();
  });
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  return guard(__func__, [&]() -> Status {
    if (timeout < -1) return bad("timeout is " + std::to_string(timeout));
    if (stream == nullptr) return {};
    HCCL_ASSIGN_OR_RETURN(const auto found, known(find_stream(stream)));
    return timeout == -1 ? found->synchronize() : found->synchronize(deadline_of(timeout));
  });
}

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(status);
    *status = ACL_STREAM_STATUS_COMPLETE;
    if (stream == nullptr) return {};
    HCCL_ASSIGN_OR_RETURN(const auto found, known(find_stream(stream)));
    if (!found->idle()) *status = ACL_STREAM_STATUS_NOT_READY;
    return {};
  });
}

aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode) {
  return guard(__func__, [&] { return set_failure_mode(stream, mode); });
}

aclError aclrtSetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType,
                                 aclrtStreamAttrValue* value) {
  return guard(__func__, [&]() -> Status {
    const unsigned type = number(stmAttrType);
    if (type < ACL_STREAM_ATTR_FAILURE_MODE || type > ACL_STREAM_ATTR_CACHE_OP_INFO) {
      return bad("stmAttrType " + std::to_string(type) + " is unknown");
    }
    ACL_CHECK_PTR(value);
    if (type == ACL_STREAM_ATTR_FAILURE_MODE) return set_failure_mode(stream, value->failureMode);
    return failure(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                   "stmAttrType " + std::to_string(type) +
                       " is for the operators of a device, which do not run on a CPU");
  });
}

aclError aclrtStreamGetId(aclrtStream stream, int32_t* streamId) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(streamId);
    if (stream != nullptr) HCCL_RETURN_IF_ERROR(known(find_stream(stream)).status());
    // The lower bits of a table's handles count from 1.
    *streamId = static_cast<std::int32_t>(reinterpret_cast<std::uintptr_t>(stream) & 0x7FFFFFFF);
    return {};
  });
}

aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void* args) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(fn);
    return submit(stream, [fn, args] {
      const hccl::ProgramMask mask;
      fn(args);
      return Status();
    });
  });
}

}  // extern "C"
