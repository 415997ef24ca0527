// The order of the collectives in a graph of TensorFlow 1.
#pragma once

#include <tensorflow/core/framework/graph.pb.h>

namespace hccl::tf {

/// Adds control inputs to the collectives of a graph before it runs: they then run in the order of
/// their numbers on all ranks. A second call does nothing. Collectives that cannot be ordered get
/// an attribute with the reason; their kernels raise it.
void chain(::tensorflow::GraphDef* graph);

/// The number of a collective, set by Python; the reason why it has no place in the order.
inline constexpr const char* kOrder = "_hccl_order";
inline constexpr const char* kUnordered = "_hccl_unordered";

}  // namespace hccl::tf
