#include "reduction.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "hccl/hccl.h"

namespace hccl::pytorch {
namespace {

using RedOpType = c10d::ReduceOp::RedOpType;

// The reductions of one RedOpType. Bools are the bytes 0 and 1, so their sum is "or" (maximum), and
// their product is "and" (minimum).
struct Kind {
  const char* name;
  HcclReduceOp of_numbers;
  HcclReduceOp of_truth;
};
constexpr HcclReduceOp kNone = HCCL_REDUCE_RESERVED;
constexpr Kind kKinds[] = {
    {"SUM", HCCL_REDUCE_SUM, HCCL_REDUCE_MAX},      {"AVG", HCCL_REDUCE_AVG, kNone},
    {"PRODUCT", HCCL_REDUCE_PROD, HCCL_REDUCE_MIN}, {"MIN", HCCL_REDUCE_MIN, HCCL_REDUCE_MIN},
    {"MAX", HCCL_REDUCE_MAX, HCCL_REDUCE_MAX},      {"BAND", HCCL_REDUCE_BAND, HCCL_REDUCE_MIN},
    {"BOR", HCCL_REDUCE_BOR, HCCL_REDUCE_MAX},      {"BXOR", HCCL_REDUCE_BXOR, HCCL_REDUCE_BXOR},
    {"PREMUL_SUM", HCCL_REDUCE_SUM, kNone},
};

double factor_of(const c10d::ReduceOp& op, const Refusal& refuse) {
  const auto* given = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  if (given == nullptr) refuse("ReduceOp.PREMUL_SUM has no factor");
  return given->tensor_factor.defined() ? given->tensor_factor.item().toDouble()
                                        : given->double_factor;
}

bool is_bitwise(RedOpType kind) {
  return kind == RedOpType::BAND || kind == RedOpType::BOR || kind == RedOpType::BXOR;
}

void check_type(RedOpType kind, at::ScalarType type, const Refusal& refuse) {
  if (kind > RedOpType::PREMUL_SUM) refuse("Unhandled ReduceOp");
  const std::string op = std::string("Cannot use ReduceOp.") + kKinds[kind].name + " with ";
  const std::string name = c10::toString(type);
  const bool fractions = at::isFloatingType(type) || at::isComplexType(type);
  if (!is_reducible(type)) refuse("Invalid scalar type " + name + " for a reduction");
  if (is_bitwise(kind) && fractions) refuse(op + "non-integral dtype " + name);
  if ((kind == RedOpType::AVG && type == at::kBool) ||
      (kind == RedOpType::PREMUL_SUM && !fractions)) {
    refuse(op + "integral dtype " + name);
  }
  if (at::isComplexType(type) &&
      (kind == RedOpType::PRODUCT || kind == RedOpType::MIN || kind == RedOpType::MAX)) {
    refuse(op + "complex dtype " + name);
  }
}

}  // namespace

Reduction Reduction::of(const c10d::ReduceOp& op, at::ScalarType type, const Refusal& refuse) {
  const RedOpType kind = op.op_;
  check_type(kind, type, refuse);
  if (type == at::kBool) return {kKinds[kind].of_truth, std::nullopt};
  if (kind == RedOpType::PREMUL_SUM) {
    return {HCCL_REDUCE_SUM, HcclScale{.before = factor_of(op, refuse), .after = 1}};
  }
  return {kKinds[kind].of_numbers, std::nullopt};
}

void Reduction::all_reduce(const at::Tensor& tensor, HcclComm comm) const {
  const Elements all = to_reduce(tensor);
  char* data = static_cast<char*>(all.data);
  const uint64_t size = all.count == 0 ? 1 : tensor.nbytes() / all.count;
  uint64_t done = 0;
  do {
    const uint64_t count = std::min(all.count - done, kMaxCount);
    char* at = data + done * size;
    check(scale ? HcclAllReduceScaled(at, at, count, all.type, op, &*scale, comm, nullptr)
                : HcclAllReduce(at, at, count, all.type, op, comm, nullptr),
          "all_reduce");
    done += count;
  } while (done < all.count);
}

void Reduction::reduce(const at::Tensor& send, const at::Tensor& recv, uint32_t root,
                       HcclComm comm) const {
  const Elements from = to_reduce(send);
  void* to = recv.data_ptr();
  check(scale ? HcclReduceScaled(from.data, to, from.count, from.type, op, &*scale, root, comm,
                                 nullptr)
              : HcclReduce(from.data, to, from.count, from.type, op, root, comm, nullptr),
        "reduce");
}

void Reduction::reduce_scatter(const at::Tensor& send, const at::Tensor& recv,
                               HcclComm comm) const {
  void* from = send.data_ptr();
  const Elements to = to_reduce(recv);
  check(scale
            ? HcclReduceScatterScaled(from, to.data, to.count, to.type, op, &*scale, comm, nullptr)
            : HcclReduceScatter(from, to.data, to.count, to.type, op, comm, nullptr),
        "reduce_scatter");
}

}  // namespace hccl::pytorch
