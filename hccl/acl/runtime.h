// All process-wide state of the runtime. It is made at the first use and never destroyed, so the
// end of a program waits for no stream: if no thread waits for a stream's work, the work ends with
// the process.
//
// A forked child makes a runtime of its own, and does not touch its parent's runtime: at the fork a
// thread of the parent may have held any lock of that runtime.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "hccl/acl/address_space.h"
#include "hccl/acl/devices.h"
#include "hccl/acl/event.h"
#include "hccl/acl/failure.h"
#include "hccl/acl/host_memory.h"
#include "hccl/acl/profiler.h"
#include "hccl/acl/reports.h"
#include "hccl/acl/shared_memory.h"
#include "hccl/acl/stream.h"
#include "hccl/acl/table.h"
#include "hccl/base/config.h"
#include "hccl/base/doorbell.h"
#include "hccl/base/mutex.h"
#include "hccl/memory/cache.h"
#include "hccl/memory/heap.h"

namespace hccl::acl {

/// Every member is safe to use from any thread.
class Runtime {
 public:
  static Runtime& get();

  /// Returns the configuration. Reads the environment at the first call.
  Result<DeviceConfig> config();
  /// Returns the device memory, which is made at the first use; always the same object.
  Result<std::shared_ptr<memory::Heap>> heap();
  /// Returns the cache of freed device memory, which is made at the first use and never destroyed.
  Result<memory::Cache*> cache();
  /// Whether the address lies in the device memory of a process from which this process was forked.
  bool inherited(const void* memory) const;

  Table<Stream>& streams() { return streams_; }
  Table<Event>& events() { return events_; }
  Table<Physical>& physical() { return physical_; }
  Devices& devices() { return devices_; }
  AddressSpace& addresses() { return addresses_; }
  HostMemory& host_memory() { return host_memory_; }
  SharedMemory& shared_memory() { return shared_memory_; }
  Reports& reports() { return reports_; }
  Profiler& profiler() { return profiler_; }

  /// Returns the number of calls of aclInit since the last finalize(), including this call.
  std::uint64_t initialize() { return initialized_.fetch_add(1) + 1; }
  void finalize() { initialized_.store(0); }
  /// Subtracts one if the count is not zero; returns the new count.
  std::uint64_t finalize_one();

  /// Sets the limit of a stream's wait for an event, in seconds; 0 means no limit.
  void limit_waits(std::uint32_t seconds) { wait_limit_.store(seconds); }
  std::uint32_t wait_limit() const { return wait_limit_.load(); }
  /// The doorbell that a stream rings when it has stored a number in memory.
  Doorbell& values_bell() { return values_bell_; }

 private:
  explicit Runtime(const Runtime* parent);
  static Runtime& make();
  static void in_child();
  [[maybe_unused]] static const int handler_;

  const Runtime* const parent_;               // the runtime of the parent process
  std::atomic<memory::Heap*> made_{nullptr};  // same as heap_; a child reads it without a lock
  Mutex mutex_{LockLevel::kDevice};
  std::optional<DeviceConfig> config_ HCCL_GUARDED_BY(mutex_);
  std::shared_ptr<memory::Heap> heap_ HCCL_GUARDED_BY(mutex_);
  std::unique_ptr<memory::Cache> cache_ HCCL_GUARDED_BY(mutex_);
  Table<Stream> streams_{"stream", 1};
  Table<Event> events_{"event", 2};
  Table<Physical> physical_{"handle", 3};
  Devices devices_;
  AddressSpace addresses_;
  HostMemory host_memory_{parent_ != nullptr};
  SharedMemory shared_memory_;
  Reports reports_;
  Profiler profiler_;
  std::atomic<std::uint64_t> initialized_{0};
  std::atomic<std::uint32_t> wait_limit_{0};
  Doorbell values_bell_;
};

/// Fails with INVALID_DEVICEID if there is no such device; the text has the argument's name.
Status check_device(std::int32_t device, const char* argument);

}  // namespace hccl::acl
