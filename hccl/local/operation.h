// One operation under way, as the local algorithms use it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "hccl/base/call.h"
#include "hccl/kernels/folding.h"
#include "hccl/local/blocks.h"

namespace hccl::local {

/// The buffers of a rank. A rank announces its Descriptor if its data does not travel with the
/// announcement.
struct Descriptor {
  static constexpr std::uint64_t kPrivate = ~std::uint64_t{0};
  std::uint64_t in = 0;  ///< an address in the rank's own process
  std::uint64_t out = 0;
  std::uint64_t in_heap = kPrivate;  ///< an offset in the rank's device heap; kPrivate: not there
  std::uint64_t out_heap = kPrivate;
  std::uint64_t in_bytes = 0;  ///< from the buffer's first to its last byte
  std::uint64_t out_bytes = 0;
  std::uint64_t longest = 0;  ///< elements of the rank's longest block
};

/// The buffers of a peer after its announcement. A pointer is null if the buffer is not reachable.
struct PeerBuffers {
  Descriptor where;
  std::byte* in = nullptr;
  std::byte* out = nullptr;
};

/// How the ranks of one communicator run local algorithms. All ranks have the same values, except
/// in stream_from.
struct Tuning {
  std::size_t chunk = std::size_t{128} << 10;  ///< bytes of a staging buffer in one chunk
  /// Inputs and chunks of at least this size are stored into staging buffers past the caches. That
  /// is faster between far cores and slower between near cores. The value may differ between ranks.
  std::size_t stream_from = ~std::size_t{0};
};

struct Operation {
  Operation(const Call& the_call, int local_rank, int ranks)
      : call(the_call),
        blocks(the_call, local_rank, ranks),
        fold(kernels::Folding::of(the_call, ranks)),
        element(hccl::size_of(the_call.type)),
        size(ranks) {}

  const std::byte* in() const { return static_cast<const std::byte*>(call.in); }
  std::byte* out() const { return static_cast<std::byte*>(call.out); }
  /// The part of `count` elements that `local_rank` folds.
  Block slice(int local_rank, std::uint64_t count) const {
    return local::slice(local_rank, size, count, element);
  }
  /// How to store a result of the input `from` into `to`, if no peer reads `to` soon. A result in
  /// place is never stored past the caches, because its lines have just been read.
  kernels::Store store_to(const std::byte* to, const std::byte* from) const {
    return to == from ? kernels::Store::kCached : store;
  }

  /// How `length` bytes are stored into a staging buffer.
  kernels::Store staged_store(std::size_t length) const {
    return length >= tuning.stream_from ? kernels::Store::kStream : kernels::Store::kCached;
  }

  const Call& call;
  Blocks blocks;
  kernels::Folding fold;  ///< folds all inputs at once
  std::size_t element;
  int size;                                        ///< number of ranks
  std::uint64_t bytes = 0;                         ///< this rank's input, without gaps
  std::size_t whole_at = 0;                        ///< offset of eager inputs in staging buffers
  kernels::Store store = kernels::Store::kCached;  ///< for long results that no rank reads soon
  Tuning tuning;
  /// The buffers of all ranks, by local rank; only for rendezvous operations.
  std::span<const PeerBuffers> peers;
  /// Room for the addresses of a fold's inputs, by local rank.
  std::span<const std::byte*> inputs;
};

}  // namespace hccl::local
