#include "hccl/core/opener.h"

#include "hccl/base/thread.h"

namespace hccl::core {

Opener::~Opener() {
  if (aside_in_ != ::getpid()) return;  // a forked child does not have the thread
  const Waiter waiter{.policy = kSleepAtOnce};
  static_cast<void>(waiter.until([this] { return state() != State::kOpening; }, *bell_));
}

bool Opener::begin() {
  State closed = State::kClosed;
  return state_.compare_exchange_strong(closed, State::kOpening, std::memory_order_acq_rel);
}

Opener::State Opener::open(const Open& open, const Waiter& waiter) {
  if (begin()) {
    state_.store(open(), std::memory_order_release);
    bell_->ring();
  } else {
    static_cast<void>(waiter.until([this] { return state() != State::kOpening; }, *bell_));
  }
  return state();
}

void Opener::open_aside(Open open) {
  if (!begin()) return;
  try {
    aside_in_ = ::getpid();
    Thread("hccl-opening", [this, bell = bell_, open = std::move(open)] {
      state_.store(open(), std::memory_order_release);
      bell->ring();
    }).detach();
  } catch (...) {
    state_.store(State::kFailed, std::memory_order_release);
    bell_->ring();
    throw;
  }
}

Opener::State Opener::close(std::chrono::nanoseconds patience) {
  State before = State::kClosed;
  if (state_.compare_exchange_strong(before, State::kFailed, std::memory_order_acq_rel)) {
    return before;
  }
  const Waiter waiter{.deadline = Deadline::after(patience), .policy = kSleepAtOnce};
  static_cast<void>(waiter.until([this] { return state() != State::kOpening; }, *bell_));
  return state();
}

}  // namespace hccl::core
