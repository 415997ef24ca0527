// The place where the connections of a rank's meshes arrive.
#pragma once

#include <memory>
#include <string>

#include "hccl/base/mutex.h"
#include "hccl/base/status.h"

namespace hccl::transport {

namespace tcp {
class Door;
}

/// The door of the tcp meshes of one rank, while at least one of them is open: a communicator and
/// its groups share it. Any thread may call.
class Doors {
 public:
  Result<std::shared_ptr<tcp::Door>> at(const std::string& address);

 private:
  Mutex mutex_;
  std::weak_ptr<tcp::Door> door_ HCCL_GUARDED_BY(mutex_);
};

}  // namespace hccl::transport
