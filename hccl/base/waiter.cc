#include "hccl/base/waiter.h"

namespace hccl {

bool AbortFlag::raise(Status reason) {
  const std::lock_guard lock(mutex_);
  if (raised_.load(std::memory_order_relaxed)) return false;
  reason_ = std::move(reason);
  raised_.store(true, std::memory_order_release);
  return true;
}

Status AbortFlag::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

Status timed_out(const Pending& pending) {
  std::string late;
  for (const int rank : pending.late) {
    late += (late.empty() ? "; no call has come from rank " : ", ") + std::to_string(rank);
  }
  return Status(Code::kTimeout, "EI0002: " + pending.call + " did not end in time" + late);
}

void nap(std::chrono::nanoseconds length, Deadline deadline, const AbortFlag* abort) {
  Doorbell nobody_rings;
  const Waiter waiter{
      .deadline = deadline, .timeout = length, .abort = abort, .policy = kSleepAtOnce};
  static_cast<void>(waiter.until([] { return false; }, nobody_rings));
}

}  // namespace hccl
