#include "hccl/base/atomics.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "hccl/base/process_doorbell.h"

namespace hccl {
namespace {

// `at_most`: nanoseconds::max() means no limit.
void futex_wait(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
                std::chrono::nanoseconds at_most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec timeout{seconds.count(), (at_most - seconds).count()};
  const bool limited = at_most != std::chrono::nanoseconds::max();
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value,
            limited ? &timeout : nullptr, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word, int operation) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, INT_MAX, nullptr,
            nullptr, 0);
}

}  // namespace

void StdAtomics::yield() { sched_yield(); }

bool StdAtomics::join_fences() {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void StdAtomics::fence_everywhere() {
  ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

void StdAtomics::sleep(atomic<std::uint32_t>& word, std::uint32_t value,
                       std::chrono::nanoseconds at_most) {
  futex_wait(word, FUTEX_WAIT, value, at_most);
}

void StdAtomics::wake_all(atomic<std::uint32_t>& word) { futex_wake(word, FUTEX_WAKE); }

void ProcessAtomics::sleep(atomic<std::uint32_t>& word, std::uint32_t value,
                           std::chrono::nanoseconds at_most) {
  futex_wait(word, FUTEX_WAIT_PRIVATE, value, at_most);
}

void ProcessAtomics::wake_all(atomic<std::uint32_t>& word) { futex_wake(word, FUTEX_WAKE_PRIVATE); }

void StdAtomics::notify(int eventfd) {
  struct stat about{};
  if (::fstat(eventfd, &about) != 0 || (about.st_mode & S_IFMT) != 0) return;
  const std::uint64_t one = 1;
  // write() fails only if the counter is full. Then the sleeper is awake already.
  [[maybe_unused]] const auto written = ::write(eventfd, &one, sizeof one);
}

}  // namespace hccl
