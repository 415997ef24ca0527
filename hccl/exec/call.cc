#include "hccl/exec/call.h"

#include "hccl/schedule/algorithm.h"

namespace hccl::exec {
namespace {

using schedule::Op;

bool reduces(std::uint8_t op) {
  return op == static_cast<std::uint8_t>(Op::kAllReduce) ||
         op == static_cast<std::uint8_t>(Op::kReduceScatter) ||
         op == static_cast<std::uint8_t>(Op::kReduce);
}

bool rooted(std::uint8_t op) {
  return op == static_cast<std::uint8_t>(Op::kBroadcast) ||
         op == static_cast<std::uint8_t>(Op::kReduce) ||
         op == static_cast<std::uint8_t>(Op::kScatter);
}

std::string name(std::uint8_t op) {
  if (op == Envelope::kSend) return "send";
  if (op == Envelope::kRecv) return "recv";
  if (op > static_cast<std::uint8_t>(Op::kBarrier)) return "unknown operation";
  return std::string(schedule::words(static_cast<Op>(op)));
}

}  // namespace

Envelope envelope(const Call& call, std::uint64_t sequence, std::uint32_t algorithm) {
  Envelope out;
  out.sequence = sequence;
  out.op = static_cast<std::uint8_t>(call.op);
  out.algorithm = algorithm;
  out.plan = call.plan;
  if (call.op == Op::kBarrier) return out;
  out.count = call.count;
  out.type = static_cast<std::uint8_t>(call.type);
  // What an operation ignores must not make ranks differ.
  if (reduces(out.op)) out.reduce = static_cast<std::uint8_t>(call.reduce);
  if (rooted(out.op)) out.root = static_cast<std::uint32_t>(call.root);
  return out;
}

std::string words(const Envelope& e) {
  std::string text = name(e.op) + " #" + std::to_string(e.sequence);
  if (e.op == static_cast<std::uint8_t>(Op::kBarrier)) return text;
  const auto type = data_type(static_cast<int>(e.type));
  text += " (count " + std::to_string(e.count) + ", " +
          std::string(type ? words(*type) : std::string_view("unknown type"));
  if (reduces(e.op)) {
    const auto op = reduce_op(static_cast<int>(e.reduce));
    text += ", " + std::string(op ? words(*op) : std::string_view("unknown reduction"));
  }
  if (rooted(e.op)) text += ", root " + std::to_string(e.root);
  if (e.plan != 0) text += ", gradient plan " + std::to_string(e.plan);
  return text + ")";
}

Status mismatch(int mine, const Envelope& my_call, int peer, const Envelope& peer_call) {
  std::string why;
  const bool same_words = words(my_call) == words(peer_call);
  if (same_words && my_call.algorithm != peer_call.algorithm) {
    why = "; they chose different algorithms: set HCCL_ALGO alike on all ranks";
  } else if (my_call.sequence != peer_call.sequence) {
    why = "; the operations are not in the same order on all ranks";
  }
  return Status(Code::kPara, "EI0005: the ranks' calls differ: rank " + std::to_string(mine) +
                                 " called " + words(my_call) + ", rank " + std::to_string(peer) +
                                 " called " + words(peer_call) + why);
}

}  // namespace hccl::exec
