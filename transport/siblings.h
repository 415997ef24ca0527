// The shared memory of the meshes of this process. Its ranks may be threads.
#pragma once

#include <map>
#include <memory>

#include "hccl/base/bytes.h"
#include "hccl/base/mutex.h"

namespace hccl::transport {

namespace shm {
class Segment;
}

/// Where ranks of one process find the mapping of a mesh that another of them has made. One for
/// the process. Any thread may call.
class Siblings {
 public:
  void share(const Uuid& mesh, const std::shared_ptr<shm::Segment>& mapping) {
    const MutexLock lock(mutex_);
    std::erase_if(mappings_, [](const auto& each) { return each.second.expired(); });
    mappings_[mesh] = mapping;
  }
  /// Null if there is none.
  std::shared_ptr<shm::Segment> find(const Uuid& mesh) {
    const MutexLock lock(mutex_);
    const auto at = mappings_.find(mesh);
    return at == mappings_.end() ? nullptr : at->second.lock();
  }

 private:
  Mutex mutex_;
  std::map<Uuid, std::weak_ptr<shm::Segment>> mappings_ HCCL_GUARDED_BY(mutex_);
};

}  // namespace hccl::transport
