#include "hccl/core/opener.h"

namespace hccl::core {

bool Opener::begin() {
  State closed = State::kClosed;
  return state_.compare_exchange_strong(closed, State::kOpening, std::memory_order_acq_rel);
}

void Opener::end(State state) {
  state_.store(state, std::memory_order_release);
  bell_.ring();
}

Opener::State Opener::open(const Open& open, const Waiter& waiter) {
  if (begin()) {
    end(open());
  } else {
    static_cast<void>(waiter.until([this] { return state() != State::kOpening; }, bell_));
  }
  return state();
}

void Opener::open_aside(Open open) {
  if (!begin()) return;
  try {
    thread_ = Thread("hccl-opening", [this, open = std::move(open)] { end(open()); });
  } catch (...) {
    end(State::kFailed);
    throw;
  }
}

Opener::State Opener::close(std::chrono::nanoseconds patience) {
  State before = State::kClosed;
  if (state_.compare_exchange_strong(before, State::kFailed, std::memory_order_acq_rel)) {
    return before;
  }
  const Waiter waiter{.deadline = Deadline::after(patience), .policy = kSleepAtOnce};
  static_cast<void>(waiter.until([this] { return state() != State::kOpening; }, bell_));
  return state();
}

}  // namespace hccl::core
