// When to store results past the caches, by the sizes of this machine's caches.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "hccl/kernels/kernels.h"

namespace hccl::kernels {

struct StoreRule {
  /// Buffers of at most this many bytes stay in the caches.
  std::size_t cached_most = std::numeric_limits<std::size_t>::max();

  /// For one of `ranks` ranks that work at once, spread over all cores: five eighths of its share
  /// of the last cache, because a copy that fills the whole share is already faster with streaming.
  /// Never streams where the system does not report its caches. Reads a few files under `system`;
  /// call it once and keep the rule.
  static StoreRule of_this_machine(int ranks,
                                   const std::string& system = "/sys/devices/system/cpu");

  /// For memory that is not read before it is written, in an operation with this many bytes of
  /// buffers on this rank.
  Store store(std::size_t bytes) const {
    return bytes > cached_most ? Store::kStream : Store::kCached;
  }
};

}  // namespace hccl::kernels
