// A communicator as one rank sees it: an ordered set of world ranks, a mesh between them, an engine
// that runs operations in issue order, and a failure state.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/base/log.h"
#include "hccl/base/work_queue.h"
#include "hccl/core/failure.h"
#include "hccl/core/flight_recorder.h"
#include "hccl/core/mailbox.h"
#include "hccl/core/opening.h"
#include "hccl/core/placement.h"
#include "hccl/core/run_settings.h"
#include "hccl/core/selection.h"
#include "hccl/core/suspicion.h"
#include "hccl/exec/executor.h"
#include "hccl/exec/local_engine.h"
#include "hccl/exec/two_level.h"
#include "hccl/join/world.h"

namespace hccl::core {

class Communicator {
 public:
  /// Makes the communicator of all ranks behind `control`. Collective. `heap`: this process's
  /// device heap, which the other ranks of its host can then reach; may be null. `siblings`: the
  /// process's.
  static Result<std::shared_ptr<Communicator>> world(std::shared_ptr<join::World> control,
                                                     std::string name, const Config& config,
                                                     Logger log,
                                                     std::shared_ptr<transport::Siblings> siblings,
                                                     std::shared_ptr<memory::Heap> heap = nullptr);
  /// Makes a communicator of some of this one's ranks, in the given order. Exactly these ranks call
  /// it, with the same arguments. `instance` distinguishes successive groups of one name. `config`:
  /// null means the config of this communicator; it must agree among the ranks. `patience`: how
  /// long to wait until all of the ranks have made the call; 0: config's connect_timeout. `idle`:
  /// the group takes no connections and no memory of the host before its first operation.
  /// `own_name`: other ranks may give another name, and `instance` distinguishes the groups of
  /// these ranks.
  Result<std::shared_ptr<Communicator>> group(std::string name, const std::vector<int>& ranks,
                                              std::uint64_t instance,
                                              const Config* config = nullptr,
                                              std::chrono::nanoseconds patience = {},
                                              bool idle = false, bool own_name = false) const;
  /// Makes a communicator of the ranks in `kept` (ranks of this communicator, in its order) that
  /// live and make this call with the same arguments. This communicator may have failed. It stays
  /// as it is, and may end before the new one, which keeps this rank in the world. `number`
  /// distinguishes the calls for this communicator. `config`: as in group(). The new communicator
  /// is idle, as in group().
  Result<std::shared_ptr<Communicator>> shrink(std::string name, const std::vector<int>& kept,
                                               std::uint64_t number, const Config* config) const;
  /// Whether this rank has lost the control tree, so that it can make no more groups.
  bool cut_off() const { return control_->is_lost(); }
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::string& name() const { return name_; }
  /// The id is the same on all ranks of the communicator, and different from every other
  /// communicator's.
  const Uuid& id() const { return id_; }
  /// Whether this is the communicator of all ranks that joined, not a group.
  bool is_world() const;
  /// Whether groups of this communicator's ranks can be made: it is the world, or shrink() made it.
  bool has_groups() const { return shrunk_ || is_world(); }
  /// World ranks, by rank of this communicator.
  const std::vector<int>& ranks() const { return ranks_; }
  /// Hosts of the ranks, numbered in order of appearance.
  const std::vector<int>& hosts() const { return placement_.hosts; }
  /// The name of the transport; "" before the communicator is open.
  std::string_view transport() const { return is_open() ? mesh_->name() : std::string_view(); }
  /// This process's device heap; may be null.
  const memory::Heap* heap() const { return heap_.get(); }
  const Config& config() const { return config_; }
  const Logger& log() const { return log_; }

  /// Runs a collective on the caller's thread, after all operations issued before. The caller has
  /// checked the arguments. Failures of peers and deadlines end the communicator.
  Status run(const Call& call);

  /// The queue that keeps operations in order. An operation on a stream takes its place in the
  /// queue when it is issued, and runs when its stream comes to it.
  WorkQueue& queue() { return queue_; }
  /// As run(call), at the reserved place.
  Status run(const Call& call, const WorkQueue::Ticket& place);

  /// Runs `before`, the call and, if the call succeeded, `after` on the communicator's worker
  /// thread, or, if `deferred`, inside wait().
  WorkQueue::Ticket submit(const Call& call, bool deferred, std::function<void()> before,
                           std::function<void()> after);

  /// Runs sends and receives together: those with one peer in one direction in their order, the
  /// others concurrently. exec::pair_self() must hold. Fills in the sequence numbers.
  Status exchange(std::span<exec::Transfer> transfers);
  /// As exchange(transfers), at the reserved place.
  Status exchange(std::span<exec::Transfer> transfers, const WorkQueue::Ticket& place);

  /// A call in place of the next collective was refused, before it took a number. Tells the other
  /// ranks if they wait for this rank. `text` has the function and the reason.
  void refused(const std::string& text);
  /// As refused(text), for messages, which have an order of their own. Tells each peer if it waits
  /// for the next message from, or to, this rank.
  void refused(std::vector<exec::Transfer> messages, const std::string& text);

  /// As refused(text), for a call that would have made a group of this world's ranks. Tells the
  /// ranks that wait for this rank in such a call.
  void refused_group(const std::string& text);

  /// Success in the state READY; in the state FAILED the reason. Never blocks.
  Status async_error() const { return failure_.reason(); }
  /// The settings that the program may change while the communicator is in use.
  RunSettings& settings() { return settings_; }
  const RunSettings& settings() const { return settings_; }

  /// Ends the communicator and its running operations on all ranks. Any thread.
  void abort(const std::string& reason);

  /// Messages with tags, independent of all operations.
  Mailbox& mailbox() { return *mailbox_; }
  /// The queue of submitted calls; the calls run the operations.
  const std::shared_ptr<WorkQueue>& requests() { return requests_; }

  /// Whether the communicator has everything that operations need. A group may get it with its
  /// first operation. Any thread.
  bool is_open() const { return open_.load(std::memory_order_acquire); }
  /// The possible algorithms of an operation, the chosen one, and predicted times; see Selection.
  /// May be called once the communicator is open.
  const Selection& selection() const { return selection_; }

  /// The program ends without leave(): tells the other ranks that this rank did not die.
  void end_of_program();
  /// Leaves in good order. In the world, waits a moment for the ranks of other processes to leave,
  /// too. Ranks that wait for this rank in an operation get an error that says so.
  void leave();

 private:
  Communicator(std::shared_ptr<join::World> control, std::string name, std::vector<int> ranks,
               int rank, const Uuid& id, const Config& config, Logger log,
               std::shared_ptr<memory::Heap> heap, std::shared_ptr<transport::Doors> doors,
               std::shared_ptr<transport::Siblings> siblings, const Selection* parent);

  Status meet(std::chrono::nanoseconds patience);
  void hear_of_messages();
  Status open(Deadline deadline, const std::function<void()>& waits = {});
  void end_opening(const Status& why);

  // ---- Running, on the thread whose turn it is in the queue ----
  Status open_for(const Envelope& call, bool all);
  /// `scaled`: the inputs have been multiplied by scale.before.
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

  // Constant after construction.
  const std::shared_ptr<join::World> control_;
  const std::string name_;
  const std::vector<int> ranks_;
  const int rank_;
  const Uuid id_;
  const Config config_;
  const Logger log_;
  const Placement placement_;
  const std::shared_ptr<memory::Heap> heap_;
  const std::shared_ptr<transport::Doors> doors_;  // of the world
  const std::shared_ptr<transport::Siblings> siblings_;

  bool shrunk_ = false;  // shrink() made it

  FlightRecorder recorder_;
  Failure failure_;
  RunSettings settings_;
  std::chrono::milliseconds local_timeout_;  // the timeout that local_ has now

  // Parts that run operations.
  std::atomic<bool> open_ = false;  // set by the thread that runs operations
  Opening opening_;
  std::unique_ptr<transport::Mesh> mesh_;
  std::unique_ptr<exec::Executor> executor_;
  std::unique_ptr<exec::LocalEngine> local_;   // may be null; see Opening
  std::unique_ptr<exec::TwoLevel> two_level_;  // null on one host, or without local_
  Selection selection_;

  // Numbers of operations so far.
  std::uint64_t sequence_ = 0;
  std::vector<std::uint64_t> sends_;  // point to point, by peer
  std::vector<std::uint64_t> recvs_;

  Suspicion suspicion_;  // about the operation that waits

  std::vector<std::byte> products_;  // scaled inputs; kept for the next operation

  std::shared_ptr<Mailbox> mailbox_;
  const std::shared_ptr<WorkQueue> requests_ =
      std::make_shared<WorkQueue>("hccl-requests", bound_of_requests());

  WorkQueue queue_{"hccl-operations", bound()};  // last: its thread ends first
};

}  // namespace hccl::core
