// Device memory that several processes of a host use. The process that has allocated the memory
// makes a key; the program passes the key to other processes, which map the memory by the key.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "hccl/base/mutex.h"
#include "hccl/base/status.h"
#include "hccl/memory/heap.h"

namespace hccl::acl {

/// Every member is safe to use from any thread. Keys come from the program and are checked.
class SharedMemory {
 public:
  /// The number of hexadecimal digits of a key. A key names the exporting process, its heap by
  /// descriptor and inode, the boot of the host, and the offset and size of the memory in the heap.
  static constexpr std::size_t kKeyDigits = 64;

  /// Fails with PARAM_INVALID if the bytes do not lie in one allocation of the heap.
  Result<std::string> export_key(const memory::Heap& heap, const void* memory, std::size_t bytes);
  /// Fails with PARAM_INVALID if this process does not export the key.
  Status check_exported(std::string_view key);
  /// Returns the address of the memory in this process. PARAM_INVALID: `key` is not a key, or the
  /// exporting process has ended, is on another host, or belongs to another user.
  Result<void*> import(memory::Heap& heap, std::string_view key);
  /// Undoes one import or, if there is none, one export. An imported address becomes invalid when
  /// its last import is undone. PARAM_INVALID: this process has neither imported nor exported the
  /// key.
  Status close(std::string_view key);

 private:
  struct Use {
    std::shared_ptr<memory::View> view;  // null: the memory is this process's own
    int imports = 0;
    int exports = 0;
  };
  Mutex mutex_{LockLevel::kDevice};
  std::map<std::string, Use, std::less<>> uses_ HCCL_GUARDED_BY(mutex_);  // by key
};

}  // namespace hccl::acl
