// Opens something once: on the thread that needs it first, or on a thread of its own.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "hccl/base/doorbell.h"
#include "hccl/base/waiter.h"

namespace hccl::core {

class Opener {
 public:
  enum class State { kClosed, kOpening, kOpen, kPartly, kFailed };
  /// Runs at most once. Returns kOpen, kPartly (open, but without some ranks) or kFailed.
  using Open = std::function<State()>;

  Opener() = default;
  /// Waits for the end of an opening on a thread of its own.
  ~Opener();
  Opener(const Opener&) = delete;
  Opener& operator=(const Opener&) = delete;

  /// Any thread may call.
  State state() const { return state_.load(std::memory_order_acquire); }

  /// Opens, or waits until another thread has opened. Returns kOpening if the waiter gives up.
  State open(const Open& open, const Waiter& waiter);
  /// Opens on a thread of its own, unless the opening has begun before. Does not block.
  /// std::system_error: no thread can be started; the state is kFailed.
  void open_aside(Open open);
  /// From now on nothing opens. Waits up to `patience` for an opening that has begun. Returns the
  /// state before; kOpening: the opening still runs, and the caller must end it.
  State close(std::chrono::nanoseconds patience);

 private:
  bool begin();

  std::atomic<State> state_{State::kClosed};
  // Rung at the end of the opening. The opening thread rings it last, when this object may have
  // gone: it is not joined, because a joinable thread keeps its stack until the group is destroyed.
  const std::shared_ptr<Doorbell> bell_ = std::make_shared<Doorbell>();
  pid_t aside_in_ = 0;  // the process that opens on a thread of its own
};

}  // namespace hccl::core
