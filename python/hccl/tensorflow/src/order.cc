// The graph optimizer "NpuOptimizer", which TensorFlow 1's sessions request by that name. It chains
// the collectives that a run needs, in the order in which the program made them. Without the chain,
// independent operations in a graph of TensorFlow 1 have no order, and ranks would call them in
// different orders. The chain belongs to a run, not to the graph, so a fetch never runs a
// collective that it does not need. The optimizer also applies the session's option hcom_parallel.
#include <tensorflow/core/grappler/grappler_item.h>
#include <tensorflow/core/grappler/optimizers/custom_graph_optimizer.h>
#include <tensorflow/core/grappler/optimizers/custom_graph_optimizer_registry.h>

#include <optional>

#include "chain.h"

namespace hccl::tf {
namespace {

using ::tensorflow::GraphDef;
using ::tensorflow::NodeDef;

constexpr const char* kParallel = "hcom_parallel";

class NpuOptimizer final : public ::tensorflow::grappler::CustomGraphOptimizer {
 public:
  std::string name() const override { return "NpuOptimizer"; }
  bool UsesFunctionLibrary() const override { return false; }
  absl::Status Init(const ::tensorflow::RewriterConfig_CustomGraphOptimizer* config) override {
    if (config == nullptr) return absl::OkStatus();
    const auto given = config->parameter_map().find(kParallel);
    if (given != config->parameter_map().end()) parallel_ = given->second;
    return absl::OkStatus();
  }
  absl::Status Optimize(::tensorflow::grappler::Cluster*,
                        const ::tensorflow::grappler::GrapplerItem& item,
                        GraphDef* optimized) override {
    *optimized = item.graph;
    for (NodeDef& node : *optimized->mutable_node()) {
      if (parallel_ && node.op() == "HcclFusedAllReduce") {
        (*node.mutable_attr())[kParallel] = *parallel_;
      }
    }
    chain(optimized);
    return absl::OkStatus();
  }

 private:
  std::optional<::tensorflow::AttrValue> parallel_;
};

}  // namespace

REGISTER_GRAPH_OPTIMIZER_AS(NpuOptimizer, "NpuOptimizer");

}  // namespace hccl::tf
