#include "hccl/acl/event.h"

#include <algorithm>

#include "hccl/acl/stream.h"

namespace hccl::acl {

std::uint64_t Event::issue() {
  const MutexLock lock(mutex_);
  return issued_.fetch_add(1) + 1;
}

void Event::complete(std::uint64_t record, Status status) {
  const auto now = Clock::now();
  {
    const MutexLock lock(mutex_);
    if (record <= done_.load()) return;
    time_ = now;
    status_ = std::move(status);
    done_.store(record);
  }
  bell_.ring();
}

void Event::withdraw(std::uint64_t record, const Status& why) {
  {
    const MutexLock lock(mutex_);
    const std::uint64_t before = record - 1;
    if (issued_.load() == record && before > void_ && done_.load() < before) {
      issued_.store(before);
      return;
    }
  }
  complete(record, why);
}

std::uint64_t Event::awaited() {
  const MutexLock lock(mutex_);
  const std::uint64_t record = std::max(issued_.load(), void_ + 1);
  most_awaited_ = std::max(most_awaited_, record);
  return record;
}

Status Event::wait_for(std::uint64_t record, Deadline deadline, const AbortFlag* abort) {
  const auto over = [&] {
    return done_.load() >= record || (ended_.load() && issued_.load() < record);
  };
  switch (waiter(deadline, abort).until(over, bell_)) {
    case Waited::kTimeout:
      return Status(Code::kTimeout, "timeout: the event is not complete yet");
    case Waited::kAborted:
      return abort->reason();
    case Waited::kReady:
      break;
  }
  const MutexLock lock(mutex_);
  if (done_.load() >= record) return status_;
  return Status(Code::kPara, "the event was destroyed before the record that a stream waits for");
}

void Event::reset() {
  const MutexLock lock(mutex_);
  void_ = std::max(issued_.load(), most_awaited_);
}

void Event::end() {
  ended_.store(true);
  bell_.ring();
}

std::uint64_t Event::last() const {
  const MutexLock lock(mutex_);
  return issued_.load() > void_ ? issued_.load() : 0;
}

Event::State Event::state() const {
  const std::uint64_t record = last();
  if (record == 0) return State::kUnset;
  return done_.load() >= record ? State::kComplete : State::kPending;
}

Event::Clock::time_point Event::time() const {
  const MutexLock lock(mutex_);
  return time_;
}

}  // namespace hccl::acl
