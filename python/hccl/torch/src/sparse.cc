// The sum of sparse tensors (COO), such as the gradients of embeddings.
#include <ATen/ATen.h>
#include <c10/util/irange.h>

#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "backend.h"
#include "hccl/hccl.h"

namespace hccl::pytorch {
namespace {

// A description is an int64 tensor: number of elements, number of sparse dimensions, sizes. kHead
// is the number of values before the sizes.
constexpr int64_t kHead = 2;

at::Tensor describe(const at::Tensor& tensor) {
  std::vector<int64_t> words = {tensor._nnz(), tensor.sparse_dim()};
  words.insert(words.end(), tensor.sizes().begin(), tensor.sizes().end());
  return at::tensor(words, at::kLong);
}

// Gathers the descriptions of all ranks, one in each row of the result. If sizes differ, all ranks
// throw.
at::Tensor exchange_descriptions(const at::Tensor& tensor, int size, HcclComm comm) {
  const at::Tensor own = describe(tensor);
  at::Tensor all = at::empty({size, own.numel()}, at::kLong);
  const Elements send = to_move(own);
  check(HcclAllGather(send.data, all.data_ptr(), send.count, send.type, comm, nullptr),
        "sparse all_reduce");
  const at::Tensor shapes = all.narrow(1, 1, own.numel() - 1);
  for (const int64_t rank : c10::irange(int64_t{1}, int64_t{size})) {
    TORCH_CHECK(
        shapes[0].equal(shapes[rank]),
        "hccl sparse all_reduce: tensor sizes differ: rank 0 has (sparse dimensions, sizes) ",
        shapes[0], ", rank ", rank, " has ", shapes[rank]);
  }
  return all;
}

// Gathers the rows of all ranks. Rank r has counts[r] rows, of the same form as those of `own`.
at::Tensor gather_rows(const at::Tensor& own, const std::vector<int64_t>& counts, HcclComm comm) {
  std::vector<int64_t> sizes = own.sizes().vec();
  int64_t row = own.is_complex() ? 2 : 1;
  for (const auto dim : c10::irange(size_t{1}, sizes.size())) row *= sizes[dim];
  Blocks blocks;
  sizes[0] = 0;
  for (const int64_t count : counts) {
    blocks.add(static_cast<uint64_t>(count * row));
    sizes[0] += count;
  }
  at::Tensor all = at::empty(sizes, own.options());
  const Elements send = in_blocks(own);
  check(HcclAllGatherV(send.data, send.count, all.data_ptr(), blocks.counts.data(),
                       blocks.offsets.data(), send.type, comm, nullptr),
        "sparse all_reduce");
  return all;
}

void sum_sparse(const Tensors& tensors, int size, HcclComm comm) {
  at::Tensor own = tensors[0];
  for (const auto i : c10::irange(size_t{1}, tensors.size())) own = own.add(tensors[i]);
  own = own.coalesce();
  const at::Tensor descriptions = exchange_descriptions(own, size, comm);
  std::vector<int64_t> counts;
  for (const int64_t rank : c10::irange(int64_t{size})) {
    counts.push_back(descriptions[rank][0].item<int64_t>());
  }
  const at::Tensor indices = gather_rows(own.indices().t().contiguous(), counts, comm);
  const at::Tensor values = gather_rows(own.values().contiguous(), counts, comm);
  const at::Tensor sum =
      at::sparse_coo_tensor(indices.t(), values, own.sizes(), own.options()).coalesce();
  for (const at::Tensor& each : tensors) each.copy_(sum);
}

}  // namespace

WorkPtr ProcessGroupHccl::allreduce_sparse(Tensors& tensors,
                                           const c10d::AllreduceOptions& options) {
  const Refusal refuse = refusal("allreduce");
  if (options.reduceOp.op_ != c10d::ReduceOp::SUM) {
    refuse("unsupported reduction operation for sparse tensors: only SUM");
  }
  Call call(c10d::OpType::_ALLREDUCE_SPARSE, "hccl:sparse_all_reduce", tensors, tensors, options);
  return issue(std::move(call),
               [=, size = size_](HcclComm comm) { sum_sparse(tensors, size, comm); });
}

}  // namespace hccl::pytorch
