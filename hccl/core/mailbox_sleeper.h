// Lets a mailbox's thread sleep while callers use the mesh. The thread waits for the descriptors of
// the mesh. If the mesh has none, the thread takes short naps.
#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "hccl/base/mutex.h"
#include "hccl/base/socket.h"
#include "hccl/base/waiter.h"
#include "transport/nap_sleeper.h"

namespace hccl::core {

class MailboxSleeper final : public Sleeper {
 public:
  /// `mesh`: the sleeper of the mesh. `mutex` guards the mesh and this sleeper. Both arguments must
  /// outlive the object.
  MailboxSleeper(Sleeper& mesh, Mutex& mutex) : mutex_(mutex) {
    auto* const polled = dynamic_cast<PolledSleeper*>(&mesh);
    auto both = EpollSleeper::create();
    if (polled == nullptr || !both.ok()) return;
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl((*both)->epoll(), EPOLL_CTL_ADD, polled->epoll(), &event) != 0) return;
    mesh_ = polled;
    both_ = std::move(both).value();
  }

  /// Called when a caller has begun a transfer: naps become short. A sleep on the mesh's
  /// descriptors needs no ring, because events of the mesh end the sleep. The caller holds the
  /// mutex.
  void begun() {
    if (both_ == nullptr) nap_.ring();
  }
  /// Any thread may call.
  void ring() { both_ != nullptr ? both_->ring() : nap_.ring(); }
  /// Called when data has moved: naps become short again. Only the thread that sleeps may call.
  void moved() { nap_.moved(); }

  std::uint32_t prepare() override {
    if (both_ == nullptr) return nap_.prepare();
    const MutexLock lock(mutex_);
    return mesh_->prepare();
  }
  void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) override {
    both_ != nullptr ? both_->sleep(ticket, at_most) : nap_.sleep(ticket, at_most);
  }
  void awake() override {
    if (both_ == nullptr) return nap_.awake();
    both_->awake();
    const MutexLock lock(mutex_);
    mesh_->awake();
  }

 private:
  Mutex& mutex_;
  PolledSleeper* mesh_ = nullptr;
  std::unique_ptr<EpollSleeper> both_;  // wakes for the mesh's events and for ring(); null: naps
  transport::NapSleeper nap_;
};

}  // namespace hccl::core
