// The kernels of collectives, except lists.
#include <algorithm>
#include <cstring>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_framework.h"
#include "kernel.h"

namespace hccl::tf {
namespace {

using ::tensorflow::errors::InvalidArgument;

class AllReduce final : public Scaling {
 public:
  using Scaling::Scaling;

 private:
  Status run(OpKernelContext* context, HcclComm comm) override {
    const auto count = count_of(context->input(0));
    const HcclDataType type = to_type(context->input_dtype(0));
    void *in = nullptr, *out = nullptr;
    TF_RETURN_IF_ERROR(forward(context, 0, &in, &out));
    return all_reduce(in, out, count, type, comm);
  }
};

/// Broadcasts the tensors one after another; types may be mixed.
class Broadcast final : public Kernel {
 public:
  explicit Broadcast(OpKernelConstruction* construction) : Kernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("root_rank", &root_));
  }

 private:
  Status run(OpKernelContext* context, HcclComm comm) override {
    for (int i = 0; i < context->num_outputs(); ++i) {
      const auto count = count_of(context->input(i));
      const HcclDataType type = to_type(context->input_dtype(i));
      const std::size_t bytes = context->input(i).tensor_data().size();
      void *in = nullptr, *out = nullptr;
      TF_RETURN_IF_ERROR(forward(context, i, &in, &out));
      if (in != out) std::memcpy(out, in, bytes);
      TF_RETURN_IF_ERROR(to_status(HcclBroadcast(out, count, type, root(), comm, nullptr)));
    }
    return absl::OkStatus();
  }
  std::uint32_t root() const { return static_cast<std::uint32_t>(root_); }
  int root_ = 0;
};

/// Reduces to the root. On all other ranks the output is the input.
class Reduce final : public Reducing {
 public:
  explicit Reduce(OpKernelConstruction* construction) : Reducing(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("root_rank", &root_));
  }

 private:
  Status run(OpKernelContext* context, HcclComm comm) override {
    const auto root = static_cast<std::uint32_t>(root_);
    const Tensor& input = context->input(0);
    std::uint32_t rank = 0;
    TF_RETURN_IF_ERROR(to_status(HcclGetRankId(comm, &rank)));
    Tensor result;
    TF_RETURN_IF_ERROR(context->allocate_temp(input.dtype(), input.shape(), &result));
    TF_RETURN_IF_ERROR(to_status(HcclReduce(memory_of(input), memory_of(result), count_of(input),
                                            to_type(input.dtype()), op_, root, comm, nullptr)));
    context->set_output(0, rank == root ? result : input);
    return absl::OkStatus();
  }
  int root_ = 0;
};

/// Checks that the communicator has the size for which the graph was made.
Status check_size(OpKernelContext* context, HcclComm comm, int wanted) {
  std::uint32_t size = 0;
  TF_RETURN_IF_ERROR(to_status(HcclGetRankSize(comm, &size)));
  if (size == static_cast<std::uint32_t>(wanted)) return absl::OkStatus();
  return InvalidArgument("hccl: ", context->op_kernel().name(), ": rank_size is ", wanted,
                         ", but the group has ", size, " ranks");
}

class AllGather final : public Kernel {
 public:
  explicit AllGather(OpKernelConstruction* construction) : Kernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("rank_size", &size_));
  }

 private:
  Status run(OpKernelContext* context, HcclComm comm) override {
    TF_RETURN_IF_ERROR(check_size(context, comm, size_));
    const Tensor& input = context->input(0);
    if (input.dims() == 0) return InvalidArgument("hccl: a scalar cannot be gathered");
    TensorShape shape = input.shape();
    shape.set_dim(0, shape.dim_size(0) * size_);
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &output));
    return to_status(HcclAllGather(memory_of(input), memory_of(*output), count_of(input),
                                   to_type(input.dtype()), comm, nullptr));
  }
  int size_ = 1;
};

class ReduceScatter final : public Reducing {
 public:
  explicit ReduceScatter(OpKernelConstruction* construction) : Reducing(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("rank_size", &size_));
  }

 private:
  Status run(OpKernelContext* context, HcclComm comm) override {
    TF_RETURN_IF_ERROR(check_size(context, comm, size_));
    const Tensor& input = context->input(0);
    if (input.dims() == 0 || input.dim_size(0) % size_ != 0) {
      return InvalidArgument("input first dim should be N * rank_size.");
    }
    TensorShape shape = input.shape();
    shape.set_dim(0, shape.dim_size(0) / size_);
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &output));
    return to_status(HcclReduceScatter(memory_of(input), memory_of(*output), count_of(*output),
                                       to_type(input.dtype()), op_, comm, nullptr));
  }
  int size_ = 1;
};

/// Reads `ranks` counts or displacements of an all-to-all from the tensor `name`, and appends them
/// to `values`. Fails if their number differs or one is negative.
Status numbers(const Tensor& tensor, const char* name, std::size_t ranks,
               std::vector<std::uint64_t>* values) {
  if (static_cast<std::size_t>(tensor.NumElements()) != ranks) {
    return InvalidArgument("hccl: ", name, " has ", tensor.NumElements(), " elements, the group ",
                           ranks, " ranks");
  }
  const auto flat = tensor.flat<std::int64_t>();
  for (std::size_t i = 0; i < ranks; ++i) {
    const std::int64_t value = flat(static_cast<Eigen::Index>(i));
    if (value < 0) return InvalidArgument("hccl: ", name, "[", i, "] is ", value);
    values->push_back(static_cast<std::uint64_t>(value));
  }
  return absl::OkStatus();
}

/// Sets `end` to the end of the last block, with these counts and displacements. Fails if a number
/// is too large.
Status reach(const std::vector<std::uint64_t>& counts, const std::vector<std::uint64_t>& at,
             std::uint64_t* end) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  *end = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > kMost || at[i] > kMost) {
      return InvalidArgument("hccl: ", counts[i], " elements at ", at[i], " are too many");
    }
    if (counts[i] > 0) *end = std::max(*end, at[i] + counts[i]);
  }
  return absl::OkStatus();
}

/// Makes the output of an all-to-all. Fails if the input has fewer elements than are sent.
Status make_output(OpKernelContext* context, std::uint64_t sent, std::uint64_t received,
                   Tensor** output) {
  const std::uint64_t there = count_of(context->input(0));
  if (sent > there) {
    return InvalidArgument("hccl: send_data has ", there, " elements; ", sent, " are to be sent");
  }
  return context->allocate_output(0, TensorShape({static_cast<std::int64_t>(received)}), output);
}

class AllToAllV final : public Kernel {
 public:
  using Kernel::Kernel;

 private:
  int alike(const OpKernelContext&) const override { return 0; }
  Status run(OpKernelContext* context, HcclComm comm) override {
    std::uint32_t ranks = 0;
    TF_RETURN_IF_ERROR(to_status(HcclGetRankSize(comm, &ranks)));
    std::vector<std::uint64_t> lists[4];
    const char* const names[] = {"send_counts", "send_displacements", "recv_counts",
                                 "recv_displacements"};
    for (int i = 0; i < 4; ++i) {
      TF_RETURN_IF_ERROR(numbers(context->input(i + 1), names[i], ranks, &lists[i]));
    }
    const Tensor& input = context->input(0);
    std::uint64_t sent = 0, received = 0;
    TF_RETURN_IF_ERROR(reach(lists[0], lists[1], &sent));
    TF_RETURN_IF_ERROR(reach(lists[2], lists[3], &received));
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(make_output(context, sent, received, &output));
    std::memset(memory_of(*output), 0, output->tensor_data().size());  // zeros for gaps
    const HcclDataType type = to_type(input.dtype());
    return to_status(HcclAlltoAllV(memory_of(input), lists[0].data(), lists[1].data(), type,
                                   memory_of(*output), lists[2].data(), lists[3].data(), type, comm,
                                   nullptr));
  }
};

class AllToAllVC final : public Kernel {
 public:
  explicit AllToAllVC(OpKernelConstruction* construction) : Kernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("rank", &rank_));
  }

 private:
  int alike(const OpKernelContext&) const override { return 0; }
  Status run(OpKernelContext* context, HcclComm comm) override {
    std::uint32_t ranks = 0, rank = 0;
    TF_RETURN_IF_ERROR(to_status(HcclGetRankSize(comm, &ranks)));
    TF_RETURN_IF_ERROR(to_status(HcclGetRankId(comm, &rank)));
    if (rank != static_cast<std::uint32_t>(rank_)) {
      return InvalidArgument("hccl: rank is ", rank_, ", but this is rank ", rank);
    }
    std::vector<std::uint64_t> matrix;
    const std::size_t square = std::size_t{ranks} * ranks;
    TF_RETURN_IF_ERROR(numbers(context->input(1), "send_count_matrix", square, &matrix));
    std::uint64_t sent = 0, received = 0;
    for (std::size_t i = 0; i < ranks; ++i) {
      sent += matrix[rank * ranks + i];
      received += matrix[i * ranks + rank];
    }
    const Tensor& input = context->input(0);
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(make_output(context, sent, received, &output));
    const HcclDataType type = to_type(input.dtype());
    return to_status(HcclAlltoAllVC(memory_of(input), matrix.data(), type, memory_of(*output), type,
                                    comm, nullptr));
  }
  int rank_ = 0;
};

}  // namespace

REGISTER_KERNEL_BUILDER(Name("HcclAllReduce").Device(::tensorflow::DEVICE_CPU), AllReduce);
REGISTER_KERNEL_BUILDER(Name("HcclBroadcast").Device(::tensorflow::DEVICE_CPU), Broadcast);
REGISTER_KERNEL_BUILDER(Name("HcclReduce").Device(::tensorflow::DEVICE_CPU), Reduce);
REGISTER_KERNEL_BUILDER(Name("HcclAllGather").Device(::tensorflow::DEVICE_CPU), AllGather);
REGISTER_KERNEL_BUILDER(Name("HcclReduceScatter").Device(::tensorflow::DEVICE_CPU), ReduceScatter);
REGISTER_KERNEL_BUILDER(Name("HcclAllToAllV").Device(::tensorflow::DEVICE_CPU), AllToAllV);
REGISTER_KERNEL_BUILDER(Name("HcclAllToAllVC").Device(::tensorflow::DEVICE_CPU), AllToAllVC);

}  // namespace hccl::tf
