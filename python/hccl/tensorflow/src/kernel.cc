#include "kernel.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "chain.h"
#include "hccl/hccl_framework.h"
#include "hccl/hcom.h"

namespace hccl::tf {

Status to_status(HcclResult result) {
  namespace errors = ::tensorflow::errors;
  if (result == HCCL_SUCCESS) return absl::OkStatus();
  const std::string text = with_names(std::string("hccl: ") + HcclGetLastErrorText());
  switch (result) {
    case HCCL_E_PARA:
    case HCCL_E_PTR:
      return errors::InvalidArgument(text);
    case HCCL_E_NOT_SUPPORT:
      return errors::Unimplemented(text);
    case HCCL_E_NOT_FOUND:
      return errors::NotFound(text);
    case HCCL_E_TIMEOUT:
      return errors::DeadlineExceeded(text);
    case HCCL_E_OOM:
    case HCCL_E_MEMORY:
      return errors::ResourceExhausted(text);
    // After Aborted or Unavailable, TensorFlow's sessions would retry for ever.
    default:
      return errors::Internal(text);
  }
}

HcclDataType to_type(::tensorflow::DataType type) {
  switch (type) {
    case ::tensorflow::DT_INT8:
      return HCCL_DATA_TYPE_INT8;
    case ::tensorflow::DT_INT16:
      return HCCL_DATA_TYPE_INT16;
    case ::tensorflow::DT_INT32:
      return HCCL_DATA_TYPE_INT32;
    case ::tensorflow::DT_INT64:
      return HCCL_DATA_TYPE_INT64;
    case ::tensorflow::DT_BOOL:
    case ::tensorflow::DT_UINT8:
      return HCCL_DATA_TYPE_UINT8;
    case ::tensorflow::DT_UINT16:
      return HCCL_DATA_TYPE_UINT16;
    case ::tensorflow::DT_UINT32:
      return HCCL_DATA_TYPE_UINT32;
    case ::tensorflow::DT_UINT64:
      return HCCL_DATA_TYPE_UINT64;
    case ::tensorflow::DT_HALF:
      return HCCL_DATA_TYPE_FP16;
    case ::tensorflow::DT_BFLOAT16:
      return HCCL_DATA_TYPE_BFP16;
    case ::tensorflow::DT_FLOAT:
      return HCCL_DATA_TYPE_FP32;
    case ::tensorflow::DT_DOUBLE:
      return HCCL_DATA_TYPE_FP64;
    default:
      return HCCL_DATA_TYPE_RESERVED;  // the ops have no other types
  }
}

std::vector<TensorShape> shapes_of(const OpKernelContext& context, int inputs) {
  std::vector<TensorShape> shapes;
  for (int i = 0; i < inputs; ++i) shapes.push_back(context.input(i).shape());
  return shapes;
}

Status forward(OpKernelContext* context, int number, void** in, void** out) {
  const TensorShape shape = context->input(number).shape();
  *in = memory_of(context->input(number));
  Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output({number}, number, shape, &output));
  *out = memory_of(*output);
  return absl::OkStatus();
}

namespace {

/// Returns a number for the run of the graph to which the op belongs. Ops outside graphs have step
/// 0 and run on the calling thread, so their number is that of the thread.
RunNumber run_of(const OpKernelContext& context) {
  const auto step = static_cast<RunNumber>(context.step_id());
  return step != 0 ? step : std::hash<std::thread::id>()(std::this_thread::get_id());
}

}  // namespace

Requested::Requested(OpKernelConstruction* construction) : AsyncOpKernel(construction) {
  OP_REQUIRES_OK(construction, construction->GetAttr("group", &group_));
  std::string unordered;
  if (!construction->GetAttr(kUnordered, &unordered).ok()) return;
  construction->CtxFailure(::tensorflow::errors::InvalidArgument(unordered));
}

void Requested::ComputeAsync(OpKernelContext* context, DoneCallback done) {
  HcclComm comm = nullptr;
  OP_REQUIRES_OK_ASYNC(context, to_status(HcomGetCommHandleByGroup(group_.c_str(), &comm)), done);
  const WaitingOp op{in_order() ? run_of(*context) : kAnyRun, name()};
  std::unique_ptr<Operation> operation(
      new Operation{this, context, comm, done, Waiting(comm, op), absl::OkStatus()});
  OP_REQUIRES_OK_ASYNC(context, begin(operation.get()), done);
  static_cast<void>(operation.release());  // finish() owns it now
}

void Requested::finish(void* arg, HcclResult result) {
  std::unique_ptr<Operation> operation(static_cast<Operation*>(arg));
  if (operation->status.ok()) operation->status = to_status(result);
  if (!operation->status.ok()) operation->context->CtxFailure(operation->status);
  const DoneCallback done = std::move(operation->done);
  operation.reset();  // ends the record of the wait before TensorFlow continues
  done();
}

Status Kernel::begin(Operation* operation) {
  const std::string& other = operation->waiting.beside();
  std::uint32_t ranks = 1;
  if (other.empty() || HcclGetRankSize(operation->comm, &ranks) != HCCL_SUCCESS || ranks == 1) {
    return to_status(HcclSubmit(&call, operation->comm, false, &finish, operation, nullptr));
  }
  const std::string text = "two threads call collectives of one group at once: \"" + name() +
                           "\" began while \"" + other +
                           "\" of another thread waited, and other ranks may call them in the "
                           "opposite order: call them from one thread, or make a group for each";
  static_cast<void>(HcclCommAbort(operation->comm, text.c_str()));
  return ::tensorflow::errors::FailedPrecondition("hccl: " + text);
}

Kernel::Kernel(OpKernelConstruction* construction)
    : Requested(construction), names_(construction) {}

HcclResult Kernel::call(void* arg) {
  auto& operation = *static_cast<Operation*>(arg);
  auto& kernel = *static_cast<Kernel*>(operation.kernel);
  operation.status = kernel.names_.compare_once(operation.comm);
  if (!operation.status.ok()) return HCCL_SUCCESS;
  const OpKernelContext& context = *operation.context;
  const auto shapes = shapes_of(context, kernel.alike(context));
  // Outside loops the number of the iteration is 0, or -1 in a graph without control flow.
  const auto iteration = std::max<std::int64_t>(context.frame_iter().iter_id, 0);
  static_cast<void>(HcclSetCallTag(kernel.names_.tag(shapes, iteration)));
  operation.status = kernel.run(operation.context, operation.comm);
  static_cast<void>(HcclSetCallTag(0));
  return HCCL_SUCCESS;
}

Reducing::Reducing(OpKernelConstruction* construction) : Kernel(construction) {
  static const std::map<std::string, HcclReduceOp> ops = {{"sum", HCCL_REDUCE_SUM},
                                                          {"prod", HCCL_REDUCE_PROD},
                                                          {"max", HCCL_REDUCE_MAX},
                                                          {"min", HCCL_REDUCE_MIN}};
  std::string reduction;
  OP_REQUIRES_OK(construction, construction->GetAttr("reduction", &reduction));
  op_ = ops.at(reduction);  // the ops' definitions allow no other
}

Scaling::Scaling(OpKernelConstruction* construction) : Reducing(construction) {
  std::int64_t divisor = 1;
  OP_REQUIRES_OK(construction, construction->GetAttr("divisor", &divisor));
  scale_.after = 1 / static_cast<double>(divisor);
}

Status Scaling::all_reduce(void* in, void* out, std::uint64_t count, HcclDataType type,
                           HcclComm comm) const {
  const HcclScale* const scale = scale_.after == 1 ? nullptr : &scale_;
  return to_status(HcclAllReduceScaled(in, out, count, type, op_, scale, comm, nullptr));
}

}  // namespace hccl::tf
