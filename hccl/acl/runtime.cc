#include "hccl/acl/runtime.h"

#include <pthread.h>

#include <string>

#include "hccl/acl/failure.h"
#include "hccl/acl/process.h"

namespace hccl::acl {
namespace {

std::atomic<Runtime*> current{nullptr};  // null before the first use, also in a forked child
Runtime* of_parent = nullptr;            // in a forked child; never destroyed

}  // namespace

const int Runtime::handler_ = ::pthread_atfork(nullptr, nullptr, &Runtime::in_child);

// Until this handler has run, the child shares its parent's device memory.
void Runtime::in_child() {
  if (Runtime* const runtime = current.exchange(nullptr)) {
    if (memory::Heap* const heap = runtime->made_.load()) heap->make_private();
    of_parent = runtime;
  }
  end_use();
}

Runtime::Runtime(const Runtime* parent) : parent_(parent) {
  if (parent == nullptr) return;
  streams_.follow(parent->streams_);
  events_.follow(parent->events_);
  physical_.follow(parent->physical_);
  devices_.follow(parent->devices_);
  profiler_.follow(parent->profiler_);
}

Runtime& Runtime::get() {
  Runtime* const runtime = current.load(std::memory_order_acquire);
  return runtime != nullptr ? *runtime : make();
}

// Takes no lock, because a thread of the parent may hold any lock at a fork. If two threads make a
// runtime at once, only one runtime is kept.
Runtime& Runtime::make() {
  std::unique_ptr<Runtime> fresh(new Runtime(of_parent));
  begin_use();
  Runtime* other = nullptr;
  return current.compare_exchange_strong(other, fresh.get()) ? *fresh.release() : *other;
}

bool Runtime::inherited(const void* memory) const {
  for (const Runtime* each = parent_; each != nullptr; each = each->parent_) {
    const memory::Heap* const heap = each->made_.load(std::memory_order_relaxed);
    if (heap != nullptr && heap->contains(memory)) return true;
  }
  return false;
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
    heap_->limit_kept(static_cast<std::size_t>(config.cache_mb) << 20);
    made_.store(heap_.get());
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

Status check_device(std::int32_t device, const char* argument) {
  HCCL_ASSIGN_OR_RETURN(const DeviceConfig config, Runtime::get().config());
  if (device >= 0 && static_cast<std::uint32_t>(device) < config.count) return {};
  return failure(ACL_ERROR_RT_INVALID_DEVICEID,
                 std::string(argument) + " is " + std::to_string(device) + ", there are " +
                     std::to_string(config.count) + " devices (HCCL_DEVICE_COUNT)");
}

}  // namespace hccl::acl
