// The memory in which the ranks of one host meet: what each of them says of the operation at hand,
// how far it is, and a ring for data that the others cannot reach where it lies.
//
//   [ bell | one RankWords a rank | block tables of alltoallv | page | one ring a rank ]
//
// Every word has one writer, the rank it belongs to (but for what a core's ranks have together),
// and cache lines are not shared between writers. It begins as zeroes. What a peer wrote is checked
// before it is used as an address or a length.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "hccl/base/wait.h"
#include "hccl/base/call.h"
#include "hccl/exec/host/ways.h"

namespace hccl::exec::host {

// Two lines: processors fetch them in pairs.
inline constexpr std::size_t kApart = 128;

/// A cache line, so that what it holds arrives in one piece. `word` is stored last. The payload
/// begins the line: who loads all of it in one vector must not touch the next line.
struct alignas(64) Line {
  static constexpr std::size_t kPayload = 56;
  std::array<std::byte, kPayload> payload{};
  /// Number of the operation on this host (its low 32 bits), above the fingerprint of the call.
  std::atomic<std::uint64_t> word{0};
  /// As the word: it was said, and does not hold any more. Operations are numbered from 1.
  static constexpr std::uint64_t kWithdrawn = 1;
};
static_assert(sizeof(Line) == 64);

static_assert(kMostInLine == Line::kPayload);

/// What is said in one piece: in a line, or behind it what does not fit.
struct alignas(kApart) Post {
  static constexpr std::size_t kMost = 8192;
  Line line;
  alignas(64) std::array<std::byte, kMost> behind{};

  std::byte* payload(std::size_t bytes) {
    return bytes <= Line::kPayload ? line.payload.data() : behind.data();
  }
};

/// Where a rank's buffers are.
struct Notice {
  static constexpr std::uint64_t kPrivate = ~std::uint64_t{0};
  std::uint64_t in = 0;  ///< its address, good in its own process
  std::uint64_t out = 0;
  std::uint64_t in_heap = kPrivate;  ///< its offset in the rank's device heap
  std::uint64_t out_heap = kPrivate;
  std::uint64_t in_bytes = 0;  ///< from its first to its last byte
  std::uint64_t out_bytes = 0;
  std::uint64_t longest = 0;  ///< elements of its longest block
};
static_assert(sizeof(Notice) <= Line::kPayload);

struct alignas(kApart) RankWords {
  // Two of each: a rank may be one operation ahead of another.
  /// What the rank says when it enters an operation: its input if that is short, else a Notice.
  std::array<Post, 2> posts;
  /// Read only where fingerprints differ, and so apart from what peers watch.
  alignas(kApart) std::array<Envelope, 2> calls;
  /// The core that it runs on, where ranks share cores and are not bound to them; stored when it is
  /// another one than before.
  std::atomic<int> core{0};
  // Chunks so far, over all operations.
  alignas(kApart) std::atomic<std::uint64_t> filled{0};  ///< put into the ring
  std::atomic<std::uint64_t> folded{0};                  ///< own slice folded in the ring
  std::atomic<std::uint64_t> drained{0};                 ///< taken from all rings
  /// Gates passed so far.
  alignas(kApart) std::atomic<std::uint64_t> gate{0};
  /// Number of the last operation that it has left, of those that reach into others' buffers.
  std::atomic<std::uint64_t> left{0};
  /// Number of the last operation whose result lies in its ring, behind its input, for the ranks
  /// on its core.
  std::atomic<std::uint64_t> folded_for_core{0};
  // Where ranks are bound to cores that they share, the first rank's of a core are for all of them,
  // and whichever of them comes last writes there.
  /// What all ranks of the core have posted, for other cores: their inputs one behind the other.
  std::array<Post, 2> told;
  /// Number of the last operation of which other cores have been told or are being told. Who
  /// changes it has to tell.
  alignas(kApart) std::atomic<std::uint64_t> claimed{0};
};

class Area {
 public:
  /// A ring of about twice the second-level cache: in a much smaller one every line that is written
  /// is still held by the reader's cache.
  static constexpr std::size_t kRing = std::size_t{2} << 20;
  /// The part of it that chunks go through, and not a whole input that follows them. A rank leaves
  /// when it has its result, though others may still read from its slots: what else is written
  /// there is written after the posts of the next operation.
  static constexpr std::size_t kSlots = kRing - Ways::kMostInRing;

  static std::size_t bytes(int ranks) { return rings_at(ranks) + of(ranks) * kRing; }

  Area(std::span<std::byte> memory, int ranks) : base_(memory.data()), ranks_(ranks) {}

  QuietBell& bell() const { return *reinterpret_cast<QuietBell*>(base_); }
  RankWords& words(int place) const {
    return *reinterpret_cast<RankWords*>(base_ + kApart + of(place) * sizeof(RankWords));
  }
  /// Of alltoallv: the blocks of `place` in its input, by the rank they are for; and in its output,
  /// by the rank they come from.
  Block* gives(int place) const {
    return reinterpret_cast<Block*>(base_ + tables_at(ranks_)) + 2 * of(place) * of(ranks_);
  }
  Block* takes(int place) const { return gives(place) + of(ranks_); }
  std::byte* ring(int place) const { return base_ + rings_at(ranks_) + of(place) * kRing; }
  std::byte* slots(int place) const { return ring(place) + (kRing - kSlots); }

 private:
  static std::size_t of(int number) { return static_cast<std::size_t>(number); }
  static std::size_t tables_at(int ranks) { return kApart + of(ranks) * sizeof(RankWords); }
  static std::size_t rings_at(int ranks) {
    constexpr std::size_t kPage = 4096;
    return (tables_at(ranks) + 2 * of(ranks) * of(ranks) * sizeof(Block) + kPage - 1) / kPage *
           kPage;
  }

  std::byte* base_;
  int ranks_;
};
static_assert(sizeof(QuietBell) <= kApart);

}  // namespace hccl::exec::host
