// The engine that runs any schedule over any transport. It cuts the data into slices and runs them
// on concurrent lanes. It exchanges envelopes before data, and handles deadlines and aborts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "hccl/base/call.h"
#include "hccl/base/waiter.h"
#include "hccl/exec/activity.h"
#include "hccl/exec/rank_schedule.h"
#include "hccl/exec/transfer.h"
#include "hccl/schedule/algorithm.h"
#include "transport/transport.h"

namespace hccl::exec {

class DirectV;
class Lane;

/// Belongs to one communicator and is used by one thread at a time. The first operation of a kind
/// allocates staging memory, at most `staging_bytes`, for the slots of schedules and for received
/// messages that wait to be folded. The executor keeps this memory.
class Executor {
 public:
  /// `order` is as for make_rank_schedule() and must be the same on all ranks.
  Executor(transport::Mesh& mesh, std::size_t staging_bytes, std::vector<int> order);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs a collective to its end. kPara: the ranks' calls differ; kRemote: a rank died; kTimeout.
  /// A failure aborts the mesh, so that no request uses the buffers any more. After that no further
  /// run is possible.
  Status run(const Call& call, const schedule::Choice& choice, std::uint64_t sequence,
             const Waiter& waiter);

  /// As run(), for an operation whose blocks differ in length. No schedules exist for such
  /// operations.
  Status run_blocks(const Call& call, std::uint64_t sequence, const Waiter& waiter);

  /// Runs sends and receives concurrently. A mismatch is an error on both sides. A send ends only
  /// after its receiver has joined. pair_self() must have succeeded.
  Status exchange(std::span<const Transfer> transfers, const Waiter& waiter);
  /// Returns the transfers of a running exchange whose peer has not joined.
  std::vector<const Transfer*> late_transfers() const { return batch_.late_transfers(); }

 private:
  Status run_agreement(std::uint32_t lane, const Envelope& mine, const Waiter& waiter);
  /// Advances the activities until all are done. `call` returns a description of the call for
  /// reports.
  Status drive(std::span<Activity* const> activities, const std::function<WaitingCall()>& call,
               const Waiter& waiter);
  Status drive_lanes(std::size_t lanes, const Envelope& mine, const Waiter& waiter);
  const schedule::Schedule& barrier_steps();
  const RankSchedule& schedule_for(const schedule::Algorithm& algorithm, int root, int depth,
                                   int hosts = 1);
  Status run_lanes(const Call& call, const schedule::Choice& choice, std::uint64_t sequence,
                   const Waiter& waiter);
  Status end(Status status);
  std::byte* scratch(std::size_t bytes);

  transport::Mesh& mesh_;
  std::size_t staging_bytes_;
  std::vector<int> order_;
  std::map<std::tuple<const void*, int, int, int>, RankSchedule> schedules_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<Activity*>
      active_;  // the activities of the current run; a member so that its memory is kept
  std::unique_ptr<DirectV> direct_;
  Batch batch_;
  std::unique_ptr<std::byte[]> scratch_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace hccl::exec
