// The definitions of the ops. All collectives take the same resource as input, and no op reads its
// value. Automatic control dependencies keep the ops that use a resource in the order of the
// program, also in conditionals, loops and functions. That order is the same on all ranks.
#include <tensorflow/core/framework/common_shape_fns.h>
#include <tensorflow/core/framework/op.h>
#include <tensorflow/core/framework/shape_inference.h>

namespace hccl::tf {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;
using ::tensorflow::shape_inference::UnchangedShape;

// The types of numbers that HCCL reduces. Ops that only move data accept bool, too.
#define HCCL_TF_TYPES \
  "int8, int16, int32, int64, uint8, uint16, uint32, uint64, half, bfloat16, float, double"
#define HCCL_TF_NUMBERS "{" HCCL_TF_TYPES "}"
#define HCCL_TF_MOVED "{" HCCL_TF_TYPES ", bool}"

// Defines an op that waits for other ranks of its group.
#define HCCL_TF_REGISTER(name) \
  REGISTER_OP(name).Attr("group: string = 'hccl_world_group'").SetIsStateful()

// Defines a collective. It has the names of its tensors, for errors, and their digests and another
// text, which ranks compare.
#define HCCL_TF_COLLECTIVE(name)            \
  HCCL_TF_REGISTER(name)                    \
      .Attr("names: list(string) = []")     \
      .Attr("name_digests: list(int) = []") \
      .Attr("also: string = ''")

absl::Status same_shapes(InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->input(i));
  return absl::OkStatus();
}

/// Multiplies the first dimension by the number of ranks or, if `divides`, divides it by that
/// number.
absl::Status scale_first(InferenceContext* c, bool divides) {
  int size = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("rank_size", &size));
  ShapeHandle in, out;
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(0), 1, &in));
  DimensionHandle first;
  if (divides) {
    if (c->ValueKnown(c->Dim(in, 0)) && c->Value(c->Dim(in, 0)) % size != 0) {
      return ::tensorflow::errors::InvalidArgument("input first dim should be N * rank_size.");
    }
    TF_RETURN_IF_ERROR(c->Divide(c->Dim(in, 0), size, true, &first));
  } else {
    TF_RETURN_IF_ERROR(c->Multiply(c->Dim(in, 0), size, &first));
  }
  TF_RETURN_IF_ERROR(c->ReplaceDim(in, 0, first, &out));
  c->set_output(0, out);
  return absl::OkStatus();
}

absl::Status any_vector(InferenceContext* c) {
  c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
  return absl::OkStatus();
}

}  // namespace

// divisor: divides a sum of floats. It is an integer, because attributes have no type double.
HCCL_TF_COLLECTIVE("HcclAllReduce")
    .Input("tensor: T")
    .Input("order: resource")
    .Output("reduced: T")
    .Attr("T: " HCCL_TF_NUMBERS)
    .Attr("reduction: {'sum', 'prod', 'max', 'min'} = 'sum'")
    .Attr("divisor: int >= 1 = 1")
    .SetShapeFn(UnchangedShape);

HCCL_TF_COLLECTIVE("HcclGroupedAllReduce")
    .Input("tensors: N * T")
    .Input("order: resource")
    .Output("reduced: N * T")
    .Attr("N: int >= 1")
    .Attr("T: " HCCL_TF_NUMBERS)
    .Attr("reduction: {'sum', 'prod', 'max', 'min'} = 'sum'")
    .Attr("divisor: int >= 1 = 1")
    .SetShapeFn(same_shapes);

// Passes a gradient of a list to the library as soon as it is ready. Only HcclFusedAllReduce uses
// `handed_over`. The op is not stateful, so gradients may be passed in any order. If TensorFlow
// folds the op away, HcclFusedAllReduce copies the gradient itself.
REGISTER_OP("HcclFusedPush")
    .Input("gradient: T")
    .Output("handed_over: int64")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("list_key: string")
    .Attr("index: int >= 0")
    .SetShapeFn(::tensorflow::shape_inference::ScalarShape);

// Reduces the gradients of a list, fused into segments (hccl/hccl_fusion.h).
HCCL_TF_COLLECTIVE("HcclFusedAllReduce")
    .Input("gradients: N * T")
    .Input("handed_over: N * int64")
    .Input("order: resource")
    .Output("reduced: N * T")
    .Attr("N: int >= 1")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("list_key: string")
    .Attr("average: bool")
    .Attr("hcom_parallel: bool = true")
    .SetShapeFn(same_shapes);

HCCL_TF_COLLECTIVE("HcclBroadcast")
    .Input("tensors: T")
    .Input("order: resource")
    .Output("of_root: T")
    .Attr("T: list(" HCCL_TF_MOVED ") >= 1")
    .Attr("root_rank: int >= 0")
    .SetShapeFn(same_shapes);

HCCL_TF_COLLECTIVE("HcclReduce")
    .Input("tensor: T")
    .Input("order: resource")
    .Output("reduced: T")
    .Attr("T: " HCCL_TF_NUMBERS)
    .Attr("reduction: {'sum', 'prod', 'max', 'min'} = 'sum'")
    .Attr("root_rank: int >= 0")
    .SetShapeFn(UnchangedShape);

HCCL_TF_COLLECTIVE("HcclAllGather")
    .Input("tensor: T")
    .Input("order: resource")
    .Output("gathered: T")
    .Attr("T: " HCCL_TF_MOVED)
    .Attr("rank_size: int >= 1")
    .SetShapeFn([](InferenceContext* c) { return scale_first(c, false); });

HCCL_TF_COLLECTIVE("HcclReduceScatter")
    .Input("tensor: T")
    .Input("order: resource")
    .Output("part: T")
    .Attr("T: " HCCL_TF_NUMBERS)
    .Attr("reduction: {'sum', 'prod', 'max', 'min'} = 'sum'")
    .Attr("rank_size: int >= 1")
    .SetShapeFn([](InferenceContext* c) { return scale_first(c, true); });

HCCL_TF_COLLECTIVE("HcclAllToAllV")
    .Input("send_data: T")
    .Input("send_counts: int64")
    .Input("send_displacements: int64")
    .Input("recv_counts: int64")
    .Input("recv_displacements: int64")
    .Input("order: resource")
    .Output("recv_data: T")
    .Attr("T: " HCCL_TF_MOVED)
    .SetShapeFn(any_vector);

HCCL_TF_COLLECTIVE("HcclAllToAllVC")
    .Input("send_data: T")
    .Input("send_count_matrix: int64")
    .Input("order: resource")
    .Output("recv_data: T")
    .Attr("T: " HCCL_TF_MOVED)
    .Attr("rank: int >= 0")
    .SetShapeFn(any_vector);

HCCL_TF_REGISTER("HcclSend")
    .Input("tensor: T")
    .Input("order: resource")
    .Attr("T: " HCCL_TF_MOVED)
    .Attr("sr_tag: int")
    .Attr("dest_rank: int >= 0")
    .SetShapeFn(::tensorflow::shape_inference::NoOutputs);

HCCL_TF_REGISTER("HcclReceive")
    .Input("order: resource")
    .Output("tensor: T")
    .Attr("shape: shape")
    .Attr("T: " HCCL_TF_MOVED)
    .Attr("sr_tag: int")
    .Attr("src_rank: int >= 0")
    .SetShapeFn(::tensorflow::shape_inference::ExplicitShape);

}  // namespace hccl::tf
