#include "hccl/acl/runtime.h"

namespace hccl::acl {

Runtime& Runtime::get() {
  static Runtime* const runtime = new Runtime;
  return *runtime;
}

Result<DeviceConfig> Runtime::config() {
  const MutexLock lock(mutex_);
  if (!config_) {
    HCCL_ASSIGN_OR_RETURN(config_, DeviceConfig::read());
  }
  return *config_;
}

Result<std::shared_ptr<memory::Heap>> Runtime::heap() {
  HCCL_ASSIGN_OR_RETURN(const DeviceConfig config, this->config());
  const MutexLock lock(mutex_);
  if (!heap_) {
    HCCL_ASSIGN_OR_RETURN(heap_,
                          memory::Heap::create(static_cast<std::size_t>(config.memory_mb) << 20));
    heap_->keep(static_cast<std::size_t>(config.cache_mb) << 20);
  }
  return heap_;
}

Result<memory::Cache*> Runtime::cache() {
  HCCL_ASSIGN_OR_RETURN(const DeviceConfig config, this->config());
  HCCL_ASSIGN_OR_RETURN(auto heap, this->heap());
  const MutexLock lock(mutex_);
  if (!cache_) {
    cache_ = std::make_unique<memory::Cache>(std::move(heap),
                                             static_cast<std::size_t>(config.cache_mb) << 20);
  }
  return cache_.get();
}

std::uint64_t Runtime::finalize_one() {
  std::uint64_t count = initialized_.load();
  while (count != 0 && !initialized_.compare_exchange_weak(count, count - 1)) {
  }
  return count == 0 ? 0 : count - 1;
}

}  // namespace hccl::acl
