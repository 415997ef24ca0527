// All process-wide state of the library: configuration, worlds, handles, groups. The rooms that
// this room uses have no such state. Every member is safe to use from any thread.
//
// A forked child makes a new state and does not touch its parent's state, because another thread of
// the parent may have held a lock of the parent's state at the fork.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "hccl/api/callbacks.h"
#include "hccl/api/groups.h"
#include "hccl/api/guard.h"
#include "hccl/api/handles.h"
#include "hccl/api/registered_memory.h"
#include "hccl/base/config.h"
#include "hccl/base/fd.h"
#include "hccl/base/log.h"
#include "hccl/base/mutex.h"
#include "hccl/core/communicator.h"
#include "hccl/join/worlds.h"
#include "transport/siblings.h"

namespace hccl::api {

struct Fusion;  // fusion.cc

/// The worlds of HcclCommInitClusterInfo: one at a time for each rank of a rank table.
class ClusterWorlds {
 public:
  using Rank = std::pair<std::string, std::uint32_t>;  // the table's path, rank_id
  /// Reserves the rank for joining. record() ends the reservation. kUnavail: this rank has joined
  /// its world or is joining it.
  Status reserve(const Rank& rank);
  /// Records and returns the result.
  Result<CommunicatorPtr> record(const Rank& rank, Result<CommunicatorPtr> made);

 private:
  Mutex mutex_;
  std::map<Rank, std::weak_ptr<core::Communicator>> worlds_ HCCL_GUARDED_BY(mutex_);
  std::set<Rank> joining_ HCCL_GUARDED_BY(mutex_);
};

class State {
 public:
  /// Never destroyed: when the program ends, threads may be inside calls, and the program's own
  /// destructors and exit handlers may make calls.
  static State& get();
  /// Tells the other ranks of all remaining communicators that the program ends.
  static void say_end();

  /// Returns the configuration: the environment, which the first call reads, and the value of
  /// set_deterministic().
  Result<Config> config();
  /// Sets the value for future and living communicators. Has no effect if the environment sets a
  /// value.
  Status set_deterministic(Deterministic value);
  /// The logger for messages outside of any communicator.
  Logger log();
  Communicators& communicators() { return communicators_; }
  Handles<Fusion>& fusions() { return fusions_; }
  Handles<Request>& requests() { return requests_; }
  Groups& groups() { return groups_; }
  ClusterWorlds& cluster_worlds() { return cluster_worlds_; }
  RegisteredMemory& memory() { return memory_; }
  StateCallbacks& callbacks() { return callbacks_; }

  /// Used for joining. If the program has closed some of the descriptors 0 to 2, first opens
  /// /dev/null in their place, and leaves it open.
  join::Worlds& worlds() {
    fill_standard_descriptors();
    return worlds_;
  }
  /// Makes the communicator of a world that this process has joined.
  Result<CommunicatorPtr> open(join::Worlds::Joined joined, const Config& config,
                               const std::string& name);

 private:
  explicit State(const State* parent);
  static State& make();
  // The handlers of pthread_atfork: before the fork, after the fork in the parent, and after the
  // fork in the child.
  static void before_fork();
  static void after_fork();
  static void in_child();
  [[maybe_unused]] static const int handlers_;
  Status read_environment() HCCL_REQUIRES(mutex_);

  Mutex mutex_{LockLevel::kState};
  std::optional<Config> config_ HCCL_GUARDED_BY(mutex_);
  Logger log_ HCCL_GUARDED_BY(mutex_);
  join::Worlds worlds_;
  Communicators communicators_;
  Handles<Fusion> fusions_{"fusion", 2};
  Handles<Request> requests_{"request", 3};
  Groups groups_{communicators_};
  ClusterWorlds cluster_worlds_;
  RegisteredMemory memory_;
  StateCallbacks callbacks_;
  const std::shared_ptr<transport::Siblings> siblings_ = std::make_shared<transport::Siblings>();
};

/// As guard(), but first finds the object of a handle in a table of State, and passes the object to
/// body().
template <class Table, class Body>
HcclResult on_object(const char* function, Table& (State::*table)(), const void* handle,
                     Body&& body) noexcept {
  return guard(function, [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const auto found, (State::get().*table)().get(handle));
    return body(*found);
  });
}
template <class Body>
HcclResult on_comm(const char* function, HcclComm comm, Body&& body) noexcept {
  return on_object(function, &State::communicators, comm, std::forward<Body>(body));
}

}  // namespace hccl::api
