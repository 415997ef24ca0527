// Moves an operation through the staging buffers, chunk by chunk.
#pragma once

#include <algorithm>

#include "hccl/local/operation.h"
#include "hccl/local/region.h"

namespace hccl::local {

struct Pipeline {
  /// `parts`: number of parts of a chunk: one for each rank, or 1 if all ranks take the same data.
  Pipeline(const Region& region, const Operation& op, int parts)
      : first(region.staging().chunks_before()) {
    const auto number = static_cast<std::size_t>(parts);
    std::uint64_t longest = 0;
    for (const PeerBuffers& peer : op.peers) longest = std::max(longest, peer.where.longest);
    stride = std::max(op.tuning.chunk / number / kCacheLine * kCacheLine, kCacheLine);
    length = stride / op.element;
    chunks = (longest + length - 1) / length;
    chunk_bytes = stride * number;
    window = Staging::kChunks / chunk_bytes;
  }

  std::byte* at(const Region& region, int local_rank, std::uint64_t chunk) const {
    return region.staging().chunks(local_rank) + (first + chunk) % window * chunk_bytes;
  }
  /// Waits until the memory of `chunk` is free: all ranks must have taken the chunk that was there,
  /// `window` chunks earlier. At the end of an operation no rank needs to wait: see
  /// Staging::next_whole().
  Status await_room(Region& region, std::uint64_t chunk) const {
    return chunk < window ? Status() : region.await_all(Progress::kTaken, chunk - window);
  }

  /// The number of the first chunk; it continues the count of earlier operations. So even a series
  /// of short operations moves through the whole staging buffer. Otherwise each operation would
  /// write lines that are still in a reader's cache, which is slow.
  std::uint64_t first;
  std::size_t stride;       ///< bytes of one part of a chunk
  std::uint64_t length;     ///< elements of one part of a chunk
  std::uint64_t chunks;     ///< chunks of the longest block of any rank
  std::size_t chunk_bytes;  ///< bytes of all parts of a chunk
  std::uint64_t window;     ///< chunks that a staging buffer holds
};

}  // namespace hccl::local
