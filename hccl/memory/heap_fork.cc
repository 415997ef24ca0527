// The heap in a forked child.
#include <sys/mman.h>

#include "hccl/memory/heap.h"

namespace hccl::memory {

// Makes the mappings private to the child. If the kernel grants no private memory for writing
// (RLIMIT_DATA, vm.overcommit_memory), or the program has closed the memfd, the mappings become
// read-only: a write then crashes the child instead of changing the parent's memory.
void Heap::make_private() const {
  const bool ours = memfd_.ours();
  const auto change = [&](std::byte* at, std::size_t bytes, std::uint64_t offset) {
    const auto map = [&](int protection) {
      return ::mmap(at, bytes, protection, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, memfd_.get(),
                    static_cast<off_t>(offset)) != MAP_FAILED;
    };
    if (!ours || (!map(PROT_READ | PROT_WRITE) && !map(PROT_READ))) {
      ::mprotect(at, bytes, PROT_READ);
    }
    ::madvise(at, bytes, MADV_DONTDUMP);
  };
  change(base_, reserve_, 0);
  for (const auto& [at, each] : changing_.load() ? spare_ : mappings_) {
    // An address of a mapping. NOLINTNEXTLINE(performance-no-int-to-ptr)
    change(reinterpret_cast<std::byte*>(at), each.bytes, each.offset);
  }
}

}  // namespace hccl::memory
