#include "hccl/base/call.h"

#include <fmt/core.h>

namespace hccl {
namespace {

std::string name(std::uint8_t op) {
  if (op == Envelope::kSend) return "send";
  if (op == Envelope::kRecv) return "recv";
  return std::string(to_string(static_cast<Op>(op)));
}

bool is(std::uint8_t op, Op which) { return op == static_cast<std::uint8_t>(which); }

// Passes each number through a bijection that spreads every bit.
std::uint64_t hash(std::span<const Block> blocks) {
  std::uint64_t h = blocks.size();
  const auto add = [&](std::uint64_t number) {
    h = (h ^ number) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
  };
  for (const Block& block : blocks) add(block.at), add(block.count);
  return h;
}

}  // namespace

// Does nothing for alltoallv, whose blocks differ between ranks: pair_envelope() encloses them.
void enclose_blocks(const Call& call, Envelope& envelope) {
  if (call.op == Op::kAllToAllV) return;
  const auto blocks = call.op == Op::kAllGatherV ? call.out_blocks : call.in_blocks;
  for (const Block& block : blocks) envelope.count += block.count;
  const std::uint64_t arrays = hash(blocks);
  envelope.root = static_cast<std::uint32_t>(arrays);
  envelope.plan = static_cast<std::uint32_t>(arrays >> 32);
}

// FNV-1a.
std::uint32_t fingerprint(std::string_view algorithm,
                          std::initializer_list<std::uint64_t> numbers) {
  std::uint32_t h = 2166136261u;
  for (const char c : algorithm) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  for (const std::uint64_t number : numbers) {
    h = (h ^ static_cast<std::uint32_t>(number)) * 16777619u;
    h = (h ^ static_cast<std::uint32_t>(number >> 32)) * 16777619u;
  }
  return h;
}

Envelope pair_envelope(const Envelope& call, std::uint64_t sent, std::uint64_t received) {
  Envelope out = call;
  out.count = sent;
  out.root = static_cast<std::uint32_t>(received);  // counts are checked to be below 2^31
  return out;
}

std::string to_string(const Envelope& e) {
  std::string text = e.sequence < kTrials ? "" : "trial ";
  text += name(e.op) + " #" +
          std::to_string(e.sequence < kTrials ? e.sequence : e.sequence & 0xFFFFFFFF);
  if (is(e.op, Op::kBarrier)) return text;
  const auto type = data_type(static_cast<int>(e.type));
  text += " (";
  if (is(e.op, Op::kAllGatherV) || is(e.op, Op::kReduceScatterV)) {
    text += fmt::format("counts and displacements #{:08x}{:08x} with {} elements in all, ", e.plan,
                        e.root, e.count);
  } else if (!is(e.op, Op::kAllToAllV)) {
    text += "count " + std::to_string(e.count) + ", ";
  } else if (e.count != 0 || e.root != 0) {
    text += std::to_string(e.count) + " for and " + std::to_string(e.root) + " from the other, ";
  }
  text += std::string(type ? to_string(*type) : std::string_view("unknown type"));
  if (reduces(static_cast<Op>(e.op))) {
    const auto op = reduce_op(static_cast<int>(e.reduce));
    text += ", " + std::string(op ? to_string(*op) : std::string_view("unknown reduction"));
  }
  if (e.scale != Scale{}) {
    // Enough digits to distinguish any two numbers.
    text +=
        fmt::format(", scaled by {:.17g} before and {:.17g} after", e.scale.before, e.scale.after);
  }
  if (rooted(static_cast<Op>(e.op))) text += ", root " + std::to_string(e.root);
  if (is(e.op, Op::kAllGatherV) || is(e.op, Op::kReduceScatterV)) return text + ")";
  if (e.op == Envelope::kSend || e.op == Envelope::kRecv) {
    if (e.plan != 0) text += ", srTag " + std::to_string(e.plan);
  } else if (e.plan >> 31 != 0) {
    text += fmt::format(", tag #{:08x}", e.plan);
  } else if (e.plan != 0) {
    text += ", gradient plan " + std::to_string(e.plan);
  }
  return text + ")";
}

Status mismatch(int mine, const Envelope& my_call, int peer, const Envelope& peer_call) {
  std::string why;
  const bool same_words = to_string(my_call) == to_string(peer_call);
  if (same_words && my_call.algorithm != peer_call.algorithm) {
    why =
        "; they chose different algorithms: set HCCL_ALGO and HCCL_DETERMINISTIC alike on all "
        "ranks";
  } else if (my_call.sequence != peer_call.sequence) {
    why = "; the operations are not in the same order on all ranks";
  } else if (is(my_call.op, Op::kAllToAllV) && is(peer_call.op, Op::kAllToAllV)) {
    why = "; each must expect as many elements as the other sends to it";
  }
  return Status(Code::kPara, "EI0005: the ranks' calls differ: rank " + std::to_string(mine) +
                                 " called " + to_string(my_call) + ", rank " +
                                 std::to_string(peer) + " called " + to_string(peer_call) + why);
}

}  // namespace hccl
