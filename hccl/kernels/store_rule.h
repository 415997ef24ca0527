// Decides, from the sizes of this machine's caches, when results are stored past the caches.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "hccl/kernels/kernels.h"

namespace hccl::kernels {

struct StoreRule {
  /// Buffers of at most this many bytes stay in the caches.
  std::size_t cached_most = std::numeric_limits<std::size_t>::max();

  /// The rule for one of `ranks` ranks that work at once, spread over all cores. The limit is five
  /// eighths of the rank's share of the last cache, because streaming is already faster for a copy
  /// that fills the whole share. If the system does not report its caches, the rule never streams.
  /// The function reads a few files under `system`, so call it once and keep the rule.
  static StoreRule of_this_machine(int ranks,
                                   const std::string& system = "/sys/devices/system/cpu");

  /// How to store into memory whose old contents this rank has not just read. `bytes`: size of this
  /// rank's buffers in the operation.
  Store store(std::size_t bytes) const {
    return bytes > cached_most ? Store::kStream : Store::kCached;
  }
};

}  // namespace hccl::kernels
