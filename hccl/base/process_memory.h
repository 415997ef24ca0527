// Copies by the kernel between this process's memory and another's, in one step and without the
// other process: process_vm_readv(2) and process_vm_writev(2), known as cross memory attach (CMA).
// The kernel lets a process copy if the process may trace the other one. That is so for the same
// user, unless kernel.yama.ptrace_scope or a container's rules forbid it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace hccl {

/// Copies `bytes` from the address `there` of the process. Returns 0 or an errno: ESRCH if the
/// process has ended, EFAULT if it has no such memory, EPERM if reading is forbidden, ENOSYS. Bytes
/// copied before a failure stay. Any thread may call.
int copy_from_process(pid_t process, std::uint64_t there, void* here, std::size_t bytes);
/// As copy_from_process(), in the other direction.
int copy_to_process(pid_t process, std::uint64_t there, const void* here, std::size_t bytes);

/// Whether this process can read all these bytes of its own memory, and write them if `writes`.
/// After EFAULT the result tells which process's memory was wrong. Slow.
bool accessible(const void* here, std::size_t bytes, bool writes);

}  // namespace hccl
