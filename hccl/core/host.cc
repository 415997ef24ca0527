#include "hccl/core/host.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "hccl/base/fd.h"

namespace hccl::core {
namespace {

std::string boot_id() {
  const Fd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[64];
  const ssize_t got = fd.valid() ? ::read(fd.get(), text, sizeof text) : -1;
  if (got > 0) {
    std::string id(text, static_cast<std::size_t>(got));
    return id.substr(0, id.find('\n'));
  }
  // Without /proc the host's name must do.
  char name[65] = "";
  ::gethostname(name, sizeof name - 1);
  return std::string("host ") + name;
}

std::string network_namespace() {
  struct stat info = {};
  if (::stat("/proc/self/ns/net", &info) != 0) return "unknown";
  return std::to_string(info.st_ino);
}

}  // namespace

HostIdentity host_identity() { return boot_id() + " net " + network_namespace(); }

int usable_cores() {
  // The kernel's mask may be longer than cpu_set_t: EINVAL asks for more room.
  for (int cores = CPU_SETSIZE; cores <= (1 << 18); cores *= 2) {
    const std::size_t bytes = CPU_ALLOC_SIZE(cores);
    std::vector<cpu_set_t> sets((bytes + sizeof(cpu_set_t) - 1) / sizeof(cpu_set_t));
    if (::sched_getaffinity(0, bytes, sets.data()) == 0) {
      return std::max(1, CPU_COUNT_S(bytes, sets.data()));
    }
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace hccl::core
