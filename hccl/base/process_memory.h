// Copies by the kernel between this process's memory and another's, in one step and without the
// other process: process_vm_readv(2) and process_vm_writev(2), known as cross memory attach (CMA).
// The kernel allows it to a process that may trace the other one: the same user, unless
// kernel.yama.ptrace_scope or a container's rules say otherwise.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace hccl {

/// Copies `bytes` from address `there` of the process. 0, or an errno: ESRCH when it has ended,
/// EFAULT when it has no such memory, EPERM when it may not be read, ENOSYS. Bytes copied before a
/// failure stay. Any thread.
int copy_from_process(pid_t process, std::uint64_t there, void* here, std::size_t bytes);
/// The same the other way, into its memory.
int copy_to_process(pid_t process, std::uint64_t there, const void* here, std::size_t bytes);

/// Whether all these bytes of this process's own memory can be read, and written if `writes`: after
/// EFAULT, it shows whose memory was at fault. Slow.
bool accessible(const void* here, std::size_t bytes, bool writes);

}  // namespace hccl
