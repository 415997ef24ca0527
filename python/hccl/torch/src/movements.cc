// The collectives that move data, and the barrier.
#include <ATen/ATen.h>
#include <c10/util/irange.h>

#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "backend.h"
#include "hccl/hccl.h"

namespace hccl::pytorch {
namespace {

void check_types(const Tensors& tensors, const at::Tensor& like, const Refusal& refuse) {
  for (const auto i : c10::irange(tensors.size())) {
    c10d::assertTypeMatch(refuse, like.options(), tensors, i);
  }
}

void check_splits(const std::vector<int64_t>& splits, const at::Tensor& tensor, int size,
                  const Refusal& refuse) {
  try {
    c10d::checkSplitSizes(splits, tensor, size);
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  }
}

void check_gathered(const at::Tensor& output, const at::Tensor& input, int size,
                    const Refusal& refuse) {
  check_dense({output, input}, refuse);
  if (output.scalar_type() != input.scalar_type()) {
    refuse("output tensor must have the same type as input tensor");
  }
  if (output.numel() != input.numel() * size) {
    refuse("output tensor size must be equal to world_size times input tensor size");
  }
}

void gather_all(const at::Tensor& output, const at::Tensor& input, HcclComm comm) {
  const at::Tensor send = packed(input);
  const at::Tensor recv = room_for(output);
  const Elements from = to_move(send);
  check(HcclAllGather(from.data, recv.data_ptr(), from.count, from.type, comm, nullptr),
        "all_gather");
  unpack(recv, output);
}

// Gathers one tensor of each rank into a list. Sizes may differ between the ranks.
void gather_list(const Tensors& outputs, const at::Tensor& input, HcclComm comm) {
  const at::Tensor send = packed(input);
  const at::Tensor recv = room_for_all(outputs);
  if (same_sizes(outputs)) {
    const Elements from = to_move(send);
    check(HcclAllGather(from.data, recv.data_ptr(), from.count, from.type, comm, nullptr),
          "all_gather");
  } else {
    const Elements from = in_blocks(send);
    const Blocks blocks = Blocks::of(outputs);
    check(HcclAllGatherV(from.data, from.count, recv.data_ptr(), blocks.counts.data(),
                         blocks.offsets.data(), from.type, comm, nullptr),
          "all_gather");
  }
  unpack_all(recv, outputs);
}

void exchange(const at::Tensor& send, const Blocks& give, const at::Tensor& recv,
              const Blocks& take, const char* operation, HcclComm comm) {
  const Elements from = in_blocks(send);
  check(
      HcclAlltoAllV(from.data, give.counts.data(), give.offsets.data(), from.type, recv.data_ptr(),
                    take.counts.data(), take.offsets.data(), from.type, comm, nullptr),
      operation);
}

at::Tensor apart_from(const at::Tensor& memory, const at::Tensor& other) {
  return memory.is_alias_of(other) ? memory.clone() : memory;
}

void check_list_of_lists(const TensorLists& outputs, const Tensors& inputs, int size,
                         const Refusal& refuse) {
  c10d::assertNonEmptyInputTensorList(refuse, inputs.size());
  c10d::assertInputOutputTensorListsSameSize(refuse, outputs.size(), inputs.size());
  const size_t expected = inputs.size() * static_cast<size_t>(size);
  for (const auto i : c10::irange(outputs.size())) {
    if (outputs[i].size() != expected) {
      refuse("invalid output tensor list at index " + std::to_string(i) + " (expected length " +
             std::to_string(expected) + ", got " + std::to_string(outputs[i].size()) + ")");
    }
  }
}

}  // namespace

WorkPtr ProcessGroupHccl::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const Refusal refuse = refusal("broadcast");
  c10d::assertRootRank(refuse, options.rootRank, size_);
  c10d::assertRootTensor(refuse, options.rootTensor, static_cast<int64_t>(tensors.size()));
  check_dense(tensors, refuse);
  c10d::assertTypeAndSizesMatch(refuse, tensors);
  Call call(c10d::OpType::BROADCAST, "hccl:broadcast", tensors, tensors, options);
  return issue(std::move(call), [=, rank = rank_](HcclComm comm) {
    const at::Tensor& source = tensors[static_cast<size_t>(options.rootTensor)];
    const bool root = rank == options.rootRank;
    const at::Tensor memory = root ? packed(source) : room_for(source);
    const Elements all = to_move(memory);
    check(HcclBroadcast(all.data, all.count, all.type, static_cast<uint32_t>(options.rootRank),
                        comm, nullptr),
          "broadcast");
    for (const at::Tensor& each : tensors) {
      if (!root || !each.is_same(source)) unpack(memory, each);
    }
  });
}

WorkPtr ProcessGroupHccl::allgather(TensorLists& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& options) {
  const Refusal refuse = refusal("allgather");
  check_list_of_lists(outputs, inputs, size_, refuse);
  check_dense(inputs, refuse);
  c10d::assertTypeAndSizesMatch(refuse, inputs);
  for (const Tensors& list : outputs) check_types(list, inputs[0], refuse);
  for (const Tensors& list : outputs) check_outputs(list, refuse);
  if (inputs.size() == 1) {
    c10d::assertSizesMatch(refuse, inputs[0].sizes(), outputs[0], static_cast<size_t>(rank_));
  }
  Call call(c10d::OpType::ALLGATHER, "hccl:all_gather", inputs, outputs[0], options);
  if (outputs.size() > 1) call.lists = outputs;
  return issue(std::move(call), [=](HcclComm comm) {
    const at::Tensor input = inputs.size() == 1 ? inputs[0] : packed_all(inputs);
    const at::Tensor recv = room_for_all(outputs[0]);
    if (inputs.size() == 1) return gather_list(outputs[0], input, comm);
    gather_all(recv, input, comm);
    for (const Tensors& list : outputs) unpack_all(recv, list);
  });
}

WorkPtr ProcessGroupHccl::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& options) {
  const Refusal refuse = refusal("_allgather_base");
  check_gathered(output, input, size_, refuse);
  check_outputs({output}, refuse);
  Call call(c10d::OpType::_ALLGATHER_BASE, "hccl:_all_gather_base", {input}, {output}, options);
  return issue(std::move(call), [=](HcclComm comm) { gather_all(output, input, comm); });
}

WorkPtr ProcessGroupHccl::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  const Refusal refuse = refusal("allgather_coalesced");
  check_dense(inputs, refuse);
  c10d::assertAllgatherCoalescedOutputTensorLists(refuse, outputs, inputs.size(), size_);
  TensorLists by_input(inputs.size());  // outputs[rank][i] is from inputs[i]
  Tensors results;
  for (const Tensors& list : outputs) {
    for (const auto i : c10::irange(list.size())) {
      c10d::assertTypeMatch(refuse, inputs[i].options(), list, i);
      if (list[i].sizes() != inputs[i].sizes()) {
        refuse("invalid size of output tensor at index " + std::to_string(i));
      }
      by_input[i].push_back(list[i]);
      results.push_back(list[i]);
    }
  }
  check_outputs(results, refuse);
  Call call(c10d::OpType::ALLGATHER_COALESCED, "hccl:all_gather", inputs, std::move(results),
            options);
  return issue(std::move(call), [=, lists = std::move(by_input)](HcclComm comm) {
    const Tensors sources = unchanged_by(lists, inputs);
    for (const auto i : c10::irange(inputs.size())) gather_list(lists[i], sources[i], comm);
  });
}

WorkPtr ProcessGroupHccl::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  const Refusal refuse = refusal("allgather_into_tensor_coalesced");
  c10d::assertInputOutputTensorListsSameSize(refuse, outputs.size(), inputs.size());
  for (const auto i : c10::irange(outputs.size())) {
    check_gathered(outputs[i], inputs[i], size_, refuse);
  }
  check_outputs(outputs, refuse);
  Call call(c10d::OpType::ALLGATHER_COALESCED, "hccl:all_gather_into_tensor_coalesced", inputs,
            outputs, options);
  return issue(std::move(call), [=](HcclComm comm) {
    const Tensors sources = unchanged_by(outputs, inputs);
    for (const auto i : c10::irange(outputs.size())) gather_all(outputs[i], sources[i], comm);
  });
}

WorkPtr ProcessGroupHccl::gather(TensorLists& outputs, Tensors& inputs,
                                 const c10d::GatherOptions& options) {
  const Refusal refuse = refusal("gather");
  c10d::assertRootRank(refuse, options.rootRank, size_);
  c10d::assertSingleElementInput(refuse, inputs);
  check_dense(inputs, refuse);
  const bool root = rank_ == options.rootRank;
  if (root) {
    c10d::assertGatherOutputTensorList(refuse, outputs, size_);
    check_types(outputs[0], inputs[0], refuse);
    c10d::assertSizesMatch(refuse, inputs[0].sizes(), outputs[0], static_cast<size_t>(rank_));
    check_outputs(outputs[0], refuse);
  } else {
    c10d::assertEmptyOutputTensorList(refuse, outputs);
  }
  const Tensors list = root ? outputs[0] : Tensors();
  Call call(c10d::OpType::GATHER, "hccl:gather", inputs, list, options);
  return issue(std::move(call), [=, input = inputs[0], size = size_](HcclComm comm) {
    const at::Tensor send = packed(input);
    const at::Tensor recv = root ? room_for_all(list) : at::empty({0}, input.options());
    exchange(apart_from(send, recv), Blocks::only(size, options.rootRank, in_blocks(send).count),
             recv, root ? Blocks::of(list) : Blocks::only(size, options.rootRank, 0), "gather",
             comm);
    unpack_all(recv, list);
  });
}

WorkPtr ProcessGroupHccl::scatter(Tensors& outputs, TensorLists& inputs,
                                  const c10d::ScatterOptions& options) {
  const Refusal refuse = refusal("scatter");
  c10d::assertRootRank(refuse, options.rootRank, size_);
  c10d::assertSingleElementOutput(refuse, outputs);
  check_dense(outputs, refuse);
  check_outputs(outputs, refuse);
  const bool root = rank_ == options.rootRank;
  if (root) {
    c10d::assertScatterInputTensorList(refuse, inputs, size_);
    check_types(inputs[0], outputs[0], refuse);
    c10d::assertSizesMatch(refuse, outputs[0].sizes(), inputs[0], static_cast<size_t>(rank_));
  } else {
    c10d::assertEmptyInputTensorList(refuse, inputs);
  }
  const Tensors list = root ? inputs[0] : Tensors();
  Call call(c10d::OpType::SCATTER, "hccl:scatter", list, outputs, options);
  return issue(std::move(call), [=, output = outputs[0], size = size_](HcclComm comm) {
    const at::Tensor recv = room_for(output);
    const at::Tensor send = root ? packed_all(list) : at::empty({0}, output.options());
    exchange(apart_from(send, recv),
             root ? Blocks::of(list) : Blocks::only(size, options.rootRank, 0), recv,
             Blocks::only(size, options.rootRank, in_blocks(recv).count), "scatter", comm);
    unpack(recv, output);
  });
}

WorkPtr ProcessGroupHccl::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<int64_t>& output_splits,
                                        std::vector<int64_t>& input_splits,
                                        const c10d::AllToAllOptions& options) {
  const Refusal refuse = refusal("alltoall_base");
  check_dense({output, input}, refuse);
  check_outputs({output}, refuse);
  check_types({output}, input, refuse);
  check_splits(input_splits, input, size_, refuse);
  check_splits(output_splits, output, size_, refuse);
  const bool equal = input_splits.empty() && output_splits.empty();
  if (equal && input.numel() != output.numel()) refuse("input and output differ in size");
  Call call(c10d::OpType::ALLTOALL_BASE, "hccl:all_to_all", {input}, {output}, options);
  return issue(std::move(call), [=, size = size_](HcclComm comm) {
    const at::Tensor recv = room_for(output);
    const at::Tensor send = apart_from(packed(input), recv);
    if (equal) {
      const Elements part = to_move(send, size);
      check(HcclAlltoAll(part.data, part.count, part.type, recv.data_ptr(), part.count, part.type,
                         comm, nullptr),
            "all_to_all");
    } else {
      exchange(send, Blocks::of_rows(send, input_splits, size), recv,
               Blocks::of_rows(recv, output_splits, size), "all_to_all", comm);
    }
    unpack(recv, output);
  });
}

WorkPtr ProcessGroupHccl::alltoall(Tensors& outputs, Tensors& inputs,
                                   const c10d::AllToAllOptions& options) {
  const Refusal refuse = refusal("alltoall");
  c10d::assertAllToAllTensorListSizes(refuse, outputs.size(), inputs.size(), size_);
  check_dense(outputs, refuse);
  check_outputs(outputs, refuse);
  check_dense(inputs, refuse);
  check_types(outputs, inputs[0], refuse);
  check_types(inputs, inputs[0], refuse);
  Call call(c10d::OpType::ALLTOALL, "hccl:all_to_all", inputs, outputs, options);
  return issue(std::move(call), [=](HcclComm comm) {
    const at::Tensor recv = room_for_all(outputs);
    const at::Tensor send = apart_from(packed_all(inputs), recv);
    exchange(send, Blocks::of(inputs), recv, Blocks::of(outputs), "all_to_all", comm);
    unpack_all(recv, outputs);
  });
}

WorkPtr ProcessGroupHccl::barrier(const c10d::BarrierOptions& options) {
  Call call(c10d::OpType::BARRIER, "hccl:barrier", {}, {}, options);
  return issue(std::move(call),
               [](HcclComm comm) { check(HcclBarrier(comm, nullptr), "barrier"); });
}

void ProcessGroupHccl::monitoredBarrier(const c10d::BarrierOptions& options, bool) {
  c10d::BarrierOptions own = options;
  own.asyncOp = true;    // returns a Work, also between startCoalescing and endCoalescing
  barrier(own)->wait();  // the library's text names the absent ranks
}

}  // namespace hccl::pytorch
