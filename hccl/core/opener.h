// Opens something once: on the thread that needs it first, or on a thread of its own.
#pragma once

#include <atomic>
#include <functional>

#include "hccl/base/doorbell.h"
#include "hccl/base/thread.h"
#include "hccl/base/waiter.h"

namespace hccl::core {

class Opener {
 public:
  enum class State { kClosed, kOpening, kOpen, kPartly, kFailed };
  /// Runs at most once. Returns kOpen, kPartly (open, but without some ranks) or kFailed.
  using Open = std::function<State()>;

  /// Any thread may call.
  State state() const { return state_.load(std::memory_order_acquire); }

  /// Opens, or waits until another thread has opened. Returns kOpening if the waiter gives up.
  State open(const Open& open, const Waiter& waiter);
  /// Opens on a thread of its own, unless the opening has begun before. Does not block.
  /// std::system_error: no thread can be started; the state is kFailed.
  void open_aside(Open open);
  /// From now on nothing opens. Waits up to `patience` for an opening that has begun. Returns the
  /// state before; kOpening: the opening still runs, and the caller must end it. The destructor
  /// waits for its end.
  State close(std::chrono::nanoseconds patience);

 private:
  bool begin();
  void end(State state);

  std::atomic<State> state_{State::kClosed};
  Doorbell bell_;  // rung at the end of the opening
  Thread thread_;  // declared last, so that its thread ends first
};

}  // namespace hccl::core
