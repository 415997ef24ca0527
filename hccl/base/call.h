// One collective call as a rank made it, and the envelope in which it travels: the first message of
// every flow between two ranks, so that ranks that disagree find out before any data is used.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "hccl/base/status.h"
#include "hccl/base/types.h"

namespace hccl {

/// A block of a V operation: `count` elements from element `at` of its buffer.
struct Block {
  std::uint64_t at = 0;
  std::uint64_t count = 0;
  bool operator==(const Block&) const = default;
};

struct Call {
  Op op = Op::kBarrier;
  const void* in = nullptr;
  void* out = nullptr;
  /// Elements: of the vector for allreduce, reduce and broadcast; of one rank's block for the
  /// others; of this rank's own block for the V operations, 0 for alltoallv.
  std::uint64_t count = 0;
  DataType type = DataType::kFp32;
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;
  /// Fingerprint of the gradient plan that this call is a segment of; 0 outside fusion.
  std::uint32_t plan = 0;
  /// The caller computes meanwhile: waits must leave it the core, if there is none to spare.
  bool background = false;
  /// The V operations: where each rank's block lies in `in` (reducescatterv, alltoallv) and in
  /// `out` (allgatherv, alltoallv), in rank order. Empty otherwise. Must outlive the run.
  std::span<const Block> in_blocks{};
  std::span<const Block> out_blocks{};
};

/// Whether blocks have lengths of their own: the operations without a schedule.
constexpr bool has_blocks(Op op) {
  return op == Op::kReduceScatterV || op == Op::kAllGatherV ||
         op == Op::kAllToAllV;
}

/// What travels. Compared as a whole: any difference is a mismatch.
struct Envelope {
  std::uint64_t sequence = 0;  ///< number of the operation in its communicator
  /// Of the call; of all blocks together for reducescatterv and allgatherv. Between two ranks in
  /// alltoallv: what the sender of the envelope has for the other.
  std::uint64_t count = 0;
  /// Reducescatterv and allgatherv: a hash of the arrays of counts and displacements. Between two
  /// ranks in alltoallv: the elements that the sender of the envelope expects.
  std::uint32_t root = 0;
  std::uint32_t plan = 0;
  std::uint32_t algorithm = 0;  ///< hash of its name, depth, lanes and slice size
  std::uint8_t op = 0;          ///< Op, or kSend / kRecv
  std::uint8_t type = 0;
  std::uint8_t reduce = 0;
  std::uint8_t version = 1;

  static constexpr std::uint8_t kSend = 100;
  static constexpr std::uint8_t kRecv = 101;

  bool operator==(const Envelope&) const = default;
};
static_assert(sizeof(Envelope) == 32);

/// What the envelope of a call says of blocks.
void enclose_blocks(const Call& call, Envelope& envelope);

/// Whether the operation folds what the ranks give.
constexpr bool reduces(Op op) {
  return op == Op::kAllReduce || op == Op::kReduceScatter ||
         op == Op::kReduce || op == Op::kReduceScatterV;
}
/// Whether one rank has all that is given, or gets it.
constexpr bool rooted(Op op) {
  return op == Op::kBroadcast || op == Op::kReduce ||
         op == Op::kScatter;
}

/// Inline, as every operation begins with one.
inline Envelope envelope(const Call& call, std::uint64_t sequence, std::uint32_t algorithm) {
  // What an operation ignores must not make ranks differ.
  Envelope out;
  out.sequence = sequence;
  out.op = static_cast<std::uint8_t>(call.op);
  out.algorithm = algorithm;
  out.plan = call.plan;
  if (call.op == Op::kBarrier) return out;
  out.type = static_cast<std::uint8_t>(call.type);
  if (reduces(call.op)) out.reduce = static_cast<std::uint8_t>(call.reduce);
  if (has_blocks(call.op)) {
    enclose_blocks(call, out);
    return out;
  }
  out.count = call.count;
  if (rooted(call.op)) out.root = static_cast<std::uint32_t>(call.root);
  return out;
}

/// What Envelope::algorithm says of an algorithm and the numbers by which it cuts the data.
std::uint32_t fingerprint(std::string_view algorithm, std::initializer_list<std::uint64_t> numbers);

/// What a rank of an alltoallv says to one peer; `mine` is the envelope of its call.
Envelope pair_envelope(const Call& call, const Envelope& mine, int peer);
/// The same as the peer must have said it.
Envelope pair_expected(const Call& call, const Envelope& mine, int peer);

/// "allreduce #12 (count 1024, fp32, sum)".
std::string words(const Envelope& envelope);

/// The failure of two ranks that do not agree, with both calls in the text (HCCL's EI0005).
Status mismatch(int mine, const Envelope& my_call, int peer, const Envelope& peer_call);

}  // namespace hccl
