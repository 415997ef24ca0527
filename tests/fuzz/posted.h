// A send or receive of a link whose other end is fuzzed, and its memory.
#pragma once

#include <cstddef>
#include <memory>

#include "transport/transport.h"

namespace hccl::fuzz {

struct Posted {
  explicit Posted(std::size_t bytes_) : bytes(new std::byte[bytes_]()), size(bytes_) {}
  transport::Request request;
  std::unique_ptr<std::byte[]> bytes;
  std::size_t size;
};

}  // namespace hccl::fuzz
