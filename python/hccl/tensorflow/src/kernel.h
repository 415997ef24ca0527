// The common part of the kernels.
#pragma once

#include <tensorflow/core/framework/op_kernel.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hccl/hccl_comm.h"
#include "hccl/hccl_framework.h"
#include "hccl/hccl_types.h"
#include "names.h"
#include "waits.h"

namespace hccl::tf {

using ::tensorflow::AsyncOpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;
using Status = absl::Status;

/// Converts the result of a library call on this thread, with the library's error text.
Status to_status(HcclResult result);

HcclDataType to_type(::tensorflow::DataType type);

inline void* memory_of(const Tensor& tensor) {
  return const_cast<char*>(tensor.tensor_data().data());
}
inline std::uint64_t count_of(const Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.NumElements());
}

/// Returns the shapes of the first `inputs` inputs.
std::vector<TensorShape> shapes_of(const OpKernelContext& context, int inputs);

/// Makes output `number`. If nothing else needs the memory of the input with this number, the
/// output takes over that memory; otherwise it gets new memory. Sets `in` and `out` to the
/// addresses of their elements. The input tensor is not valid afterwards.
Status forward(OpKernelContext* context, int number, void** in, void** out);

/// A kernel whose operation the library runs in the background, so that a wait for other ranks
/// blocks no thread of TensorFlow.
class Requested : public AsyncOpKernel {
 public:
  explicit Requested(OpKernelConstruction* construction);
  void ComputeAsync(OpKernelContext* context, DoneCallback done) final;

 protected:
  struct Operation {
    Requested* kernel;
    OpKernelContext* context;
    HcclComm comm;
    DoneCallback done;
    Waiting waiting;
    Status status;
  };
  /// Returns whether ranks match the operation by the order of their calls.
  virtual bool in_order() const { return false; }
  /// Begins the operation. If begin() succeeds, the library calls finish() when the operation ends.
  virtual Status begin(Operation* operation) = 0;
  static void finish(void* operation, HcclResult result);

 private:
  std::string group_;
};

/// A kernel that calls collectives, in the order of its communicator's operations.
class Kernel : public Requested {
 public:
  explicit Kernel(OpKernelConstruction* construction);

 protected:
  const std::vector<std::string>& names() const { return names_.all(); }
  /// Returns the number of inputs whose shapes must be the same on all ranks.
  virtual int alike(const OpKernelContext& context) const { return context.num_outputs(); }
  /// Runs the collectives, on the communicator's thread.
  virtual Status run(OpKernelContext* context, HcclComm comm) = 0;

 private:
  bool in_order() const final { return true; }
  Status begin(Operation* operation) final;
  static HcclResult call(void* operation);
  Names names_;
};

/// A kernel that reduces.
class Reducing : public Kernel {
 public:
  explicit Reducing(OpKernelConstruction* construction);

 protected:
  HcclReduceOp op_ = HCCL_REDUCE_SUM;
};

/// A kernel whose sums of floats are multiplied by a factor.
class Scaling : public Reducing {
 public:
  explicit Scaling(OpKernelConstruction* construction);

 protected:
  Status all_reduce(void* in, void* out, std::uint64_t count, HcclDataType type,
                    HcclComm comm) const;

 private:
  HcclScale scale_{1, 1};
};

}  // namespace hccl::tf
