#include "hccl/base/atomics.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace hccl {

void StdAtomics::yield() { sched_yield(); }

bool StdAtomics::join_fences() {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void StdAtomics::fence_everywhere() {
  ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

void StdAtomics::sleep(atomic<std::uint32_t>& word, std::uint32_t value,
                       std::chrono::nanoseconds at_most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec timeout{seconds.count(), (at_most - seconds).count()};
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, value, &timeout,
            nullptr, 0);
}

void StdAtomics::wake_all(atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr,
            nullptr, 0);
}

void StdAtomics::notify(int eventfd) {
  struct stat about{};
  if (::fstat(eventfd, &about) != 0 || (about.st_mode & S_IFMT) != 0) return;
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then the sleeper is awake already.
  [[maybe_unused]] const auto written = ::write(eventfd, &one, sizeof one);
}

}  // namespace hccl
