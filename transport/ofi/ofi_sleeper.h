// Sleeps on a completion queue's file descriptor.
#pragma once

#include <memory>

#include "hccl/base/socket.h"
#include "transport/nap_sleeper.h"
#include "transport/ofi/endpoint.h"

namespace hccl::transport::ofi {

class OfiSleeper final : public Sleeper {
 public:
  static Result<std::unique_ptr<OfiSleeper>> create(const Endpoint& endpoint);

  /// Says that a post waits for room. No event announces room, so the sleeper only naps. For the
  /// mesh's thread.
  void set_waiting(bool waiting) { waiting_ = waiting; }
  void moved() { nap_.moved(); }
  /// The endpoint is closed: from now on only ring() wakes the sleeper. For the mesh's thread.
  void forget_endpoint();
  /// Any thread may call.
  void ring();

  std::uint32_t prepare() override { return nap_.prepare(); }
  void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) override;
  void awake() override { nap_.awake(); }

 private:
  OfiSleeper() = default;
  fid_fabric* fabric_ = nullptr;
  fid* completions_ = nullptr;
  int wait_fd_ = -1;
  bool waiting_ = false;
  std::unique_ptr<EpollSleeper> epoll_;  ///< null if the provider has no file descriptor
  NapSleeper nap_;
};

}  // namespace hccl::transport::ofi
