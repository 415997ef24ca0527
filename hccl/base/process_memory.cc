#include "hccl/base/process_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace hccl {
namespace {

// Repeats the call, because the kernel may copy fewer bytes at the end of a mapping or at the limit
// of one call.
template <class Copy>
int copy_all(Copy copy, pid_t process, std::uint64_t there, void* here, std::size_t bytes) {
  auto* const begin = static_cast<std::byte*>(here);
  for (std::size_t done = 0; done < bytes;) {
    iovec local{begin + done, bytes - done};
    // An address of the other process. NOLINTNEXTLINE(performance-no-int-to-ptr)
    iovec remote{reinterpret_cast<void*>(there + done), bytes - done};
    const ssize_t copied = copy(process, &local, 1, &remote, 1, 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied < 0) return errno;
    if (copied == 0) return EFAULT;
    done += static_cast<std::size_t>(copied);
  }
  return 0;
}

}  // namespace

int copy_from_process(pid_t process, std::uint64_t there, void* here, std::size_t bytes) {
  return copy_all(::process_vm_readv, process, there, here, bytes);
}

int copy_to_process(pid_t process, std::uint64_t there, const void* here, std::size_t bytes) {
  // The kernel only reads these bytes; iovec has no const pointer.
  return copy_all(::process_vm_writev, process, there, const_cast<void*>(here), bytes);
}

bool accessible(const void* here, std::size_t bytes, bool writes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(here);
  const pid_t self = ::getpid();
  for (std::uintptr_t at = begin; at < begin + bytes; at = (at / page + 1) * page) {
    std::byte one{};
    if (copy_from_process(self, at, &one, 1) != 0) return false;
    if (writes && copy_to_process(self, at, &one, 1) != 0) return false;
  }
  return true;
}

}  // namespace hccl
