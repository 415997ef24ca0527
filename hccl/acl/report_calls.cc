// The functions for callbacks, which run in a stream's order on a thread of the program.
#include <pthread.h>

#include <cstdint>
#include <memory>
#include <string>

#include "hccl/acl/acl_rt.h"
#include "hccl/acl/failure.h"
#include "hccl/acl/runtime.h"

using namespace hccl::acl;  // NOLINT(google-build-using-namespace): C functions' bodies
using hccl::Status;

extern "C" {

aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream) {
  return guard(__func__, [&]() -> Status {
    if (threadId == 0) return bad("threadId is 0");
    HCCL_RETURN_IF_ERROR(known(find_stream(stream)).status());
    return Runtime::get().reports().subscribe(threadId, stream);
  });
}

aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream) {
  return guard(__func__, [&]() -> Status {
    if (threadId == 0) return bad("threadId is 0");
    HCCL_RETURN_IF_ERROR(known(find_stream(stream)).status());
    return Runtime::get().reports().unsubscribe(threadId, stream);
  });
}

aclError aclrtLaunchCallback(aclrtCallback fn, void* userData, aclrtCallbackBlockType blockType,
                             aclrtStream stream) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(fn);
    if (number(blockType) > ACL_CALLBACK_BLOCK) {
      return bad("blockType " + std::to_string(number(blockType)) + " is unknown");
    }
    HCCL_ASSIGN_OR_RETURN(const auto found, known(find_stream(stream)));
    HCCL_ASSIGN_OR_RETURN(const auto callbacks,
                          Runtime::get().reports().callbacks_of_stream(stream));
    // The stream outlives its tasks.
    const hccl::AbortFlag* const abandoned = &found->abandoned();
    const bool wait = blockType == ACL_CALLBACK_BLOCK;
    found->submit([=] {
      const auto report = std::make_shared<Report>();
      report->function = fn;
      report->data = userData;
      report->stream = stream;
      return callbacks->call(report, wait, *abandoned);
    });
    return {};
  });
}

aclError aclrtProcessReport(int32_t timeout) {
  return guard(__func__, [&]() -> Status {
    if (timeout < -1) return bad("timeout is " + std::to_string(timeout));
    HCCL_ASSIGN_OR_RETURN(const auto callbacks,
                          Runtime::get().reports().callbacks_of_thread(pthread_self()));
    const Status status = callbacks->process(deadline_of(timeout));
    if (status.ok()) return {};
    return failure(ACL_ERROR_RT_REPORT_TIMEOUT, status.message());
  });
}

}  // extern "C"
