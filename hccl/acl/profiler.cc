#include "hccl/acl/profiler.h"

#include "hccl/acl/failure.h"

namespace hccl::acl {
namespace {

Status not_running() {
  return failure(ACL_ERROR_PROF_NOT_RUN, "the profiler is not running: aclprofInit comes first");
}

template <class T>
Status as_parameter(const Result<T>& found) {
  if (found.ok()) return {};
  return failure(ACL_ERROR_INVALID_PARAM, found.status().message());
}

}  // namespace

Status Profiler::init() {
  const MutexLock lock(mutex_);
  if (running_) return failure(ACL_ERROR_PROF_ALREADY_RUN, "the profiler is running already");
  running_ = true;
  return {};
}

Status Profiler::finalize() {
  const MutexLock lock(mutex_);
  if (!running_) return not_running();
  running_ = false;
  for (const auto& session : sessions_.all()) session->started = false;
  return {};
}

Status Profiler::destroy(const void* config) { return as_parameter(sessions_.take(config)); }

Status Profiler::start(const void* config) { return turn(config, true); }
Status Profiler::stop(const void* config) { return turn(config, false); }

Status Profiler::turn(const void* config, bool on) {
  const auto session = sessions_.get(config);
  HCCL_RETURN_IF_ERROR(as_parameter(session));
  const MutexLock lock(mutex_);
  if (!running_) return not_running();
  if (on && (*session)->started) {
    return failure(ACL_ERROR_PROF_ALREADY_RUN, "config was started already");
  }
  if (!on && !(*session)->started) {
    return failure(ACL_ERROR_PROF_NOT_RUN, "config was not started");
  }
  (*session)->started = on;
  return {};
}

}  // namespace hccl::acl
