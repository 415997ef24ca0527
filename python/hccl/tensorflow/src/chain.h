// The order of the collectives in a graph of TensorFlow 1.
#pragma once

#include <tensorflow/core/framework/graph.pb.h>

namespace hccl::tf {

/// Adds control inputs to the collectives of a graph before the graph runs, so that the collectives
/// run in the order of their numbers on all ranks. A second call does nothing. A collective that
/// cannot be ordered gets an attribute with the reason, and its kernel fails with that reason.
void chain(::tensorflow::GraphDef* graph);

/// Names of attributes. kOrder: the number of a collective among all collectives of the process,
/// set by Python. kCall: the number of a collective among its group's collectives in one graph; set
/// by Python only in graphs in which TensorFlow keeps no order. kChained: chain() has seen the
/// collective. kUnordered: the reason why a collective cannot be ordered.
inline constexpr const char* kOrder = "_hccl_order";
inline constexpr const char* kCall = "_hccl_call";
inline constexpr const char* kChained = "_hccl_chained";
inline constexpr const char* kUnordered = "_hccl_unordered";

}  // namespace hccl::tf
