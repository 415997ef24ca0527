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

  /// Sets whether a post waits for room in libfabric. No event reports room, so the sleeper then
  /// takes short naps. Only the mesh's thread may call.
  void set_waiting(bool waiting) { waiting_ = waiting; }
  void moved() { nap_.moved(); }
  /// Call before the endpoint closes: from then on only ring() wakes the sleeper. Only the mesh's
  /// thread may call.
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
