#include "hccl/base/waiter.h"

namespace hccl {

Status timed_out(const WaitingCall& pending) {
  std::string late;
  for (const int rank : pending.late) {
    late += (late.empty() ? "; no matching call has come from rank " : ", ") + std::to_string(rank);
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
