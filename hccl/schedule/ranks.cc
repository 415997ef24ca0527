#include "hccl/schedule/ranks.h"

#include <algorithm>

namespace hccl::schedule {
namespace {

// Positions 1, 2, 3, … of the in-order tree. The lowest set bit of a position gives the height of
// its node: 1, 3, 5, … are leaves, 2, 6, 10, … their parents, and so on. A position beyond `size`
// does not exist. Its right subtree does not exist either, so its only child takes its place.
int lowest_bit(int position) { return position & -position; }

int parent_position(int position, int size) {
  const int top = floor_power_of_two(size);
  if (position == top) return 0;
  do {
    const int bit = lowest_bit(position);
    position = (position - bit) | (2 * bit);
  } while (position > size);
  return position;
}

int left_position(int position) {
  const int bit = lowest_bit(position);
  return bit == 1 ? 0 : position - bit / 2;
}

int right_position(int position, int size) {
  for (int bit = lowest_bit(position) / 2; bit > 0; bit /= 2) {
    if (position + bit <= size) return position + bit;
  }
  return 0;
}

int level_of(int position, int size) {
  int level = 0;
  while ((position = parent_position(position, size)) != 0) ++level;
  return level;
}

}  // namespace

int wrap(int rank, int size) {
  const int rest = rank % size;
  return rest < 0 ? rest + size : rest;
}

std::vector<Stretch> arc(int first, int count, int size) {
  std::vector<Stretch> runs;
  const int start = wrap(first, size);
  const int before_wrap = std::min(count, size - start);
  if (before_wrap > 0) runs.push_back({start, before_wrap});
  if (count > before_wrap) runs.push_back({0, count - before_wrap});
  return runs;
}

CorePlace core_place(int rank, int size) {
  CorePlace place;
  place.core = floor_power_of_two(size);
  const int extras = size - place.core;
  if (rank >= 2 * extras) {
    place.index = rank - extras;
    return place;
  }
  place.index = rank / 2;
  place.idle = rank % 2 == 1;
  place.partner = place.idle ? rank - 1 : rank + 1;
  return place;
}

int core_rank(int index, int size) {
  const int extras = size - floor_power_of_two(size);
  return index < extras ? 2 * index : index + extras;
}

TreeNode tree_node(int rank, int tree, int size) {
  const int position = wrap(rank + tree, size) + 1;
  const auto rank_at = [&](int other) { return other == 0 ? -1 : wrap(other - 1 - tree, size); };
  return {.parent = rank_at(parent_position(position, size)),
          .left = rank_at(left_position(position)),
          .right = rank_at(right_position(position, size)),
          .level = level_of(position, size)};
}

int tree_height(int size) {
  int height = 0;
  for (int position = 1; position <= size; ++position) {
    height = std::max(height, level_of(position, size));
  }
  return height;
}

}  // namespace hccl::schedule
