// Continues after the loss of ranks: torch.distributed.shrink_group.
#include <algorithm>
#include <numeric>
#include <string>

#include "backend.h"

namespace hccl::pytorch {
namespace {

constexpr int kAbort = 1;  // torch.distributed.SHRINK_ABORT

using Ranks = std::vector<int64_t>;

bool has(const Ranks& ranks, int64_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

std::pair<c10::intrusive_ptr<ProcessGroupHccl>, Ranks> ProcessGroupHccl::shrink_to_living(
    const Ranks& excluded, int flags, const c10::intrusive_ptr<Options>& options) {
  fork_.check();
  const auto parent = current();
  const auto before = parent->world_ranks();
  if ((flags & kAbort) != 0) parent->abort("the process group shrinks (SHRINK_ABORT)");
  const auto smaller = std::make_shared<Communicator>(
      *parent, std::vector<uint32_t>(excluded.begin(), excluded.end()));
  shrunk_ = true;
  const auto after = smaller->world_ranks();
  auto own = c10::make_intrusive<Options>(options != nullptr ? *options : *options_);
  own->group_name = options_->group_name + ":shrunk";
  own->global_ranks_in_group.clear();
  Ranks ranks;
  int rank = 0;
  for (const uint32_t each : after) {
    const auto old = std::find(before.begin(), before.end(), each) - before.begin();
    if (old == rank_) rank = static_cast<int>(ranks.size());
    ranks.push_back(old);
    const auto& global = options_->global_ranks_in_group;
    if (!global.empty()) own->global_ranks_in_group.push_back(global.at(old));
  }
  const int size = static_cast<int>(after.size());
  return {c10::make_intrusive<ProcessGroupHccl>(smaller, store_, rank, size, own), ranks};
}

// Called by torch's own shrink_group, which numbers the new ranks itself. torch removes the numbers
// `excluded` from the global ranks, although `excluded` contains ranks of the group. If the result
// would be wrong, this function fails. _shrink.py has no such limits.
c10::intrusive_ptr<c10d::Backend> ProcessGroupHccl::shrink(
    const Ranks& excluded, int flags, const c10::intrusive_ptr<Options>& options) {
  const auto& global = options_->global_ranks_in_group;
  for (int rank = 0; rank < static_cast<int>(global.size()); ++rank) {
    TORCH_CHECK(has(excluded, rank) == has(excluded, static_cast<int64_t>(global[rank])),
                "hccl shrink_group: torch would take global ranks for ranks of the group: rank ",
                rank, " of the group is rank ", global[rank], " of the default group");
  }
  auto [smaller, ranks] = shrink_to_living(excluded, flags, options);
  std::string others;
  for (int rank = 0; rank < size_; ++rank) {
    if (!has(ranks, rank) && !has(excluded, rank)) others += " " + std::to_string(rank);
  }
  TORCH_CHECK_WITH(DistBackendError, others.empty(),
                   "hccl shrink_group: other ranks have died, too. Exclude them, too:", others);
  if (global.empty()) smaller->options_->global_ranks_in_group.assign(ranks.begin(), ranks.end());
  return smaller;
}

}  // namespace hccl::pytorch
