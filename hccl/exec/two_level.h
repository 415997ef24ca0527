// Allreduce over several hosts with equally many ranks each. The vector is cut in slices, and every
// slice in a part for each place on a host. Of each slice the ranks of a host sum their parts by
// load and store (hccl/local/), ranks of one place on all hosts run an allreduce of their part over
// the transport, and the ranks of a host then give each other their parts. While the parts of some
// slices travel, the next slice is summed: communication between hosts never waits for work inside
// hosts.
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
#include "hccl/exec/plan.h"
#include "hccl/schedule/algorithm.h"
#include "hccl/select/message_costs.h"
#include "transport/transport.h"

namespace hccl::exec {

/// Belongs to one communicator and is used by one thread at a time. Memory for the parts that
/// travel is allocated at the first run and kept.
class TwoLevel {
 public:
  /// Ranks are numbered host by host; `local` joins those of this rank's host. Both outlive it.
  TwoLevel(transport::Mesh& mesh, LocalEngine& local, int hosts);

  /// Runs an allreduce to its end. A failure aborts the mesh: it is the last run. kPara: the ranks
  /// disagree; kRemote: a rank died; kTimeout.
  Status run(const Call& call, std::uint64_t sequence, const Waiter& waiter);

  /// From now on these costs, measured among all ranks of the communicator, decide which schedule
  /// runs between hosts; without costs, fixed rules decide. The same on all ranks, between the same
  /// runs.
  void set_costs(std::optional<select::MessageCosts> costs);
  /// The last schedule between hosts, and the reason for it; null before the first run.
  const schedule::Choice* between() const {
    return chosen_ == nullptr ? nullptr : &chosen_->choice;
  }

 private:
  /// Slices whose parts may travel at once.
  static constexpr std::size_t kLanes = 3;

  /// A few lengths of parts, so that those that take turns are not chosen for again.
  static constexpr std::size_t kRemembered = 8;

  struct Part {
    std::uint64_t slice_at;     // elements; of the slice in the vector
    std::vector<Block> blocks;  // of all places, from the slice's start
  };
  struct Chosen {
    std::size_t part_bytes = 0;
    schedule::Choice choice;
    const Plan* plan = nullptr;  // with ranks of the communicator as peers; null: nothing chosen
  };

  Status run_slices(const Call& call, std::uint64_t sequence, const Waiter& waiter);
  void cut(const Call& call);
  const Chosen& choose(std::size_t part_bytes);
  const Plan& plan_for(const schedule::Choice& choice);
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
  std::size_t slices_ = 0;     // of parts_ in use
  std::uint64_t longest_ = 0;  // part, in elements
  std::optional<select::MessageCosts> costs_;
  std::map<std::pair<const schedule::Algorithm*, int>, Plan> plans_;  // by depth
  std::array<Chosen, kRemembered> remembered_;
  const Chosen* chosen_ = nullptr;  // for the last run
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<std::byte[]> scratch_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace hccl::exec
