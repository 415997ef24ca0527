#include "transport/ofi/ofi_sleeper.h"

#include <sys/epoll.h>

namespace hccl::transport::ofi {

Result<std::unique_ptr<OfiSleeper>> OfiSleeper::create(const Endpoint& endpoint) {
  std::unique_ptr<OfiSleeper> sleeper(new OfiSleeper);
  sleeper->fabric_ = endpoint.fabric.get();
  sleeper->completions_ = &endpoint.completions->fid;
  if (endpoint.wait_fd < 0) return sleeper;
  HCCL_ASSIGN_OR_RETURN(sleeper->epoll_, EpollSleeper::create());
  if (!watch_fd(sleeper->epoll_->epoll(), EPOLL_CTL_ADD, endpoint.wait_fd, EPOLLIN)) {
    return syscall_failure("cannot wait on libfabric's descriptor");
  }
  sleeper->wait_fd_ = endpoint.wait_fd;
  return sleeper;
}

void OfiSleeper::forget_endpoint() {
  if (wait_fd_ >= 0) epoll_ctl(epoll_->epoll(), EPOLL_CTL_DEL, wait_fd_, nullptr);
  wait_fd_ = -1;
  completions_ = nullptr;
}

void OfiSleeper::ring() {
  nap_.ring();
  if (epoll_ != nullptr) epoll_->ring();
}

void OfiSleeper::sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) {
  if (epoll_ == nullptr || waiting_ || completions_ == nullptr) {
    nap_.sleep(ticket, at_most);
    return;
  }
  // Without this call libfabric need not signal the descriptor.
  if (fi_trywait(fabric_, &completions_, 1) != 0) return;
  epoll_->sleep(ticket, at_most);
}

}  // namespace hccl::transport::ofi
