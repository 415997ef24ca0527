#include "queue.h"

#include <map>
#include <memory>
#include <thread>
#include <utility>

namespace hccl::tf {

Queue& Queue::of(const std::string& group) {
  static std::mutex& mutex = *new std::mutex;
  static auto& queues = *new std::map<std::string, Queue*>;
  const std::lock_guard lock(mutex);
  Queue*& queue = queues[group];
  if (queue == nullptr) queue = new Queue;
  return *queue;
}

Queue::Queue() { std::thread(&Queue::run, this).detach(); }

void Queue::add(std::function<void()> operation) {
  {
    const std::lock_guard lock(mutex_);
    operations_.push(std::move(operation));
  }
  added_.notify_one();
}

void Queue::run() {
  while (true) {
    std::unique_lock lock(mutex_);
    added_.wait(lock, [this] { return !operations_.empty(); });
    const std::function<void()> operation = std::move(operations_.front());
    operations_.pop();
    lock.unlock();
    operation();
  }
}

}  // namespace hccl::tf
