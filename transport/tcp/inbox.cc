#include "transport/tcp/inbox.h"

#include <cstring>
#include <utility>

#include "hccl/base/auth.h"

namespace hccl::transport::tcp {
namespace {

Uuid id_of(const Key& key) {
  const Key derived = derive(key, "tcp mesh id");
  Uuid id{};
  std::memcpy(id.data(), derived.data(), id.size());
  return id;
}

}  // namespace

Inbox::Inbox(const Key& key, int rank, std::size_t ranks, bool encrypted, EpollSleeper& bell)
    : key_(key),
      id_(id_of(key)),
      rank_(rank),
      ranks_(ranks),
      encrypted_(encrypted),
      bell_(&bell),
      states_(ranks, State::kNone) {}

bool Inbox::begin(int peer) {
  const MutexLock lock(mutex_);
  State& state = states_[static_cast<std::size_t>(peer)];
  if (state == State::kOpen) return false;
  state = State::kConnecting;
  return true;
}

bool Inbox::end(int peer, bool welcome) {
  const MutexLock lock(mutex_);
  State& state = states_[static_cast<std::size_t>(peer)];
  if (state == State::kOpen) return true;
  state = welcome ? State::kOpen : State::kNone;
  return false;
}

std::vector<Inbox::Arrival> Inbox::take(Status& lack) {
  const MutexLock lock(mutex_);
  rang_.store(false, std::memory_order_relaxed);
  lack = std::exchange(lack_, {});
  return std::exchange(arrivals_, {});
}

void Inbox::close() {
  const MutexLock lock(mutex_);
  bell_ = nullptr;
  arrivals_.clear();
}

Answer Inbox::offer(int peer) {
  const MutexLock lock(mutex_);
  State& state = states_[static_cast<std::size_t>(peer)];
  if (bell_ == nullptr || state == State::kOpen) return Answer::kEnded;
  if (state == State::kConnecting && peer < rank_) return Answer::kCrossed;
  state = State::kOpen;
  return Answer::kWelcome;
}

void Inbox::deliver(Arrival arrival) {
  const MutexLock lock(mutex_);
  if (bell_ == nullptr) return;
  if (!arrival.connection.valid()) {
    states_[static_cast<std::size_t>(arrival.peer)] = State::kNone;
    return;
  }
  arrivals_.push_back(std::move(arrival));
  rang_.store(true, std::memory_order_release);
  bell_->ring();
}

void Inbox::lacks(const Status& why) {
  const MutexLock lock(mutex_);
  if (bell_ == nullptr) return;
  lack_ = why;
  rang_.store(true, std::memory_order_release);
  bell_->ring();
}

}  // namespace hccl::transport::tcp
