#include "hccl/acl/process.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>

namespace hccl::acl {
namespace {

constinit std::atomic<unsigned char> unused{1};

// Allocates a byte that the kernel clears in every copy of the process. If the kernel lacks this
// feature, the library does not detect copies.
std::atomic<unsigned char>* wiped_byte() {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const at =
      ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return &unused;
  if (::madvise(at, page, MADV_WIPEONFORK) == 0) return new (at) std::atomic<unsigned char>(1);
  ::munmap(at, page);
  return &unused;
}
std::atomic<unsigned char>* const wiped = wiped_byte();

}  // namespace

constinit std::atomic<const std::atomic<unsigned char>*> detail::mark{&unused};

Status copy_refused() {
  return Status(Code::kNotSupport,
                "this process is a copy, made by a raw clone() or _Fork(), of a process that uses "
                "HCCL; make it with fork(), or call exec in it");
}

void begin_use() {
  wiped->store(1, std::memory_order_relaxed);
  detail::mark.store(wiped, std::memory_order_release);
}

void end_use() { detail::mark.store(&unused, std::memory_order_release); }

}  // namespace hccl::acl
