// The collectives that compute.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/util/irange.h>

#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "backend.h"
#include "hccl/hccl.h"
#include "reduction.h"

namespace hccl::pytorch {
namespace {

using Combine = at::Tensor (*)(const at::Tensor&, const at::Tensor&);

constexpr Combine kAdd = [](const at::Tensor& a, const at::Tensor& b) { return a.add(b); };

// Returns the function that combines two tensors of this rank. Several tensors in a list count as
// inputs of several ranks, so this rank first combines its own tensors.
Combine combining(const c10d::ReduceOp& op, const Refusal& refuse) {
  // By ReduceOp: SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM.
  static constexpr Combine kCombines[] = {kAdd,           nullptr,         at::mul,
                                          at::minimum,    at::maximum,     at::bitwise_and,
                                          at::bitwise_or, at::bitwise_xor, nullptr};
  const Combine combine = kCombines[op.op_];
  if (combine == nullptr) refuse("several tensors in one list have no average, nor PREMUL_SUM");
  return combine;
}

// Reduces and scatters parts of different sizes. All ranks pass the same list of sizes.
void reduce_scatter_uneven(const Tensors& inputs, const at::Tensor& output,
                           const Reduction& reduction, HcclComm comm) {
  at::Tensor all = packed_all(inputs);
  if (reduction.scale) all = all.mul(reduction.scale->before);
  Blocks blocks;
  for (const at::Tensor& each : inputs) {
    blocks.add(static_cast<uint64_t>(each.numel()) * (each.is_complex() ? 2 : 1));
  }
  const at::Tensor memory = room_for(output);
  const Elements to = to_reduce(memory);
  check(HcclReduceScatterV(all.data_ptr(), blocks.counts.data(), blocks.offsets.data(), to.data,
                           to.count, to.type, reduction.op, comm, nullptr),
        "reduce_scatter");
  unpack(memory, output);
}

void check_scatter(const at::Tensor& output, const at::Tensor& input, int size,
                   const Refusal& refuse) {
  check_dense({output, input}, refuse);
  if (output.scalar_type() != input.scalar_type()) {
    refuse("input tensor must be the same type as the output tensor.");
  }
  if (input.numel() != output.numel() * size) {
    refuse("input tensor must be the same size as output size times world size");
  }
}

void scatter_reduced(const at::Tensor& output, const at::Tensor& input, const Reduction& reduction,
                     HcclComm comm) {
  const at::Tensor memory = room_for(output);
  reduction.reduce_scatter(packed(input), memory, comm);
  unpack(memory, output);
}

}  // namespace

WorkPtr ProcessGroupHccl::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const Refusal refuse = refusal("allreduce");
  c10d::assertNonEmpty(refuse, tensors);
  c10d::assertLayoutMatch(refuse, tensors);
  c10d::assertCPU(refuse, tensors);
  c10d::assertTypeAndSizesMatch(refuse, tensors);
  if (tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  if (tensors[0].layout() != at::kStrided) refuse("unsupported layout");
  const auto reduction = Reduction::of(options.reduceOp, tensors[0].scalar_type(), refuse);
  Call call(c10d::OpType::ALLREDUCE, "hccl:all_reduce", tensors, tensors, options);
  if (tensors.size() == 1) {
    return issue(std::move(call), [tensor = tensors[0], reduction](HcclComm comm) {
      const at::Tensor memory = packed(tensor);
      reduction.all_reduce(memory, comm);
      unpack(memory, tensor);
    });
  }
  const Combine combine = combining(options.reduceOp, refuse);
  return issue(std::move(call), [=](HcclComm comm) {
    at::Tensor own = tensors[0];
    for (const auto i : c10::irange(size_t{1}, tensors.size())) own = combine(own, tensors[i]);
    own = packed(own);
    reduction.all_reduce(own, comm);
    for (const at::Tensor& each : tensors) unpack(own, each);
  });
}

void ProcessGroupHccl::sum_in_place(const at::Tensor& tensor) {
  RECORD_USER_SCOPE("hccl:all_reduce");
  fork_.check();
  const Refusal refuse = refusal("allreduce");
  check_dense({tensor}, refuse);
  const auto reduction = Reduction::of(c10d::ReduceOp::SUM, tensor.scalar_type(), refuse);
  ++operations_;
  const auto communicator = current();
  communicator->run([&] {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    communicator->set_timeout(options_->timeout);
    const at::Tensor memory = packed(tensor);
    reduction.all_reduce(memory, communicator->handle());
    unpack(memory, tensor);
  });
}

WorkPtr ProcessGroupHccl::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& options) {
  const Refusal refuse = refusal("allreduce_coalesced");
  c10d::assertNonEmpty(refuse, tensors);
  c10d::assertCPU(refuse, tensors);
  c10d::assertLayoutMatch(refuse, tensors);
  if (tensors[0].layout() != at::kStrided) refuse("unsupported layout");
  for (const at::Tensor& each : tensors) {
    if (each.scalar_type() == tensors[0].scalar_type()) continue;
    refuse("tensors must all have the same type");
  }
  const auto reduction = Reduction::of(options.reduceOp, tensors[0].scalar_type(), refuse);
  Call call(c10d::OpType::ALLREDUCE_COALESCED, "hccl:all_reduce", tensors, tensors, options);
  return issue(std::move(call), [=](HcclComm comm) {
    // A tensor may be in the list twice (tied weights). Both occurrences get the same sum.
    const Tensors sources = unchanged_by(tensors, tensors);
    for (const auto i : c10::irange(tensors.size())) {
      const at::Tensor memory = packed(sources[i]);
      reduction.all_reduce(memory, comm);
      unpack(memory, tensors[i]);
    }
  });
}

WorkPtr ProcessGroupHccl::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const Refusal refuse = refusal("reduce");
  c10d::assertRootRank(refuse, options.rootRank, size_);
  c10d::assertRootTensor(refuse, options.rootTensor, static_cast<int64_t>(tensors.size()));
  c10d::assertSingleElement(refuse, tensors);
  check_dense(tensors, refuse);
  const auto reduction = Reduction::of(options.reduceOp, tensors[0].scalar_type(), refuse);
  Call call(c10d::OpType::REDUCE, "hccl:reduce", tensors, tensors, options);
  return issue(std::move(call), [=, rank = rank_](HcclComm comm) {
    const at::Tensor memory = packed(tensors[0]);
    reduction.reduce(memory, memory, static_cast<uint32_t>(options.rootRank), comm);
    if (rank == options.rootRank) unpack(memory, tensors[0]);
  });
}

WorkPtr ProcessGroupHccl::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  const Refusal refuse = refusal("reduce_scatter");
  c10d::assertSingleElementOutput(refuse, outputs);
  c10d::assertScatterInputTensorList(refuse, inputs, size_);
  check_dense(outputs, refuse);
  check_dense(inputs[0], refuse);
  check_outputs(outputs, refuse);
  const at::Tensor& output = outputs[0];
  for (const auto i : c10::irange(inputs[0].size())) {
    c10d::assertTypeMatch(refuse, output.options(), inputs[0], i);
  }
  c10d::assertSizesMatch(refuse, output.sizes(), inputs[0], static_cast<size_t>(rank_));
  const auto reduction = Reduction::of(options.reduceOp, output.scalar_type(), refuse);
  Call call(c10d::OpType::REDUCE_SCATTER, "hccl:reduce_scatter", inputs[0], outputs, options);
  return issue(std::move(call), [=, parts = inputs[0]](HcclComm comm) {
    if (same_sizes(parts)) {
      scatter_reduced(output, packed_all(parts), reduction, comm);
    } else {
      reduce_scatter_uneven(parts, output, reduction, comm);
    }
  });
}

WorkPtr ProcessGroupHccl::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  const Refusal refuse = refusal("_reduce_scatter_base");
  check_scatter(output, input, size_, refuse);
  check_outputs({output}, refuse);
  const auto reduction = Reduction::of(options.reduceOp, output.scalar_type(), refuse);
  Call call(c10d::OpType::_REDUCE_SCATTER_BASE, "hccl:_reduce_scatter_base", {input}, {output},
            options);
  return issue(std::move(call),
               [=](HcclComm comm) { scatter_reduced(output, input, reduction, comm); });
}

WorkPtr ProcessGroupHccl::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  const Refusal refuse = refusal("reduce_scatter_tensor_coalesced");
  c10d::assertInputOutputTensorListsSameSize(refuse, outputs.size(), inputs.size());
  std::vector<Reduction> reductions;
  for (const auto i : c10::irange(outputs.size())) {
    check_scatter(outputs[i], inputs[i], size_, refuse);
    reductions.push_back(Reduction::of(options.reduceOp, outputs[i].scalar_type(), refuse));
  }
  check_outputs(outputs, refuse);
  Call call(c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, "hccl:reduce_scatter_tensor_coalesced",
            inputs, outputs, options);
  return issue(std::move(call), [=](HcclComm comm) {
    const Tensors sources = unchanged_by(outputs, inputs);
    for (const auto i : c10::irange(outputs.size())) {
      scatter_reduced(outputs[i], sources[i], reductions[i], comm);
    }
  });
}

}  // namespace hccl::pytorch
