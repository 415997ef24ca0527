#pragma once

#include <cstddef>

#include "hccl/hccl_framework.h"
#include "kernel.h"

namespace hccl::tf {

/// Memory that the ranks of a host share.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { clear(); }
  /// Makes the buffer at least this large. Its contents become undefined.
  Status resize(std::size_t bytes) {
    if (bytes <= bytes_) return absl::OkStatus();
    clear();
    TF_RETURN_IF_ERROR(to_status(HcclMemAlloc(&data_, bytes)));
    bytes_ = bytes;
    return absl::OkStatus();
  }
  void clear() {
    static_cast<void>(HcclMemFree(data_));
    data_ = nullptr;
    bytes_ = 0;
  }
  char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace hccl::tf
