// Where the thread of a mailbox sleeps: on its mesh's sleeper, but callers can wake it too.
#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "hccl/base/socket.h"
#include "hccl/base/waiter.h"

namespace hccl::core {

class MailboxSleeper final : public Sleeper {
 public:
  /// `inner` outlives it. A sleeper without an epoll set only naps, and needs no ring.
  explicit MailboxSleeper(Sleeper& inner) : inner_(inner) {
    auto* polled = dynamic_cast<PolledSleeper*>(&inner);
    auto outer = EpollSleeper::create();
    if (polled == nullptr || !outer.ok()) return;
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl((*outer)->epoll(), EPOLL_CTL_ADD, polled->epoll(), &event) == 0) {
      outer_ = std::move(outer).value();
    }
  }

  /// Any thread.
  void ring() {
    if (outer_ != nullptr) outer_->ring();
  }
  std::uint32_t prepare() override { return inner_.prepare(); }
  void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) override {
    if (outer_ != nullptr) return outer_->sleep(ticket, at_most);
    inner_.sleep(ticket, std::min<std::chrono::nanoseconds>(at_most, std::chrono::milliseconds(1)));
  }
  void awake() override {
    inner_.awake();
    if (outer_ != nullptr) outer_->awake();
  }

 private:
  Sleeper& inner_;
  std::unique_ptr<EpollSleeper> outer_;
};

}  // namespace hccl::core
