// The arguments of fold() for the reduction of a call.
#pragma once

#include <cstddef>
#include <span>

#include "hccl/base/call.h"
#include "hccl/kernels/kernels.h"

namespace hccl::kernels {

/// Folds the inputs of all ranks of a call at once, then finishes the result: divides an average
/// and applies the factor of the result.
struct Folding {
  DataType type = DataType::kFp32;
  ReduceOp op = ReduceOp::kSum;
  Finish finish{};

  /// `ranks`: number of ranks whose inputs the call reduces. For an operation that does not reduce,
  /// folds are copies.
  static Folding of(const Call& call, int ranks) {
    if (!reduces(call.op)) return {call.type, ReduceOp::kSum, {}};
    const double divisor = call.reduce == ReduceOp::kAvg ? ranks : 1;
    return {call.type, call.reduce, {call.scale.after, divisor}};
  }
  /// The reduction for a fold of only some inputs. The result is an input of a later fold.
  Folding partial() const { return {type, op, {}}; }

  void operator()(std::span<const std::byte* const> inputs, std::byte* out, std::size_t count,
                  Store store = Store::kCached) const {
    fold(type, op, inputs, out, count, store, finish);
  }
  /// Finishes the result of partial folds.
  void finish_in_place(std::byte* data, std::size_t count) const {
    const std::byte* input = data;
    if (!finish.nothing()) fold(type, op, {&input, 1}, data, count, Store::kCached, finish);
  }
};

/// Multiplies floats by a factor. `from` and `to` may be the same memory.
inline void multiply(DataType type, double factor, const std::byte* from, std::byte* to,
                     std::size_t count) {
  fold(type, ReduceOp::kSum, {&from, 1}, to, count, Store::kCached, {factor, 1});
}

}  // namespace hccl::kernels
