// The graph optimizer "NpuOptimizer", which TensorFlow 1's sessions ask for by that name: the
// collectives that a run needs are chained in the order in which the program has made them. In a
// graph of TensorFlow 1 independent operations have no order, and ranks would call them in several.
// The chain is that of a run, not of the graph: a fetch never runs a collective it does not need.
// Of the session's options it reads hcom_parallel.
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
