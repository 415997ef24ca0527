// Numbers the joins of this process. A process may join a job several times, or twice at once, and
// all ranks must give the same join the same number.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "hccl/base/mutex.h"

namespace hccl::join {

/// Safe to use from any thread. The mutex belongs to the owner of this object, which holds the
/// mutex around a fork.
class JoinNumbers {
  struct Free {
    std::set<int> numbers;  // given back
    int next = 0;
  };

 public:
  explicit JoinNumbers(Mutex& mutex) : mutex_(mutex) {}

  /// The lowest number that no join of the job has. The destructor gives the number of a failed
  /// join back, because the next try must meet the ranks that have not tried yet.
  class Number {
   public:
    Number(JoinNumbers& owner, const std::string& job)
        : owner_(owner), free_(owner.free_of(job)), node_(owner.take(free_)) {}
    ~Number() {
      const MutexLock lock(owner_.mutex_);
      if (!node_.empty()) free_.numbers.insert(std::move(node_));  // needs no memory
    }
    Number(const Number&) = delete;
    Number& operator=(const Number&) = delete;
    int value() const { return value_; }
    /// From now on the destructor does not give the number back.
    void keep() { node_ = {}; }

   private:
    JoinNumbers& owner_;
    Free& free_;
    std::set<int>::node_type node_;
    const int value_ = node_.value();
  };

 private:
  Free& free_of(const std::string& job) {
    const MutexLock lock(mutex_);
    return jobs_[job];
  }
  std::set<int>::node_type take(Free& free) {
    const MutexLock lock(mutex_);
    if (free.numbers.empty()) {
      free.numbers.insert(free.next);
      ++free.next;
    }
    return free.numbers.extract(free.numbers.begin());
  }

  Mutex& mutex_;
  std::map<std::string, Free> jobs_ HCCL_GUARDED_BY(mutex_);
};

}  // namespace hccl::join
