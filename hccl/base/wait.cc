#include "hccl/base/wait.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace hccl {

bool AbortFlag::raise(Status reason) {
  std::lock_guard lock(mutex_);
  if (raised_.load(std::memory_order_relaxed)) return false;
  reason_ = std::move(reason);
  raised_.store(true, std::memory_order_release);
  return true;
}

Status AbortFlag::reason() const {
  std::lock_guard lock(mutex_);
  return reason_;
}

namespace {

long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, timeout,
                 nullptr, 0);
}

/// Sleeps while the word has this value.
void futex_sleep(std::atomic<std::uint32_t>* word, std::uint32_t value,
                 std::chrono::nanoseconds at_most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec timeout{seconds.count(), (at_most - seconds).count()};
  futex(word, FUTEX_WAIT, value, &timeout);
}

}  // namespace

void Bell::ring() {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) futex(&rings_, FUTEX_WAKE, INT_MAX, nullptr);
}

std::uint32_t Bell::prepare() {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  return rings_.load(std::memory_order_seq_cst);
}

void Bell::sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) {
  futex_sleep(&rings_, ticket, at_most);
}

void Bell::awake() { sleepers_.fetch_sub(1, std::memory_order_seq_cst); }

void QuietBell::join() {
  if (::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) != 0) {
    fence_.store(1, std::memory_order_seq_cst);
  }
}

void QuietBell::wake() {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  futex(&rings_, FUTEX_WAKE, INT_MAX, nullptr);
}

std::uint32_t QuietBell::prepare() {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
  return rings_.load(std::memory_order_seq_cst);
}

void QuietBell::sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) {
  futex_sleep(&rings_, ticket, at_most);
}

void QuietBell::awake() { sleepers_.fetch_sub(1, std::memory_order_seq_cst); }

namespace detail {

void yield() { sched_yield(); }

}  // namespace detail
}  // namespace hccl
