// Typed reductions of any number of inputs, in order, and copies. SIMD by Highway; the instruction
// set is chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "hccl/base/types.h"

namespace hccl::kernels {

/// How a result is stored. This is a hint: the result is the same.
enum class Store : std::uint8_t {
  kCached,
  /// Stores past the caches. Use it for memory that no core reads shortly before or after the
  /// store: a line that is in a cache must first be evicted, which costs several times as much. See
  /// StoreRule. As with kCached, a thread that sees a later store of this thread also sees the
  /// result.
  kStream,
};

/// A factor and a divisor, which fold() applies to a sum of floats before it rounds the sum. For an
/// average of integers only the divisor counts; it is a positive integer.
struct Finish {
  double factor = 1;
  double divisor = 1;

  bool nothing() const { return factor == 1 && divisor == 1; }
};

/// Whether fold() can reduce this type. HiF8 and FP8-E8M0 are excluded, since their sums have no
/// agreed meaning.
constexpr bool reducible(DataType type) {
  return type != DataType::kHif8 && type != DataType::kFp8E8M0 && size_of(type) != 0;
}

/// Whether fold() can reduce this type with this operation: bitwise and logical operations need
/// integers.
constexpr bool reducible(DataType type, ReduceOp op) {
  if (!reducible(type)) return false;
  return !(bitwise(op) || logical(op)) || !floating(type);
}

/// Whether fold() accumulates this type in a wider type and rounds once, at the end.
constexpr bool rounds_at_end(DataType type) {
  return type == DataType::kFp16 || type == DataType::kBfp16 || type == DataType::kFp8E4M3 ||
         type == DataType::kFp8E5M2;
}

/// out[i] = inputs[0][i] op inputs[1][i] op …, folded left to right, for i in [0, count). `type`
/// must be reducible by `op`. An input may be `out` itself; otherwise inputs and `out` must not
/// overlap. No alignment is needed. Without inputs, nothing happens. With one input, the result is
/// a copy of the input; for a logical reduction it is the input's truth value, 1 or 0. `finish`
/// applies to sums of floats, before they are rounded from the type in which they accumulate. An
/// average (kAvg) is a sum with a divisor. For an average of integers, the sum wraps around like
/// any sum, and the division rounds towards zero.
///
/// fp16, bf16 and the 8-bit floats accumulate in fp32 and round once (nearest even) at the end of
/// the fold (rounds_at_end). Integers wrap around as unsigned C arithmetic does. Max and min of
/// floats: a NaN in any input gives a NaN; max(-0, +0) is +0, min is -0. A NaN that results from
/// two or more inputs is the type's quiet NaN with sign and payload cleared, so the bits are the
/// same on every instruction set. Safe from any number of threads.
void fold(DataType type, ReduceOp op, std::span<const std::byte* const> inputs, std::byte* out,
          std::size_t count, Store store = Store::kCached, const Finish& finish = {});

/// Every operation copies short blocks, so copy() is inline up to this size. From about this size
/// on, the C library's memcpy uses `rep movsb` (see repeats_slowly).
inline constexpr std::size_t kShortCopy = 2048;
/// copy() for long blocks. Only copy() calls it.
void copy_long(const std::byte* from, std::byte* to, std::size_t bytes, Store store);

/// Copies `bytes` bytes. The ranges must be the same or disjoint. Safe from any number of threads.
inline void copy(const std::byte* from, std::byte* to, std::size_t bytes, Store store) {
  if (from == to || bytes == 0) return;
  if (bytes < kShortCopy && store == Store::kCached) {
    std::memcpy(to, from, bytes);
  } else {
    copy_long(from, to, bytes, store);
  }
}

/// Whether the offset of `to` in its page is up to one cache line above the offset of `from`. This
/// is usual for copies from a mapping to an allocation, because an allocation begins 16 bytes into
/// a page. For copies of some KiB the C library and the kernel use `rep movsb`, which is then very
/// slow on AMD's processors; copy() uses other instructions.
inline bool repeats_slowly(std::uintptr_t from, std::uintptr_t to) {
  constexpr std::uintptr_t kPage = 4096, kLine = 64;
  return (to - from - 1) % kPage < kLine - 1;
}

/// Name of the instruction set chosen at run time ("AVX3", "AVX2", "SSE4", "NEON", "SCALAR", …).
const char* instruction_set();

}  // namespace hccl::kernels
