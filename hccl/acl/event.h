// Events: marks in a stream that others wait for and that carry a time.
//
// Records are numbered when they are issued. A wait is for a number: the last one issued, or, where
// there is none since the last reset, the next. So what a program says in its own order holds,
// whichever stream is faster: an event may be recorded again, or reset, while streams still wait
// for an earlier record.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

#include "hccl/base/deadline.h"
#include "hccl/base/status.h"
#include "hccl/base/waiter.h"

namespace hccl::acl {

/// Every member is safe to use from any thread.
class Event {
 public:
  using Clock = std::chrono::steady_clock;
  enum class State { kUnset, kPending, kComplete };

  struct Uses {
    bool wait;
    bool reset;
    bool time;
  };
  explicit Event(Uses uses) : uses_(uses) {}

  const Uses& uses() const { return uses_; }

  /// A record enters a stream; gives its number.
  std::uint64_t issue();
  /// The record's turn has come; `status`: whether what it stands for was done.
  void complete(std::uint64_t record, Status status);
  /// The number that a stream which is told now to wait, waits for.
  std::uint64_t awaited();
  /// Waits for that record, or a later one. Gives what complete() said; kTimeout; the abort's
  /// reason; kPara when the event was destroyed and the record can no longer come.
  Status wait_for(std::uint64_t record, Deadline deadline, const AbortFlag* abort);
  void reset();
  /// No more records will be issued.
  void end();

  State state() const;
  /// The number of the last record; 0 while unset.
  std::uint64_t last() const;
  /// When the last record was complete.
  Clock::time_point time() const;

 private:
  const Uses uses_;
  mutable std::mutex mutex_;
  std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> done_{0};  // the latest that is complete
  std::atomic<bool> ended_{false};
  std::uint64_t void_ = 0;  // records up to here were taken back by a reset
  std::uint64_t most_awaited_ = 0;
  Clock::time_point time_{};  // of done_
  Status status_;             // of done_
  Doorbell bell_;
};

}  // namespace hccl::acl
