// TensorFlow calls the ops of a loop "a frame". Control inputs chain the collectives of a frame. A
// loop with collectives is one link in the chain of the frame around it.
//
// Branches: TensorFlow does not run ops that depend on an op of a branch that is not taken. So in a
// graph with branches, each link is followed by a ControlTrigger, an op that always runs.
//
// Loops: the chain becomes one more variable of the loop. It enters when the links before the loop
// are done, passes through the links of each iteration, and leaves after the last iteration.
// Without the variable, iterations, which TensorFlow may run at the same time, would have no order.
//
// There are no cycles. A collective comes after all links on which it depends, and a loop after all
// links on which one of its inputs depends. Every control input leads from an earlier to a later
// link.
#include "chain.h"

#include <tensorflow/core/framework/node_def.pb.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace hccl::tf {
namespace {

using ::tensorflow::GraphDef;
using ::tensorflow::NodeDef;

bool is(const NodeDef& node, std::string_view op) {
  return node.op() == op || (node.op().starts_with("Ref") && node.op().substr(3) == op);
}

std::string frame_name(const NodeDef& enter) { return enter.attr().at("frame_name").s(); }

/// Compares two names, and numbers in them by value: TensorFlow numbers the copies of a function.
bool before(std::string_view one, std::string_view other) {
  const auto digits = [](std::string_view text) {
    return std::min(text.find_first_not_of("0123456789"), text.size());
  };
  while (!one.empty() && !other.empty()) {
    const std::size_t mine = digits(one), theirs = digits(other);
    if (mine != theirs) return mine != 0 && theirs != 0 ? mine < theirs : one[0] < other[0];
    const std::size_t length = std::max<std::size_t>(mine, 1);
    const int order = one.substr(0, length).compare(other.substr(0, length));
    if (order != 0) return order < 0;
    one.remove_prefix(length);
    other.remove_prefix(length);
  }
  return one.size() < other.size();
}

/// A collective, or a loop with collectives.
struct Link {
  int collective;    // the collective, or the first collective of a loop
  std::string loop;  // the loop's name; empty for a collective
  enum { kNew, kBegun, kPlaced } state = kNew;
};

/// The ops of a loop, or all ops outside loops.
struct Frame {
  std::vector<int> enters;
  int condition = -1;
  std::deque<Link> links;
  Link* link = nullptr;  // the link of this loop in the frame around it
};

class Chain {
 public:
  explicit Chain(GraphDef* graph);
  void make(std::vector<int> collectives);

 private:
  using Links = std::vector<Link*>;

  NodeDef& node(int number) { return *graph_->mutable_node(number); }
  std::int64_t order_of(int collective) { return node(collective).attr().at(kOrder).i(); }
  std::string frame_of(int number);
  void add(int collective);
  Links in_order(const std::string& frame, std::size_t* in_condition);
  void place(const std::string& frame, Link& link, Links* placed);
  void place_inputs(const std::string& frame, std::vector<int> left, const Link* link,
                    Links* placed);
  void refuse(const Link& one, const Link& other);
  std::string join(Links::iterator begin, Links::iterator end, std::string last);
  std::string join_loop(const std::string& name, const std::string& last);
  NodeDef& made(const std::string& name, const char* op, const NodeDef& like,
                const std::vector<std::string>& inputs);

  GraphDef* graph_;
  std::vector<std::vector<int>> inputs_;  // of each op
  std::vector<bool> looked_at_;           // by op: all links on which it depends are placed
  std::map<std::string, Frame> frames_;   // by name; "" has the ops outside loops
  std::unordered_map<int, Link*> links_;  // of collectives
  bool branches_ = false;
};

Chain::Chain(GraphDef* graph)
    : graph_(graph), inputs_(graph->node_size()), looked_at_(graph->node_size()) {
  std::unordered_map<std::string_view, int> numbers;
  for (int i = 0; i < graph->node_size(); ++i) numbers.emplace(graph->node(i).name(), i);
  for (int i = 0; i < graph->node_size(); ++i) {
    for (std::string_view input : graph->node(i).input()) {
      if (input.starts_with('^')) input.remove_prefix(1);
      const auto found = numbers.find(input.substr(0, input.find(':')));
      // Within an iteration no op depends on the iteration's end.
      if (found == numbers.end() || is(node(found->second), "NextIteration")) continue;
      inputs_[i].push_back(found->second);
    }
    if (is(node(i), "Enter")) frames_[frame_name(node(i))].enters.push_back(i);
  }
  for (int i = 0; i < graph->node_size(); ++i) {
    if (is(node(i), "LoopCond")) frames_[frame_of(i)].condition = i;
    const bool decides = is(node(i), "Switch") && inputs_[i].size() > 1;
    if (decides && !is(node(inputs_[i][1]), "LoopCond")) branches_ = true;
  }
}

/// Returns the name of the innermost loop that contains the op. Every op of a loop has an input
/// from that loop, except Enter, which begins the loop.
std::string Chain::frame_of(int number) {
  for (int left = 0;; number = inputs_[number][0]) {
    if (is(node(number), "Enter") && left-- == 0) return frame_name(node(number));
    if (is(node(number), "Exit")) ++left;
    if (inputs_[number].empty()) return "";
  }
}

void Chain::make(std::vector<int> collectives) {
  std::sort(collectives.begin(), collectives.end(), [this](int a, int b) {
    const std::int64_t one = order_of(a), other = order_of(b);
    return one != other ? one < other : before(node(a).name(), node(b).name());
  });
  for (int collective : collectives) add(collective);
  std::size_t none = 0;
  Links links = in_order("", &none);
  join(links.begin(), links.end(), "");
}

void Chain::add(int collective) {
  (*node(collective).mutable_attr())[kChained].set_b(true);
  std::string name = frame_of(collective);
  links_[collective] = &frames_[name].links.emplace_back(Link{collective, ""});
  while (!name.empty() && frames_[name].link == nullptr) {
    Frame& frame = frames_[name];
    const std::string around = frame_of(inputs_[frame.enters[0]][0]);
    frame.link = &frames_[around].links.emplace_back(Link{collective, name});
    name = around;
  }
}

/// Returns the links of a frame: first the links of a loop's condition, then the others. Each link
/// comes after all links on which it depends, and otherwise in the order of the program.
Chain::Links Chain::in_order(const std::string& name, std::size_t* in_condition) {
  Links placed;
  Frame& frame = frames_[name];
  if (frame.condition >= 0) place_inputs(name, {frame.condition}, nullptr, &placed);
  *in_condition = placed.size();
  for (Link& link : frame.links) place(name, link, &placed);
  return placed;
}

void Chain::place(const std::string& frame, Link& link, Links* placed) {
  if (link.state != Link::kNew) return;
  link.state = Link::kBegun;
  const bool loop = !link.loop.empty();
  place_inputs(frame, loop ? frames_[link.loop].enters : std::vector{link.collective}, &link,
               placed);
  link.state = Link::kPlaced;
  placed->push_back(&link);
}

/// Places all links on which the ops in `left` depend. These are the ops of `link`, or of the
/// loop's condition if `link` is null.
void Chain::place_inputs(const std::string& frame, std::vector<int> left, const Link* link,
                         Links* placed) {
  std::unordered_set<int> seen;
  Links found;
  while (!left.empty()) {
    const int number = left.back();
    left.pop_back();
    for (int input : inputs_[number]) {
      if (looked_at_[input] || !seen.insert(input).second) continue;
      const auto collective = links_.find(input);
      if (collective != links_.end()) {
        found.push_back(collective->second);
      } else if (is(node(input), "Exit")) {
        const Frame& loop = frames_[frame_of(inputs_[input][0])];
        if (loop.link != nullptr) found.push_back(loop.link);
        left.insert(left.end(), loop.enters.begin(), loop.enters.end());
      } else if (!is(node(input), "Enter") || frame_name(node(input)) != frame) {
        left.push_back(input);
      }
    }
  }
  std::sort(found.begin(), found.end(), [this](const Link* a, const Link* b) {
    return order_of(a->collective) < order_of(b->collective);
  });
  for (Link* each : found) {
    if (each->state == Link::kBegun && link != nullptr) refuse(*each, *link);
    place(frame, *each, placed);
  }
  for (int number : seen) looked_at_[number] = true;
}

/// Makes two collectives fail, because each of them, or its loop, needs a result of the other. This
/// does not happen in loops of tf.while_loop.
void Chain::refuse(const Link& one, const Link& other) {
  const std::string text = "hccl: \"" + node(one.collective).name() + "\" and \"" +
                           node(other.collective).name() +
                           "\" have no common order on all ranks: each one, or its loop, needs a "
                           "result of the other";
  for (const Link* each : {&one, &other}) {
    (*node(each->collective).mutable_attr())[kUnordered].set_s(text);
  }
}

/// Chains links after the op `last`, which may be empty. Returns the op at the end of the chain.
std::string Chain::join(Links::iterator begin, Links::iterator end, std::string last) {
  for (; begin != end; ++begin) {
    NodeDef& collective = node((*begin)->collective);
    if (!(*begin)->loop.empty()) {
      last = join_loop((*begin)->loop, last);
    } else {
      const auto& inputs = collective.input();
      const std::string after = "^" + last;
      const bool there = std::find(inputs.begin(), inputs.end(), after) != inputs.end();
      if (!last.empty() && !there) collective.add_input(after);
      last = collective.name();
    }
    if (!branches_) continue;
    const std::string after = "hccl_order/" + last + "/after";
    last = made(after, "ControlTrigger", collective, {"^" + last}).name();
  }
  return last;
}

std::string Chain::join_loop(const std::string& name, const std::string& last) {
  const Frame& frame = frames_[name];
  // The chain's variable copies the value of another input of the loop, so that both enter the
  // loop, or neither does, in a branch that is not taken. A counter is preferred, because its value
  // is small.
  const auto counter = std::find_if(frame.enters.begin(), frame.enters.end(), [this](int enter) {
    return node(enter).attr().at("T").type() == ::tensorflow::DT_INT32;
  });
  const NodeDef& like = node(counter == frame.enters.end() ? frame.enters[0] : *counter);
  const std::string own = "hccl_order/" + name + "/";
  NodeDef& before = made(own + "before", "Identity", like, {like.input(0)});
  if (!last.empty()) before.add_input("^" + last);
  NodeDef& enter = made(own + "Enter", "Enter", like, {before.name()});
  for (const char* attribute : {"frame_name", "parallel_iterations"}) {
    (*enter.mutable_attr())[attribute] = like.attr().at(attribute);
  }
  const std::string merge = own + "Merge", iteration = own + "iteration";
  NodeDef& merged = made(merge, "Merge", like, {enter.name(), own + "NextIteration"});
  (*merged.mutable_attr())["N"].set_i(2);

  std::size_t in_condition = 0;
  Links links = in_order(name, &in_condition);
  const auto body = links.begin() + static_cast<std::ptrdiff_t>(in_condition);
  const std::string decided = join(links.begin(), body, merge);
  NodeDef& ends = made(own + "Switch", "Switch", like, {merge, node(frame.condition).name()});
  ends.add_input("^" + decided);
  made(iteration, "Identity", like, {ends.name() + ":1"});
  const std::string end = join(body, links.end(), iteration);
  made(own + "NextIteration", "NextIteration", like, {iteration, "^" + end});
  return made(own + "Exit", "Exit", like, {ends.name()}).name();
}

NodeDef& Chain::made(const std::string& name, const char* op, const NodeDef& like,
                     const std::vector<std::string>& inputs) {
  NodeDef& node = *graph_->add_node();
  node.set_name(name);
  node.set_op(op);
  node.set_device(like.device());
  for (const std::string& input : inputs) node.add_input(input);
  if (node.op() != "ControlTrigger") (*node.mutable_attr())["T"] = like.attr().at("T");
  return node;
}

}  // namespace

void chain(GraphDef* graph) {
  std::vector<int> collectives;
  for (int i = 0; i < graph->node_size(); ++i) {
    if (graph->node(i).attr().contains(kChained)) return;  // optimized more than once
    if (graph->node(i).attr().contains(kOrder)) collectives.push_back(i);
  }
  if (!collectives.empty()) Chain(graph).make(std::move(collectives));
}

}  // namespace hccl::tf
