// The key of a call: a number by which the ranks of a host check that they make the same call.
#pragma once

#include <bit>
#include <cstdint>

#include "hccl/base/call.h"

namespace hccl::local {

/// A bijection that spreads every bit (the finalizer of SplitMix64).
constexpr std::uint64_t spread(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

/// The key of a call that is operation `number` of its ranks. Two different calls with the same
/// number and sequence have different keys, unless a call has parameters that do not fit into the
/// key and are hashed: blocks of different lengths, a gradient plan, an algorithm, factors, a count
/// of 2^32 or more, or a root of 2^18 or more.
inline std::uint64_t call_key(const Envelope& call, std::uint64_t number) {
  constexpr int kCount = 32, kRoot = 18, kOp = 4, kType = 5, kReduce = 5;
  static_assert(kCount + kRoot + kOp + kType + kReduce == 64);
  const std::uint64_t op{call.op}, type{call.type}, reduce{call.reduce}, root{call.root};
  const bool fits = call.count >> kCount == 0 && call.root >> kRoot == 0 && call.op >> kOp == 0 &&
                    call.type >> kType == 0 && call.reduce >> kReduce == 0;
  std::uint64_t key = call.count | root << kCount | op << (kCount + kRoot) |
                      type << (kCount + kRoot + kOp) | reduce << (kCount + kRoot + kOp + kType);
  if (!fits) key = spread(spread(call.count) + (root << 32 | op << 16 | type << 8 | reduce));
  key ^= spread(number + call.sequence * 0x9E3779B97F4A7C15u);
  if ((call.plan | call.algorithm) != 0) {
    key ^= spread((std::uint64_t{call.plan} << 32 | call.algorithm) + 1);
  }
  if (call.scale != Scale{}) {
    key ^= spread(spread(std::bit_cast<std::uint64_t>(call.scale.before)) +
                  std::bit_cast<std::uint64_t>(call.scale.after));
  }
  return key;
}

}  // namespace hccl::local
