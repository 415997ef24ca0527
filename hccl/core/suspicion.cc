#include "hccl/core/suspicion.h"

#include <algorithm>
#include <chrono>

namespace hccl::core {

void Suspicion::report(const WaitingCall& pending, Deadline::Clock::time_point now) {
  using std::chrono::seconds;
  // The waiter's first report of a wait comes up to kReportInterval after the wait began.
  if (call_ != pending.call) {
    call_ = pending.call;
    since_ = now - kReportInterval;
    next_ = since_ + seconds(2);
  }
  if (now < next_) return;
  next_ = now + seconds(30);
  std::string whom;
  constexpr std::size_t kNamed = 16;  // the most ranks in one line of the log
  for (std::size_t i = 0; i < std::min(pending.late.size(), kNamed); ++i) {
    whom += (whom.empty() ? "" : ", ") + std::to_string(pending.late[i]);
  }
  if (pending.late.size() > kNamed) {
    whom += ", … (" + std::to_string(pending.late.size()) + " in all)";
  }
  if (!whom.empty()) whom = (pending.late.size() == 1 ? " for rank " : " for ranks ") + whom;
  log_->warn("{}: rank {} waits{} in {}, for {} s so far", name_, rank_, whom, call_,
             std::chrono::duration_cast<seconds>(now - since_).count());
}

}  // namespace hccl::core
