// One collective call of a rank, and the envelope that describes it: the first message between two
// ranks, so that differing calls are found before any data is used.
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

/// Factors of the inputs and of the result of a reduction of floats; both are finite.
struct Scale {
  double before = 1;
  double after = 1;
  bool operator==(const Scale&) const = default;
};

struct Call {
  Op op = Op::kBarrier;
  const void* in = nullptr;
  void* out = nullptr;
  /// The number of elements. Allreduce, reduce, broadcast: of the vector. Scatter, allgather,
  /// reduce-scatter, alltoall: of one rank's block. V operations: of this rank's own block;
  /// alltoallv: 0.
  std::uint64_t count = 0;
  DataType type = DataType::kFp32;
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;
  /// Fingerprint of the gradient plan whose segment this call reduces; 0 outside fusion.
  std::uint32_t plan = 0;
  /// The tag of a framework's operation (HcclSetCallTag): 0, or its highest bit is set.
  std::uint32_t tag = 0;
  /// The caller computes meanwhile, so waits must leave the core to it if no other core is free.
  bool background = false;
  /// For the V operations: the place of each rank's block in `in` (reducescatterv, alltoallv) and
  /// in `out` (allgatherv, alltoallv), in rank order. Empty otherwise. Must outlive the run.
  std::span<const Block> in_blocks{};
  std::span<const Block> out_blocks{};
  Scale scale{};
};

/// Whether blocks have different lengths: the operations without a schedule.
constexpr bool has_blocks(Op op) {
  return op == Op::kReduceScatterV || op == Op::kAllGatherV || op == Op::kAllToAllV;
}

/// The first number of a communicator's trials. A trial measures the machine before the first
/// operation. The number keeps a rank that still waits in a trial from being taken for a rank in an
/// operation.
inline constexpr std::uint64_t kTrials = std::uint64_t{1} << 63;

/// The envelope as it is sent. A rank compares all of it with the envelope that the peer must have
/// sent: any difference is a mismatch.
struct Envelope {
  std::uint64_t sequence = 0;  ///< number of the operation in its communicator, or of a trial
  /// The count of the call, or of all blocks together for reducescatterv and allgatherv. Between
  /// two ranks in alltoallv: the elements that the sender of the envelope sends to its peer.
  std::uint64_t count = 0;
  /// Reducescatterv and allgatherv: together with `plan`, a hash of all counts and displacements.
  /// Between two ranks in alltoallv: the elements that the sender of the envelope expects.
  std::uint32_t root = 0;
  std::uint32_t plan = 0;       ///< the fusion plan, without the highest bit; or the call's tag
  std::uint32_t algorithm = 0;  ///< hash of its name, depth, lanes and slice size
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

/// Inline, because every operation makes an envelope.
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

/// The value of Envelope::algorithm: a hash of the algorithm and of the numbers that decide how the
/// data is cut.
std::uint32_t fingerprint(std::string_view algorithm, std::initializer_list<std::uint64_t> numbers);

/// The envelope that a rank of an alltoallv sends to one peer; `mine` is the envelope of its call.
Envelope pair_envelope(const Call& call, const Envelope& mine, int peer);
/// The envelope that the peer must have sent.
Envelope pair_expected(const Call& call, const Envelope& mine, int peer);

/// "allreduce #12 (count 1024, fp32, sum)". Says so if the call is a trial.
std::string to_string(const Envelope& envelope);

/// The error of two ranks whose calls differ, with both calls in the text (HCCL's EI0005).
Status mismatch(int mine, const Envelope& my_call, int peer, const Envelope& peer_call);

}  // namespace hccl
