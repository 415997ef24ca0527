// One rank's view of the staging buffers of all ranks of the host. A buffer holds whole inputs, or
// chunks of longer inputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hccl/base/cache_hints.h"

namespace hccl::local {

class Staging {
 public:
  /// About twice a second-level cache. In a much smaller buffer, each line would still be in a
  /// reader's cache when the owner of the buffer writes the line again.
  static constexpr std::size_t kBytes = std::size_t{2} << 20;
  /// The longest input for which next_whole() has room.
  static constexpr std::size_t kMostWhole = std::size_t{512} << 10;
  /// The part of a staging buffer that holds chunks.
  static constexpr std::size_t kChunks = kBytes - kMostWhole;

  /// `buffers`: the staging buffers of all ranks, by local rank.
  explicit Staging(std::byte* buffers) : buffers_(buffers) {}

  std::byte* of(int local_rank) const {
    return buffers_ + static_cast<std::size_t>(local_rank) * kBytes;
  }
  std::byte* chunks(int local_rank) const { return of(local_rank) + kMostWhole; }

  /// The offset of the next whole input in every rank's staging buffer. A rank may write there
  /// before it knows the progress of its peers, and without a barrier at the end:
  ///  - Peers may still read the input of the previous operation. The next input lies behind that
  ///    input, or begins at offset 0 and ends before that input begins (kBytes is 4 kMostWhole).
  ///  - No peer reads older inputs: each rank left the older operations before it announced the
  ///    previous one.
  ///  - Peers may still read chunks of the previous operation. The first whole input after chunks
  ///    goes into the first kMostWhole bytes, which never hold chunks.
  /// A rank writes chunks only after all ranks have announced the operation, and so have left all
  /// earlier operations.
  std::size_t next_whole(std::size_t bytes) {
    const std::size_t at = whole_at_ + bytes > kBytes ? 0 : whole_at_;
    whole_at_ = at + (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
    return at;
  }
  /// The offset that next_whole(bytes) would return now.
  std::size_t peek_whole(std::size_t bytes) const {
    return whole_at_ + bytes > kBytes ? 0 : whole_at_;
  }

  /// Number of chunks of all operations before this one; the same on all ranks.
  std::uint64_t chunks_before() const { return chunks_; }
  /// Ends an operation that had this number of chunks.
  void end_chunks(std::uint64_t chunks) {
    chunks_ += chunks;
    whole_at_ = 0;
  }

 private:
  std::byte* buffers_;
  std::uint64_t chunks_ = 0;
  std::size_t whole_at_ = 0;
};

}  // namespace hccl::local
