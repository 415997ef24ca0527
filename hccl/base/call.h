// One collective call of a rank, and the envelope that describes the call. The envelope is the
// first message between two ranks, so that they find a mismatch before they use any data.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "hccl/base/status.h"
#include "hccl/base/types.h"

namespace hccl {

/// One rank's block in a V operation (blocks of different lengths): `count` elements from element
/// `at` of the buffer.
struct Block {
  std::uint64_t at = 0;
  std::uint64_t count = 0;
  bool operator==(const Block&) const = default;
};

/// For a reduction of floats: `before` multiplies each input, `after` the result. Both are finite.
struct Scale {
  double before = 1;
  double after = 1;
  bool operator==(const Scale&) const = default;
};

struct Call {
  Op op = Op::kBarrier;
  const void* in = nullptr;
  void* out = nullptr;
  /// The number of elements of the vector (allreduce, reduce, broadcast), of one rank's block
  /// (scatter, allgather, reduce-scatter, alltoall) or of this rank's own block (reducescatterv,
  /// allgatherv). 0 for alltoallv.
  std::uint64_t count = 0;
  DataType type = DataType::kFp32;
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;
  /// Fingerprint of the gradient plan whose segment this call reduces; 0 outside fusion.
  std::uint32_t plan = 0;
  /// The tag of a framework's operation (HcclSetCallTag): 0, or its highest bit is set.
  std::uint32_t tag = 0;
  /// The caller computes while this call runs, so waits must leave the core to the caller if no
  /// other core is free.
  bool background = false;
  /// Each rank's block in `in`, in rank order (reducescatterv, alltoallv; else empty). The memory
  /// must stay valid until the call has run.
  std::span<const Block> in_blocks{};
  /// The same for `out` (allgatherv, alltoallv; else empty).
  std::span<const Block> out_blocks{};
  Scale scale{};
};

/// Whether this is a V operation: its blocks have different lengths, and it has no schedule.
constexpr bool has_blocks(Op op) {
  return op == Op::kReduceScatterV || op == Op::kAllGatherV || op == Op::kAllToAllV;
}

/// Trials measure the machine before a communicator's first operation; their numbers begin here.
/// With such a high number, a rank that still waits in a trial is not mistaken for a rank in an
/// operation.
inline constexpr std::uint64_t kTrials = std::uint64_t{1} << 63;

/// The envelope as it is sent. A rank compares the whole envelope with the one that it expects from
/// the peer: any difference is a mismatch.
struct Envelope {
  std::uint64_t sequence = 0;  ///< the operation's number in its communicator, or a trial's
  /// The count of the call. Reducescatterv and allgatherv: the total count of all blocks. Alltoallv
  /// between two ranks: the elements that the sender of the envelope sends to its peer.
  std::uint64_t count = 0;
  /// The root of the call. Reducescatterv and allgatherv: `root` and `plan` together hold a hash of
  /// all counts and displacements. Alltoallv between two ranks: the elements that the sender of the
  /// envelope expects from its peer.
  std::uint32_t root = 0;
  /// The call's plan (highest bit 0) or its tag (highest bit 1). For a send or receive: the srTag.
  std::uint32_t plan = 0;
  std::uint32_t algorithm = 0;  ///< hash of the algorithm's name, depth, lanes, slice size
  std::uint8_t op = 0;          ///< Op, or kSend / kRecv
  std::uint8_t type = 0;
  std::uint8_t reduce = 0;
  std::uint8_t version = 4;
  Scale scale;

  static constexpr std::uint8_t kSend = 100;
  static constexpr std::uint8_t kRecv = 101;

  bool operator==(const Envelope&) const = default;
};
static_assert(sizeof(Envelope) == 48);

/// Adds the hash and the total count of the blocks to an envelope.
void enclose_blocks(const Call& call, Envelope& envelope);

/// Whether the operation folds the inputs of the ranks.
constexpr bool reduces(Op op) {
  return op == Op::kAllReduce || op == Op::kReduceScatter || op == Op::kReduce ||
         op == Op::kReduceScatterV;
}
/// Whether one rank, the root, has the whole input or gets the whole result.
constexpr bool rooted(Op op) {
  return op == Op::kBroadcast || op == Op::kReduce || op == Op::kScatter;
}

/// Returns the envelope of a call. Inline, because every operation makes an envelope.
inline Envelope envelope(const Call& call, std::uint64_t sequence, std::uint32_t algorithm) {
  // Fields that an operation ignores must not make envelopes differ.
  Envelope out;
  out.sequence = sequence;
  out.op = static_cast<std::uint8_t>(call.op);
  out.algorithm = algorithm;
  out.plan = call.plan ^ call.tag;
  if (call.op == Op::kBarrier) return out;
  out.type = static_cast<std::uint8_t>(call.type);
  if (reduces(call.op)) {
    out.reduce = static_cast<std::uint8_t>(call.reduce);
    out.scale = call.scale;
  }
  if (has_blocks(call.op)) {
    enclose_blocks(call, out);
    return out;
  }
  out.count = call.count;
  if (rooted(call.op)) out.root = static_cast<std::uint32_t>(call.root);
  return out;
}

/// Returns the value of Envelope::algorithm: a hash of the algorithm and of the numbers that decide
/// how the data is cut.
std::uint32_t fingerprint(std::string_view algorithm, std::initializer_list<std::uint64_t> numbers);

/// Returns the envelope that a rank of an alltoallv sends to one peer: the envelope of the rank's
/// call with the numbers of elements that the rank sends to the peer and receives from the peer.
Envelope pair_envelope(const Envelope& call, std::uint64_t sent, std::uint64_t received);

/// Returns a text such as "allreduce #12 (count 1024, fp32, sum)". A trial's text begins with
/// "trial".
std::string to_string(const Envelope& envelope);

/// Returns the error for two ranks whose calls differ (HCCL's EI0005); the text has both calls.
Status mismatch(int mine, const Envelope& my_call, int peer, const Envelope& peer_call);

}  // namespace hccl
