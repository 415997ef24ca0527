// Temporary mappings (Pages), and a function that faults pages in before they are used.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "hccl/base/status.h"

namespace hccl {

struct Unmap {
  std::size_t bytes = 0;
  void operator()(std::byte* at) const { ::munmap(at, bytes); }
};
/// Zeroed memory. The pages return to the system when this object is destroyed; an allocator might
/// keep them.
using Pages = std::unique_ptr<std::byte, Unmap>;
/// Fails with kOom if there is no memory.
inline Result<Pages> map_pages(std::size_t bytes) {
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return Status(Code::kOom, "no memory for a mapping");
  return Pages(static_cast<std::byte*>(at), Unmap{bytes});
}

/// Faults in the writable pages that hold these bytes of a mapping. Kernels before 5.14 reject the
/// request and fault pages in at the first access. Returns false if the machine has no more memory.
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
