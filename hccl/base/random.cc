#include "hccl/base/random.h"

#include <sys/random.h>

#include <cerrno>

#include "hccl/base/error_text.h"

namespace hccl {

Status random_bytes(void* out, std::size_t size) {
  auto* at = static_cast<unsigned char*>(out);
  while (size != 0) {
    const ssize_t got = ::getrandom(at, size, 0);
    if (got < 0 && errno != EINTR) {
      return Status(Code::kSyscall, "no random numbers: " + error_text(errno));
    }
    if (got <= 0) continue;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return {};
}

}  // namespace hccl
