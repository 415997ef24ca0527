// Copies by the kernel between this process's memory and another process's memory. Each copy is one
// step, and the other process does nothing: process_vm_readv(2) and process_vm_writev(2), known as
// cross memory attach (CMA). The kernel lets a process copy if the process may trace the other one.
// A process may trace the processes of its own user, unless kernel.yama.ptrace_scope or a
// container's rules forbid that.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace hccl {

/// Copies `bytes` from the address `there` of the process. Returns 0 or an errno: ESRCH if the
/// process has ended, EFAULT if one of the processes has no such memory, EPERM if the copy is
/// forbidden, ENOSYS if the kernel lacks the call. Bytes copied before a failure stay. Any thread
/// may call.
int copy_from_process(pid_t process, std::uint64_t there, void* here, std::size_t bytes);
/// Like copy_from_process(), but copies to the other process.
int copy_to_process(pid_t process, std::uint64_t there, const void* here, std::size_t bytes);

/// Returns whether this process can read all these bytes of its own memory, and write them if
/// `writes`. After a copy failed with EFAULT, the result shows which process's memory was wrong.
/// Slow.
bool accessible(const void* here, std::size_t bytes, bool writes);

}  // namespace hccl
