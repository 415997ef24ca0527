// Lets the ranks of a process, which may be threads, share one mapping of a mesh's memory.
#pragma once

#include <map>
#include <memory>

#include "hccl/base/bytes.h"
#include "hccl/base/mutex.h"

namespace hccl::transport {

namespace shm {
class Segment;
}

/// The table of a process's mappings. The rank that maps a mesh's memory calls share(); the other
/// ranks of the process call find(). Any thread may call.
class Siblings {
 public:
  void share(const Uuid& mesh, const std::shared_ptr<shm::Segment>& mapping) {
    const MutexLock lock(mutex_);
    std::erase_if(mappings_, [](const auto& each) { return each.second.expired(); });
    mappings_[mesh] = mapping;
  }
  /// Returns null if this process has no mapping of the mesh.
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
