// A communicator as one rank sees it: an ordered set of world ranks, a mesh between them, an
// engine, and the state READY -> FAILED (for good; the first reason wins).
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/base/log.h"
#include "hccl/core/flight_recorder.h"
#include "hccl/core/op_queue.h"
#include "hccl/core/tuner.h"
#include "hccl/exec/executor.h"
#include "hccl/exec/local_engine.h"
#include "hccl/exec/two_level.h"
#include "hccl/join/control_line.h"

namespace hccl::core {

class Communicator final : public join::FailureListener {
 public:
  /// The communicator of all ranks behind `control`. Collective. `heap`: this process's device
  /// heap, which the ranks of its host then reach; may be null.
  static Result<std::shared_ptr<Communicator>> world(std::shared_ptr<join::ControlLine> control,
                                                     std::string name, const Config& config,
                                                     Logger log,
                                                     std::shared_ptr<memory::Heap> heap = nullptr);
  /// A communicator of some of this one's ranks, in the given order. Called by each of them, and by
  /// no other, with the same arguments; `instance` tells apart groups of one name over time.
  Result<std::shared_ptr<Communicator>> group(std::string name, const std::vector<int>& ranks,
                                              std::uint64_t instance) const {
    return group(std::move(name), ranks, instance, config_);
  }
  /// With a configuration of its own, which must agree among its ranks.
  Result<std::shared_ptr<Communicator>> group(std::string name, const std::vector<int>& ranks,
                                              std::uint64_t instance, const Config& config) const;
  ~Communicator() override;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::string& name() const { return name_; }
  /// The same on all its ranks, and no other communicator's.
  const Uuid& id() const { return id_; }
  /// Of all ranks that joined, and not a group of them.
  bool is_world() const;
  /// World ranks, by rank of this communicator.
  const std::vector<int>& ranks() const { return ranks_; }
  /// Hosts of the ranks, numbered in order of appearance.
  const std::vector<int>& hosts() const { return hosts_; }
  std::string_view transport() const { return mesh_->name(); }
  const Config& config() const { return config_; }
  const Logger& log() const { return log_; }

  /// Runs a collective on the caller's thread, after everything issued before. Arguments are
  /// checked by the caller. Failures of peers or deadlines end the communicator.
  Status run(const Call& call);

  // For streams: an operation takes its place in the communicator's order when it is issued, and
  // runs when its stream comes to it.
  OpQueue::Ticket reserve() { return queue_.reserve(); }
  /// As run(call), at the place reserved.
  Status run(const Call& call, const OpQueue::Ticket& place);
  /// Gives up a place that nobody will run at.
  void cancel(const OpQueue::Ticket& place) { queue_.cancel(place); }

  /// Runs it on the communicator's worker thread (or, if `deferred`, inside wait()), with `before`
  /// and, if it succeeded, `after` around it on the same thread.
  OpQueue::Ticket submit(const Call& call, bool deferred, std::function<void()> before,
                         std::function<void()> after);
  Status wait(const OpQueue::Ticket& ticket) { return queue_.wait(ticket); }
  bool done(const OpQueue::Ticket& ticket) const { return queue_.done(ticket); }

  Status send(int peer, const void* data, std::uint64_t count, DataType type);
  Status recv(int peer, void* data, std::uint64_t count, DataType type);
  /// Sends and receives that run together: those with one peer in one direction in their order, the
  /// others side by side. exec::pair_self() must hold. Sequence numbers are filled in.
  Status exchange(std::span<exec::Transfer> transfers);
  /// The same at the place reserved.
  Status exchange(std::span<exec::Transfer> transfers, const OpQueue::Ticket& place);

  /// Success while READY, else why it FAILED. Never blocks.
  Status async_error() const { return failed_.reason(); }
  bool busy() const { return queue_.busy(); }

  /// Until resume(), operations that have not begun are refused with kSuspending. They take no
  /// number, so that they can be repeated. Any thread.
  void suspend() { suspended_.store(true); }
  void resume() { suspended_.store(false); }
  bool suspended() const { return suspended_.load(std::memory_order_relaxed); }

  /// Of the operations that begin from now on; at first config().deterministic. Any thread; all
  /// ranks set the same between the same operations.
  void set_deterministic(Deterministic value) { deterministic_.store(value); }
  Deterministic deterministic() const { return deterministic_.load(std::memory_order_relaxed); }

  /// The algorithm that the last collective of this kind took; "" before the first.
  std::string algorithm(Op op) const;

  /// Leaves in good order: the world waits a moment for the ranks of other processes to leave too.
  void leave();

  void on_failure(const Uuid& scope, const Status& why) override;

 private:
  static constexpr std::size_t kOps = static_cast<std::size_t>(Op::kAllToAllV) + 1;

  Communicator(std::shared_ptr<join::ControlLine> control, std::string name, std::vector<int> ranks,
               int rank, const Uuid& id, const Config& config, Logger log,
               std::shared_ptr<memory::Heap> heap);
  std::string short_id() const;  // for logs and files
  Status open(Deadline deadline);
  Status open_local(const transport::OpenArgs& args);
  Status tune(const transport::Exchange& exchange, Deadline deadline);
  Status execute(const Call& call);
  Status execute_on_host(const Call& call);
  Status failed_in(const Call& call, std::uint64_t sequence, Status status);
  Status run_transfers(std::span<exec::Transfer> transfers);
  Status fail(Status why);
  Status refused(const Envelope& call);
  Status refused_suspended() const;
  void record_end();
  void await_verdict(int suspect);
  Limits limits(std::uint64_t sequence, bool beside);
  void stalled(std::uint64_t sequence, const std::string& call, std::vector<int> awaited);
  const schedule::Choice& choose(const Call& call);
  void tell_way(const Call& call, std::string_view way);
  void tell_between(const Call& call);

  std::shared_ptr<join::ControlLine> control_;
  std::string name_;
  std::vector<int> ranks_;
  std::vector<int> hosts_;
  int even_hosts_;  // as schedule::Shape::hosts
  int rank_;
  Uuid id_;
  Config config_;
  Logger log_;
  WaitPolicy policy_;
  WaitPolicy beside_;                          // of the worker, while the caller computes
  std::vector<int> order_;                     // of ranks that share cores, as cores_in_turn
  std::vector<std::vector<int>> core_groups_;  // the same, as core_by_core
  AbortFlag failed_;
  std::atomic<bool> suspended_{false};
  std::atomic<Deterministic> deterministic_;
  Bell verdict_;  // rung when failed_ is raised by the control thread
  FlightRecorder recorder_;
  bool recorded_ = false;  // written at the failure; used by whoever runs the queue
  std::unique_ptr<transport::Mesh> mesh_;
  std::atomic<transport::Mesh*> open_mesh_{nullptr};  // mesh_, for the control thread
  std::unique_ptr<exec::Executor> executor_;
  std::shared_ptr<memory::Heap> heap_;
  std::shared_ptr<Tuner> tuner_;  // the world's; null before the world is open
  Tuner::Use tuned_;
  /// Between the ranks of this host; null where they do not share memory, or where there are
  /// several hosts and not all of them have one.
  std::unique_ptr<exec::LocalEngine> local_;
  std::unique_ptr<exec::TwoLevel> two_level_;  // with several hosts, where local_ is
  std::atomic<exec::LocalEngine*> open_local_{nullptr};  // the same, for the control thread
  std::array<bool, kOps> on_host_{};                   // which operations take local_ alone
  std::array<std::atomic<const char*>, kOps> ways_{};  // that they took last
  std::uint64_t sequence_ = 0;
  std::vector<std::uint64_t> sends_;  // point-to-point operations so far, by peer
  std::vector<std::uint64_t> recvs_;

  struct Chosen {
    std::uint64_t bytes = ~std::uint64_t{0};
    bool strict = false;
    schedule::Choice choice;
  };
  // A few sizes of each operation, so that those that take turns are not chosen for again.
  static constexpr std::size_t kRemembered = 8;
  std::array<std::array<Chosen, kRemembered>, kOps> chosen_;
  std::array<const schedule::Choice*, kOps> last_choice_{};
  // What HCCL_LOG=info was told last of each operation and power of two of bytes.
  std::array<std::array<std::uint32_t, 65>, kOps> told_{};
  std::array<std::uint32_t, 65> told_between_{};
  mutable std::mutex chosen_mutex_;
  OpQueue queue_;  // last: its thread ends first
};

}  // namespace hccl::core
