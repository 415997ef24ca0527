// The graph optimizer "NpuOptimizer", which TensorFlow 1's sessions ask for by that name: the
// collectives that a run needs are chained in the order in which the program has made them. In a
// graph of TensorFlow 1 independent operations have no order, and ranks would call them in several.
// The chain is that of a run, not of the graph: a fetch never runs a collective it does not need.
// Branches and loops of TensorFlow 1 have chains of their own: what follows an op of the branch
// that is not taken is not run either. Of the session's options it reads hcom_parallel.
#include <tensorflow/core/grappler/grappler_item.h>
#include <tensorflow/core/grappler/optimizers/custom_graph_optimizer.h>
#include <tensorflow/core/grappler/optimizers/custom_graph_optimizer_registry.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hccl::tf {
namespace {

using ::tensorflow::GraphDef;
using ::tensorflow::NodeDef;

constexpr const char* kParallel = "hcom_parallel";
// Set by Python as ops are made.
constexpr const char* kOrder = "_hccl_order";
constexpr const char* kWithin = "_hccl_within";  // the branch or loop, where it is in one

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
    std::vector<std::pair<std::int64_t, NodeDef*>> collectives;
    for (NodeDef& node : *optimized->mutable_node()) {
      const auto order = node.attr().find(kOrder);
      if (order != node.attr().end()) collectives.emplace_back(order->second.i(), &node);
      if (parallel_ && node.op() == "HcclFusedAllReduce") {
        (*node.mutable_attr())[kParallel] = *parallel_;
      }
    }
    std::sort(collectives.begin(), collectives.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    std::map<std::string, const NodeDef*> last;
    for (const auto& [number, node] : collectives) {
      const auto within = node->attr().find(kWithin);
      const NodeDef*& before = last[within == node->attr().end() ? "" : within->second.s()];
      if (before != nullptr) follow(*node, "^" + before->name());
      before = node;
    }
    return absl::OkStatus();
  }

 private:
  // Sessions optimize a graph more than once.
  static void follow(NodeDef& node, const std::string& control) {
    const auto& inputs = node.input();
    if (std::find(inputs.begin(), inputs.end(), control) == inputs.end()) node.add_input(control);
  }

  std::optional<::tensorflow::AttrValue> parallel_;
};

}  // namespace

REGISTER_GRAPH_OPTIMIZER_AS(NpuOptimizer, "NpuOptimizer");

}  // namespace hccl::tf
