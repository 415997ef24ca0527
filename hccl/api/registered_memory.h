// Memory that programs have registered: ranges, active blocks in ranges, and symmetric windows.
// Operations do not use these records: they recognise device memory by its address.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "hccl/api/handles.h"
#include "hccl/base/mutex.h"
#include "hccl/hccl_comm.h"

namespace hccl::api {

/// Every member is safe to use from any thread.
class RegisteredMemory {
 public:
  struct Window {
    HcclComm comm = nullptr;
    std::uintptr_t base = 0;
    std::uint64_t size = 0;
    std::uint64_t number = 0;  ///< the same on all ranks; 0: memory of this rank alone
  };

  /// A forked child calls this; see Handles::follow().
  void follow(const RegisteredMemory& parent) { windows_.follow(parent.windows_); }

  /// kPara: size is 0, or the range exceeds the address space. `what` is the name of `at` in the
  /// error text.
  static Status check(const void* at, std::uint64_t size, const char* what);

  // ---- Ranges; the errors are those of the functions of hccl_comm.h ----
  Status set_range(HcclComm comm, void* base, std::size_t size);
  Status unset_range(HcclComm comm, void* base);
  Status activate(HcclComm comm, void* at, std::size_t size);
  Status deactivate(HcclComm comm, void* at);

  // ---- Windows; called after the ranks have agreed ----
  /// `own`: memory of this rank alone, which find() ignores.
  HcclCommSymWindow add_window(HcclComm comm, void* base, std::uint64_t size, bool own = false);
  Result<Window> window(HcclCommSymWindow handle) const;
  Status remove_window(HcclCommSymWindow handle);
  struct Place {
    HcclCommSymWindow window = nullptr;
    std::size_t offset = 0;
  };
  /// Finds the newest window that contains these bytes. kNotFound: no window does.
  Result<Place> find(HcclComm comm, const void* at, std::size_t size) const;

  /// Removes the records of a destroyed communicator.
  void forget(HcclComm comm);

 private:
  using Ranges = std::map<std::uintptr_t, std::size_t>;  // size by start; they do not overlap
  struct Kept {
    Ranges ranges;
    Ranges active;
    std::vector<HcclCommSymWindow> windows;  // in order of registration
    std::uint64_t registered = 0;
  };

  mutable Mutex mutex_{LockLevel::kRegistered};
  std::map<HcclComm, Kept> kept_ HCCL_GUARDED_BY(mutex_);
  Handles<Window> windows_{"winHandle", 4};
};

}  // namespace hccl::api
