// One operation under way on the host path.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hccl/base/cache_hints.h"
#include "hccl/base/call.h"
#include "hccl/exec/host/exchange.h"
#include "hccl/kernels/kernels.h"

namespace hccl::exec::host {

inline constexpr std::size_t kPage = 4096;
/// As Envelope::algorithm: folds keep the order of the ranks, whatever the way.
inline constexpr std::uint32_t kInRankOrder = 1;

struct Run {
  Run(const Call& the_call, int its_place, int ranks, const Envelope& envelope)
      : call(the_call),
        exchange(call, its_place, ranks),
        mine(envelope),
        fingerprint(digest(envelope)),
        element(size_of(call.type)),
        place(its_place),
        size(ranks) {}

  /// Bytes from the start of a giver's input to this rank's block, in operations without blocks of
  /// different lengths.
  std::size_t from_start_of_input() const {
    return exchange.block_for_each() ? exchange.in(place).at * element : 0;
  }

  /// The part of `count` elements that is this rank's to fold: whole cache lines, but for the last.
  Block slice(int of, std::uint64_t count) const {
    const std::uint64_t line = std::max<std::uint64_t>(1, kCacheLine / element);
    const auto ranks = static_cast<std::uint64_t>(size);
    const auto boundary = [&](std::uint64_t part) {
      return part == ranks ? count : count / line * part / ranks * line;
    };
    const auto part = static_cast<std::uint64_t>(of);
    return {boundary(part), boundary(part + 1) - boundary(part)};
  }

  /// Elements from the first to the last of this rank's buffers.
  std::uint64_t input_extent() const {
    std::uint64_t end = 0;
    for (int to = 0; to < (exchange.block_for_each() ? size : 1); ++to) {
      const Block block = exchange.in(to);
      end = std::max(end, block.at + block.count);
    }
    return end;
  }
  std::uint64_t output_extent() const {
    std::uint64_t end = 0;
    for (int from = 0; from < size; ++from) {
      const Block block = exchange.out(from);
      end = std::max(end, block.at + block.count);
    }
    return end;
  }

  /// Bytes of this rank's buffers: its part of what all of them read and write.
  std::uint64_t touched() const {
    return (output_extent() + (call.in == call.out ? 0 : input_extent())) * element;
  }
  /// How the result is stored where nobody but this rank reads the buffer that it fills.
  kernels::Store store_in(const std::byte* out, const std::byte* in) const {
    return in == out ? kernels::Store::kCached : store;
  }

  /// What ranks compare. The products do not wait for one another: every operation begins with
  /// this.
  static std::uint32_t digest(const Envelope& envelope) {
    // Field by field: a wide load of what was just stored in pieces would wait for all of them.
    const std::uint64_t kind = std::uint64_t{envelope.op} << 24 |
                               std::uint64_t{envelope.type} << 16 |
                               std::uint64_t{envelope.reduce} << 8 | envelope.version;
    const std::uint64_t who = std::uint64_t{envelope.root} << 32 | envelope.plan;
    const std::uint64_t how = std::uint64_t{envelope.algorithm} << 32 | kind;
    std::uint64_t h = envelope.sequence * 0x9E3779B97F4A7C15u;
    h += (envelope.count ^ envelope.count >> 32) * 0xD6E8FEB86659FD93u;
    h ^= (who ^ who >> 32) * 0xA0761D6478BD642Fu;
    h += (how ^ how >> 32) * 0xE7037ED1A0B428DBu;
    return static_cast<std::uint32_t>(h >> 32);
  }

  const Call& call;
  Exchange exchange;
  Envelope mine;
  std::uint32_t fingerprint;
  std::size_t element;
  static constexpr std::uint64_t kDiffer = ~std::uint64_t{0};
  std::uint64_t bytes = 0;  ///< of the input; kDiffer: ranks' blocks may differ
  std::size_t in_ring = 0;  ///< where it lies in the ring
  int place;
  int size;
  /// How a result is stored in memory that nobody reads before.
  kernels::Store store = kernels::Store::kCached;
};

}  // namespace hccl::exec::host
