#include "hccl/api/callbacks.h"

#include <algorithm>
#include <utility>

namespace hccl::api {

void StateCallbacks::add(std::string name, HcclCommStateCallback callback, void* args) {
  const MutexLock lock(mutex_);
  const auto at = std::find_if(all_.begin(), all_.end(),
                               [&](const Callback& each) { return each.name == name; });
  if (at != all_.end()) {
    *at = {std::move(name), callback, args};
  } else {
    all_.push_back({std::move(name), callback, args});
  }
}

Status StateCallbacks::call(HcclComm comm, HcclCommStatePhase phase) const {
  std::vector<Callback> all;
  {
    const MutexLock lock(mutex_);
    if (all_.empty()) return {};
    all = all_;
  }
  for (const Callback& each : all) {
    const HcclResult result = each.function(comm, phase, each.args);
    if (result == HCCL_SUCCESS) continue;
    return Status(static_cast<Code>(result),
                  "the callback \"" + each.name + "\" failed in phase " + std::to_string(phase));
  }
  return {};
}

}  // namespace hccl::api
