// Events: marks in a stream with a time. Streams and threads wait for them.
//
// Records are numbered when they are issued. A wait refers to the number of the last issued record
// or, if there is none since the last reset, to the number of the next record. So the order of the
// program's calls counts, not the speed of the streams: an event may be recorded again, or reset,
// while streams still wait for an earlier record.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "hccl/base/deadline.h"
#include "hccl/base/mutex.h"
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

  /// Called when a record enters a stream; returns the record's number.
  std::uint64_t issue();
  /// Called when the stream has reached or skipped the record. `status` becomes the result of waits
  /// for the record.
  void complete(std::uint64_t record, Status status);
  /// Undoes issue(). A thread that waits for the record then waits for the previous record. If
  /// there is no previous record, this record is complete with `why`.
  void withdraw(std::uint64_t record, const Status& why);
  /// Returns the number of the record to which a new wait refers.
  std::uint64_t awaited();
  /// Waits for this record or a later one. Returns the status given to complete(), kTimeout, the
  /// abort's reason, or kPara if the event was destroyed before the record was issued.
  Status wait_for(std::uint64_t record, Deadline deadline, const AbortFlag* abort);
  /// Called when a wait enters a stream; wait_ends() is called when the wait ends there.
  void wait_enters() { ++waits_; }
  void wait_ends() { --waits_; }
  bool has_waits() const { return waits_.load() != 0; }
  void reset();
  /// No more records will be issued.
  void end();

  State state() const;
  /// Returns the number of the last record; 0 if there is none since the last reset.
  std::uint64_t last() const;
  /// Returns the time at which the last record was complete.
  Clock::time_point time() const;

 private:
  const Uses uses_;
  mutable Mutex mutex_;
  std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> done_{0};   // the latest complete record
  std::atomic<std::uint64_t> waits_{0};  // waits in streams that have not ended
  std::atomic<bool> ended_{false};
  std::uint64_t void_ HCCL_GUARDED_BY(mutex_) = 0;  // records up to here were undone by a reset
  std::uint64_t most_awaited_ HCCL_GUARDED_BY(mutex_) = 0;
  Clock::time_point time_ HCCL_GUARDED_BY(mutex_){};  // time of record done_
  Status status_ HCCL_GUARDED_BY(mutex_);             // status of record done_
  Doorbell bell_;
};

}  // namespace hccl::acl
