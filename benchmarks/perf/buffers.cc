#include "benchmarks/perf/buffers.h"

#include <cstdio>
#include <cstdlib>

#include "hccl/acl/acl.h"

namespace hccl_perf {
namespace {

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "hccl_perf: %s: %s\n", what, HcclGetLastErrorText());
  std::_Exit(1);  // other ranks of this process may be inside the library
}

}  // namespace

Buffers::Buffers(const std::string& kind, std::size_t bytes, HcclComm comm) {
  if (kind == "private") {
    private_.resize(bytes);
    data_ = private_.data();
    return;
  }
  if (aclrtMalloc(&device_, bytes, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS) {
    give_up("aclrtMalloc");
  }
  data_ = static_cast<std::byte*>(device_);
  if (kind == "window" &&
      HcclCommSymWinRegister(comm, device_, bytes, &window_, 1) != HCCL_SUCCESS) {
    give_up("HcclCommSymWinRegister");
  }
}

Buffers::~Buffers() {
  if (window_ != nullptr && HcclCommSymWinDeregister(window_) != HCCL_SUCCESS) {
    give_up("HcclCommSymWinDeregister");
  }
  if (device_ != nullptr && aclrtFree(device_) != ACL_SUCCESS) give_up("aclrtFree");
}

void Flusher::flush() {
  for (std::size_t at = 0; at < memory_.size(); at += 64) ++memory_[at];
}

}  // namespace hccl_perf
