// Checks the order of the profiler's calls. Nothing is profiled.
#pragma once

#include <memory>

#include "hccl/acl/acl_prof.h"
#include "hccl/acl/table.h"
#include "hccl/base/mutex.h"
#include "hccl/base/status.h"

namespace hccl::acl {

/// Every member is safe to use from any thread.
class Profiler {
 public:
  struct Session {
    bool started = false;
  };

  /// Called in a forked child; see Table.
  void follow(const Profiler& parent) { sessions_.follow(parent.sessions_); }
  /// Fails with PROF_ALREADY_RUN if called again before finalize().
  Status init();
  Status finalize();
  void* create() { return sessions_.add(std::make_shared<Session>()); }
  Status destroy(const void* config);
  Status start(const void* config);
  Status stop(const void* config);

 private:
  Status turn(const void* config, bool on);

  Mutex mutex_{LockLevel::kDevice};
  bool running_ HCCL_GUARDED_BY(mutex_) = false;
  Table<Session> sessions_{"config", 5};
};

}  // namespace hccl::acl
