// Double binary tree: each of two trees over the same ranks carries half of the chunks. Chunks are
// summed on the way up to the root; then the sums go down. A rank is an inner node in at most one
// tree, so the work is spread evenly. Chunks follow each other: at every tick a link carries one
// chunk up and another one down.
//
// With H = height of the tree, a node at `level` (root: 0) handles chunk k of its tree at these
// ticks:
//   k + H - level - 1   receives its children's sums      k + H + level - 1   receives the result
//   k + H - level       sends its own sum to its parent   k + H + level       sends the result
// Sender and receiver of a message compute the same tick. A rank without work at a tick has no step
// for that tick.
#include <array>
#include <initializer_list>

#include "hccl/schedule/builders.h"
#include "hccl/schedule/pieces.h"
#include "hccl/schedule/ranks.h"

namespace hccl::schedule {
namespace {

struct Tree {
  TreeNode node;
  int height = 0;
  int first_chunk = 0;
  int depth = 1;

  bool leaf() const { return node.left < 0 && node.right < 0; }
  bool root() const { return node.parent < 0; }
  // The chunk that is due at `tick` if chunk 0 of the tree is due at tick `delay`; -1 if none is.
  int chunk_at(int tick, int delay) const {
    const int k = tick - delay;
    return k >= 0 && k < depth ? first_chunk + k : -1;
  }
};

// Folds left child, own input and right child: this is the rising order of their positions. The
// sums of two children wait in slots so that all three inputs are folded, and rounded, once.
void take_from_children(const Tree& tree, int chunk, Step& step) {
  const int left = tree.node.left, right = tree.node.right;
  if (left < 0 || right < 0) {
    step.recvs.push_back(recv_fold(left < 0 ? right : left, out(chunk), in(chunk)));
    return;
  }
  step.recvs.push_back(recv(left, scratch(0, chunk)));
  step.recvs.push_back(recv(right, scratch(1, chunk)));
  step.folds.push_back({out(chunk), {scratch(0, chunk), in(chunk), scratch(1, chunk)}});
}

void add_tick(const Tree& tree, int tick, Step& step) {
  const int up = tree.height - tree.node.level, down = tree.height + tree.node.level;
  if (!tree.leaf()) {
    if (const int chunk = tree.chunk_at(tick, up - 1); chunk >= 0) {
      take_from_children(tree, chunk, step);
    }
    if (const int chunk = tree.chunk_at(tick, down); chunk >= 0) {
      for (const int child : {tree.node.left, tree.node.right}) {
        if (child >= 0) step.sends.push_back(send(child, out(chunk)));
      }
    }
  }
  if (!tree.root()) {
    if (const int chunk = tree.chunk_at(tick, up); chunk >= 0) {
      step.sends.push_back(send(tree.node.parent, tree.leaf() ? in(chunk) : out(chunk)));
    }
    if (const int chunk = tree.chunk_at(tick, down - 1); chunk >= 0) {
      step.recvs.push_back(recv(tree.node.parent, out(chunk)));
    }
  }
}

}  // namespace

Schedule allreduce_double_tree(const Shape& shape) {
  if (shape.size == 1) return copy_only();
  const int height = tree_height(shape.size), depth = shape.depth;
  const std::array<Tree, 2> trees = {
      Tree{tree_node(shape.rank, 0, shape.size), height, 0, depth},
      Tree{tree_node(shape.rank, 1, shape.size), height, depth, depth}};
  Schedule schedule = begin(2 * depth);
  for (const Tree& tree : trees) {
    if (tree.node.left >= 0 && tree.node.right >= 0) schedule.scratch_slots = 2;
  }
  for (int tick = 0; tick < depth + 2 * height - 1; ++tick) {
    Step step;
    for (const Tree& tree : trees) add_tick(tree, tick, step);
    if (!step.sends.empty() || !step.recvs.empty()) schedule.steps.push_back(std::move(step));
  }
  return schedule;
}

}  // namespace hccl::schedule
