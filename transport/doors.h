// Gives a rank its door: the listener (tcp/door.h) that accepts the connections of its tcp meshes.
#pragma once

#include <memory>
#include <string>

#include "hccl/base/mutex.h"
#include "hccl/base/status.h"

namespace hccl::transport {

namespace tcp {
class Door;
}

/// Gives all tcp meshes of one rank, those of a communicator and its groups, the same door. The
/// door exists while at least one of the meshes is open. Any thread may call.
class Doors {
 public:
  Result<std::shared_ptr<tcp::Door>> at(const std::string& address);

 private:
  Mutex mutex_;
  std::weak_ptr<tcp::Door> door_ HCCL_GUARDED_BY(mutex_);
};

}  // namespace hccl::transport
