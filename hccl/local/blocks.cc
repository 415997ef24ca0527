#include "hccl/local/blocks.h"

namespace hccl::local {

Block Blocks::in_of(int giver) const {
  // The ranks of an allgatherv may give blocks of different lengths, each at the start of the
  // rank's input.
  if (call_.op == Op::kAllGatherV) return {0, out(giver).count};
  return in(rank_);
}

std::uint64_t Blocks::input() const {
  if (call_.op == Op::kBarrier) return 0;
  if (!traits_.block_for_each) return call_.count;
  if (call_.in_blocks.empty()) return call_.count * static_cast<std::uint64_t>(size_);
  std::uint64_t sum = 0;
  for (const Block& block : call_.in_blocks) sum += block.count;
  return sum;
}

std::uint64_t Blocks::input_extent() const {
  std::uint64_t end = 0;
  for (int to = 0; to < (traits_.block_for_each ? size_ : 1); ++to) {
    end = std::max(end, in(to).at + in(to).count);
  }
  return end;
}

std::uint64_t Blocks::output_extent() const {
  std::uint64_t end = 0;
  for (int from = 0; from < size_; ++from) end = std::max(end, out(from).at + out(from).count);
  return end;
}

std::uint64_t Blocks::longest() const {
  std::uint64_t longest = call_.count;
  for (const Block& block : call_.in_blocks) longest = std::max(longest, block.count);
  for (const Block& block : call_.out_blocks) longest = std::max(longest, block.count);
  return longest;
}

}  // namespace hccl::local
