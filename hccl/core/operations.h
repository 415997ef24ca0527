// Runs the operations of a communicator in their order: inside a host, over several hosts, or as
// messages.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/work_queue.h"
#include "hccl/core/failure.h"
#include "hccl/core/membership.h"
#include "hccl/core/opener.h"
#include "hccl/core/opening.h"
#include "hccl/core/run_settings.h"
#include "hccl/core/selection.h"
#include "hccl/core/suspicion.h"
#include "hccl/exec/executor.h"
#include "hccl/exec/local_engine.h"
#include "hccl/exec/two_level.h"

namespace hccl::core {

class Operations {
 public:
  /// All arguments except `parent` must outlive the object. `parent`: as for Selection.
  Operations(const Membership& is, const RunSettings& settings, Opening& opening, Failure& failure,
             const Selection* parent);

  /// Opens the meshes and engines, together with all other ranks. Those of a group open with the
  /// first operation of any rank, unless a plugin connects the ranks.
  Status open(Deadline deadline);
  /// Another rank has begun its first operation and needs this rank to open connections. Opens them
  /// on a thread of their own. Does not block, and throws nothing.
  void open_aside();
  /// From now on nothing opens. Waits up to `patience` for an opening that has begun. Returns the
  /// state before, as Opener::close().
  Opener::State end_opening(std::chrono::nanoseconds patience) { return opener_.close(patience); }
  /// Returns whether the meshes and engines of all ranks are open. Any thread may call.
  bool is_open() const { return opener_.state() == Opener::State::kOpen; }
  /// The choices of algorithms, and predicted times. See Selection. Valid once the communicator is
  /// open.
  Selection& selection() { return selection_; }
  const Selection& selection() const { return selection_; }
  /// The name of the transport; "" before the communicator is open.
  std::string_view transport() const { return is_open() ? mesh_->name() : std::string_view(); }

  /// Runs a collective on the caller's thread, after all operations issued before. The caller has
  /// checked the arguments. Failures of peers and deadlines end the communicator.
  Status run(const Call& call);

  /// The queue that keeps operations in order. An operation on a stream takes its place in the
  /// queue when the operation is issued, and runs when the stream reaches the operation.
  WorkQueue& queue() { return queue_; }
  /// As run(call), at the reserved place.
  Status run(const Call& call, const WorkQueue::Ticket& place);

  /// Runs `before`, then the call, then, if the call succeeded, `after`. They run on the
  /// communicator's worker thread or, if `deferred`, inside wait().
  WorkQueue::Ticket submit(const Call& call, bool deferred, std::function<void()> before,
                           std::function<void()> after);

  /// Runs sends and receives together. Those with the same peer and direction run in order, all
  /// others concurrently. exec::pair_self() must hold. Fills in the sequence numbers of the
  /// transfers.
  Status exchange(std::span<exec::Transfer> transfers);
  /// As exchange(transfers), at the reserved place.
  Status exchange(std::span<exec::Transfer> transfers, const WorkQueue::Ticket& place);

  /// Reports to the other ranks, if they wait for this rank, that this rank's call was refused. The
  /// call would have been the next collective; it took no number. `text` has the function and the
  /// reason.
  void refused(const std::string& text);
  /// As refused(text), for sends and receives, which have a separate order. Reports to each peer
  /// that waits for the next message from or to this rank.
  void refused(std::vector<exec::Transfer> messages, const std::string& text);

  /// The queue of the calls of HcclSubmit, which in turn run operations.
  const std::shared_ptr<WorkQueue>& requests() { return requests_; }

  /// Ends the running operation and all later operations with this reason.
  void abort(Status why) {
    const auto state = opener_.state();
    if (state == Opener::State::kOpen || state == Opener::State::kPartly)
      mesh_->abort(std::move(why));
  }

 private:
  // ---- Opening, on one thread ----
  Status open(Deadline deadline, bool summons);
  Opener::State open_group();

  // ---- Running, on the thread whose turn it is in the queue ----
  Status open_for(const Envelope& call);
  Status open_for_all(const Envelope& call);
  /// `scaled` is true if the inputs have already been multiplied by scale.before.
  Status execute(const Call& call, bool scaled = false);
  Status execute_scaled(Call call);
  Status execute_remotely(const Call& call, std::uint64_t sequence, bool strict);
  Status run_transfers(std::span<exec::Transfer> transfers);
  void stalled_in(const exec::Transfer& message, const std::string& call);
  Uuid scope_of(const exec::Transfer& message, bool receiver_waits) const;
  Status refused_suspended() const;
  Status refused_inside() const;
  WorkQueue::Bound bound();
  WorkQueue::Bound bound_of_requests();
  void in_order(std::function<void()> tell);
  Waiter limits(bool background);
  void stalled(const WaitingCall& pending);

  const Membership& is_;
  const RunSettings& settings_;
  Opening& opening_;
  Failure& failure_;
  FlightRecorder& recorder_;
  std::chrono::milliseconds local_timeout_;  // the timeout that local_ uses now

  // Parts that run operations.
  std::map<int, Status> absent_;  // ranks that have left before the group opened, and how
  std::unique_ptr<transport::Mesh> mesh_;
  std::unique_ptr<exec::Executor> executor_;
  std::unique_ptr<exec::LocalEngine> local_;   // may be null; see Opening
  std::unique_ptr<exec::TwoLevel> two_level_;  // null on one host, or if local_ is null
  Selection selection_;

  // Numbers of operations so far.
  std::uint64_t sequence_ = 0;
  std::vector<std::uint64_t> sends_;  // point to point, by peer
  std::vector<std::uint64_t> recvs_;

  Suspicion suspicion_;  // reports the operation that waits

  std::vector<std::byte> products_;  // scaled inputs; kept for the next operation

  const std::shared_ptr<WorkQueue> requests_ =
      std::make_shared<WorkQueue>("hccl-requests", bound_of_requests());

  // Declared last, so that their threads end first. The opening thread owns the parts above until
  // the state is kOpen or kPartly.
  Opener opener_;
  WorkQueue queue_{"hccl-operations", bound()};
};

}  // namespace hccl::core
