// Page faults, all at once and before they hurt.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace hccl {

/// Faults in the writable pages that hold these bytes of a mapping. A kernel that does not know the
/// advice (before 5.14) faults them in as they are touched. False: the machine has no more memory.
inline bool fault_in(void* at, std::size_t bytes) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers lack
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  const auto begin = address / page * page;
  const auto end = (address + bytes + page - 1) / page * page;
  // The address comes from a mapping. NOLINTNEXTLINE(performance-no-int-to-ptr)
  return ::madvise(reinterpret_cast<void*>(begin), end - begin, kPopulateWrite) == 0 ||
         errno != ENOMEM;
}

}  // namespace hccl
