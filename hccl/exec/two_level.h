// Allreduce over several hosts with the same number of ranks on each. The vector is cut into
// slices, and every slice into one part for each local rank. For each slice, the ranks of a host
// sum their parts by load and store (hccl/local). The ranks with the same local rank on all hosts
// then run an allreduce of their part over the transport. At the end the ranks of a host exchange
// their parts. While the parts of some slices travel, the next slice is summed, so communication
// between hosts does not wait for work inside hosts.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hccl/base/call.h"
#include "hccl/base/waiter.h"
#include "hccl/exec/lane.h"
#include "hccl/exec/local_engine.h"
#include "hccl/exec/rank_schedule.h"
#include "hccl/schedule/algorithm.h"
#include "hccl/select/message_costs.h"
#include "transport/transport.h"

namespace hccl::exec {

/// Belongs to one communicator and is used by one thread at a time. The first run allocates memory
/// for the parts that travel between hosts; later runs use this memory again.
class TwoLevel {
 public:
  /// Ranks must be numbered host by host. `local` connects the ranks of this rank's host. `mesh`
  /// and `local` must outlive this object.
  TwoLevel(transport::Mesh& mesh, LocalEngine& local, int hosts);

  /// Runs an allreduce to its end. kPara: the ranks' calls differ; kRemote: a rank died; kTimeout:
  /// the time limit is over. A failure aborts the mesh: no further run is possible.
  Status run(const Call& call, std::uint64_t sequence, const Waiter& waiter);

  /// Sets the costs, measured among all ranks of the communicator, that choose the schedule between
  /// hosts in later runs. Without costs, fixed rules choose. All ranks must set the same costs
  /// between the same runs.
  void set_costs(std::optional<select::MessageCosts> costs);
  /// The last schedule that ran between hosts, and the reason for it; null before the first run.
  const schedule::Choice* between() const {
    return chosen_ == nullptr ? nullptr : &chosen_->choice;
  }

 private:
  /// The most slices whose parts travel at once.
  static constexpr std::size_t kLanes = 3;

  /// The number of remembered choices, one for each length of parts, so that operations that
  /// alternate need no new choice.
  static constexpr std::size_t kRemembered = 8;

  struct Part {
    std::uint64_t slice_at;     // first element of the slice in the vector
    std::vector<Block> blocks;  // one for each local rank, from the start of the slice
  };
  struct Chosen {
    std::size_t part_bytes = 0;
    bool round_once = false;
    schedule::Choice choice;
    // The peers in `plan` are ranks of the communicator. Null before the first choice.
    const RankSchedule* plan = nullptr;
  };

  Status run_slices(const Call& call, std::uint64_t sequence, const Waiter& waiter);
  void cut(const Call& call);
  const Chosen& choose(std::size_t part_bytes, bool round_once);
  const RankSchedule& plan_for(const schedule::Choice& choice);
  Status sum_on_host(const Call& call, const Part& part, const Envelope& mine);
  Status spread_on_host(const Call& call, const Part& part, const Envelope& mine);
  Status progress();
  Status advance();
  Status await_lane(std::size_t lane, const Envelope& mine, const Waiter& waiter);

  transport::Mesh& mesh_;
  LocalEngine& local_;
  int hosts_;
  int places_;
  int host_;
  int place_;
  std::vector<Part> parts_;
  std::size_t slices_ = 0;     // number of elements of parts_ in use
  std::uint64_t longest_ = 0;  // longest part, in elements
  std::optional<select::MessageCosts> costs_;
  // By algorithm and depth.
  std::map<std::pair<const schedule::Algorithm*, int>, RankSchedule> plans_;
  std::array<Chosen, kRemembered> remembered_;
  const Chosen* chosen_ = nullptr;  // the choice of the last run
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<std::byte[]> scratch_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace hccl::exec
