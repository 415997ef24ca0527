#include "benchmarks/perf/buffers.h"

#include "benchmarks/perf/algorithms.h"
#include "hccl/acl/acl.h"

namespace hccl_perf {

Buffers::Buffers(const std::string& kind, std::size_t bytes, HcclComm comm) {
  if (kind == "private") {
    private_.resize(bytes);
    data_ = private_.data();
    return;
  }
  check(aclrtMalloc(&device_, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
  data_ = static_cast<std::byte*>(device_);
  if (kind == "window") {
    check(HcclCommSymWinRegister(comm, device_, bytes, &window_, 1), "HcclCommSymWinRegister");
  }
}

Buffers::~Buffers() {
  if (window_ != nullptr) check(HcclCommSymWinDeregister(window_), "HcclCommSymWinDeregister");
  if (device_ != nullptr) check(aclrtFree(device_), "aclrtFree");
}

void Flusher::flush() {
  for (std::size_t at = 0; at < memory_.size(); at += 64) ++memory_[at];
}

}  // namespace hccl_perf
