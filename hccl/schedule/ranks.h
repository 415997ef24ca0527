// Rank arithmetic that several patterns share: small pure functions without buffers or messages.
#pragma once

#include <bit>
#include <vector>

namespace hccl::schedule {

/// `rank` modulo size, in 0..size-1, for any integer.
int wrap(int rank, int size);
/// Whether `number` is a power of two (number >= 0).
inline bool is_power_of_two(int number) {
  return std::has_single_bit(static_cast<unsigned>(number));
}
/// The largest power of two that is at most `number` (number >= 1).
inline int floor_power_of_two(int number) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(number)));
}
/// Number of doublings that lead from 1 to `number` or beyond (number >= 1).
inline int ceil_log2(int number) { return std::bit_width(static_cast<unsigned>(number - 1)); }

/// A run of consecutive numbers: `first`, …, `first + count - 1`.
struct Stretch {
  int first = 0;
  int count = 0;
};
/// Returns, as runs, the `count` numbers from wrap(first) on (count <= size). After size - 1 the
/// numbers continue at 0, in a second run. A count of 0 gives no run.
std::vector<Stretch> arc(int first, int count, int size);

/// The role of a rank in halving-doubling over `core = 2^k` working ranks. The first 2 * (size -
/// core) ranks form pairs: the even rank works for both, the odd rank (`idle`) waits for the
/// result.
struct CorePlace {
  int core = 1;  ///< number of working ranks
  /// Number of this rank among the working ranks; an idle rank has the number of its partner.
  int index = 0;
  bool idle = false;  ///< sends its vector to `partner` and receives the result
  int partner = -1;   ///< the other rank of the pair, or -1
};
CorePlace core_place(int rank, int size);
/// The rank that is number `index` among the working ranks.
int core_rank(int index, int size);

/// A node of one of the two trees of the double binary tree. Tree 0 is the in-order binary tree
/// over positions 1..size in which odd positions are leaves; rank r takes position r + 1. Tree 1 is
/// the same tree with all ranks shifted by one. So a rank is an inner node in at most one of the
/// trees.
struct TreeNode {
  int parent = -1;  ///< rank, or -1 at the root
  int left = -1;    ///< rank of the child on the side of lower positions, or -1
  int right = -1;   ///< rank of the child on the side of higher positions, or -1
  int level = 0;    ///< links between this node and the root
};
TreeNode tree_node(int rank, int tree, int size);
/// Links from the root to the deepest node; the same for both trees.
int tree_height(int size);

}  // namespace hccl::schedule
