// A world as one of its ranks sees it: the list of ranks, the gatherings, and which ranks have
// failed, left or died. The process is a node of the world's control tree.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/base/doorbell.h"
#include "hccl/base/log.h"
#include "hccl/base/mutex.h"
#include "hccl/base/recent.h"
#include "hccl/base/waiter.h"
#include "hccl/join/host.h"
#include "hccl/join/node.h"
#include "hccl/join/root_info.h"

namespace hccl::join {

/// Receives failures on the control thread; must not block.
class FailureListener {
 public:
  virtual ~FailureListener() = default;
  /// `scope` names the communicator that failed. If `scope` is all zeroes, every communicator of
  /// the culprit, a world rank, has failed.
  virtual void on_failure(const Uuid& scope, const Status& why) = 0;
  /// A rank of this communicator has called summon().
  virtual void on_summons(const Uuid& scope) = 0;
};

/// Any thread may call.
class World final : public ControlNode::Owner {
 public:
  /// Proves to the root (by TLS) that this rank has the secret, and waits until all `size` ranks
  /// have joined. After config.connect_timeout, kTimeout names the absent ranks. kPara when the
  /// ranks disagree on version, size or configuration. `node`: this process's node in the world,
  /// which all ranks of the process share. `check`: see Node. `attempt`: of this rank. `boot`: this
  /// host's boot id.
  static Result<std::shared_ptr<World>> join(std::shared_ptr<Node> node, int size, int rank,
                                             const Config& config, Logger log,
                                             const std::function<Status()>& check = {},
                                             const control::Attempt& attempt = {},
                                             const Result<std::string>& boot = boot_id());
  /// If the rank has called neither leave() nor ended(), the other ranks consider it dead.
  ~World() override;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  using Host = control::Roster::Host;
  /// The hosts of all ranks, by rank.
  const std::vector<Host>& hosts() const { return hosts_; }
  const RootInfo& info() const { return node_->info(); }
  const Logger& log() const { return log_; }

  static constexpr std::size_t kBlobCap = 64 << 10;    ///< bytes of one rank's part of an exchange
  using Blobs = std::map<std::uint32_t, std::string>;  ///< by world rank
  /// Gathers one blob from each of the world ranks `members` (empty: all). All members pass the
  /// same key; each exchange needs a new key. kTimeout names the absent ranks. If a member has left
  /// or died, or `abort` is raised, the exchange ends early. `name`: of the communicator that is
  /// opened, for the log.
  Result<Blobs> exchange(const Uuid& key, const std::string& mine, Deadline deadline,
                         const AbortFlag& abort, const std::string& name = "exchange",
                         const std::vector<int>& members = {});
  /// Waits until each of the members has called present(), has called will_not_come(), has left or
  /// has died. Returns the members that have called present(): the same on all ranks. Key, errors,
  /// `abort` and `name`: as in exchange(), but a member that leaves or dies causes no error.
  /// kUnavail: this rank has said that it will not come.
  Result<std::vector<int>> present(const Uuid& key, const std::vector<int>& members,
                                   Deadline deadline, const AbortFlag& abort,
                                   const std::string& name);
  /// The values on which the members of a new group agree.
  struct Agreed {
    std::vector<int> members;  ///< world ranks, in the order of the list
    std::string offer;         ///< of the one member that offers something
  };
  /// Makes a group of the world ranks `members` (empty: all) whose configurations are equal; kPara:
  /// they differ. Key, errors, `abort` and `name`: as in exchange(); a member that refused its call
  /// ends the call of the others, too. Except for the offer, the answer has a constant size.
  Result<Agreed> agree(const Uuid& key, const std::vector<int>& members,
                       const std::string& configuration, const std::string& offer,
                       Deadline deadline, const AbortFlag& abort, const std::string& name);
  /// Like agree(), but only among the living members. All living members call it, and all get the
  /// same members. A member that dies after its call is still in the result. kUnavail: too few
  /// ranks are left to go on, because other ranks may live, cut off from these ranks.
  Result<Agreed> survivors(const Uuid& key, const std::vector<int>& members,
                           const std::string& configuration, Deadline deadline,
                           const std::string& name);
  /// Tells all ranks that this communicator has failed. The process may exit right after the call.
  /// If there is no memory for the report, the others consider all ranks of this process dead.
  void report(const Uuid& scope, const Status& why);
  /// This rank waits in a call. The root compares the calls of the ranks, and names the absent
  /// ranks at a deadline. `awaited`: world ranks.
  void stalled(const Uuid& scope, std::uint64_t sequence, const std::string& call,
               const std::vector<int>& awaited);
  /// This rank's program ends without leaving; `last`: its last operation. The program may exit
  /// after this call.
  void ended(const std::string& last);

  /// This rank refused a call in place of this operation; `text`: the error. If other ranks then
  /// wait for this rank in the operation, all get the error. An empty `text`: this rank has
  /// destroyed the communicator.
  void refused(const Uuid& scope, std::uint64_t sequence, const std::string& text);
  /// As refused(), for a call that would have made a group.
  void refused_group(const std::string& text) { refused(Uuid{}, 0, text); }
  /// Tells the listeners of all ranks that the ranks of this communicator are needed.
  void summon(const Uuid& scope);
  /// This rank has not called present() for this scope, and will not. It answers each earlier or
  /// later summons by saying so. `members`: as in present().
  void will_not_come(const Uuid& scope, const std::vector<int>& members) noexcept;

  /// Whether this rank has lost the control tree.
  bool is_lost() const;
  /// Whether this world rank has shut down cleanly. Takes no lock.
  bool has_left(int rank) const;

  /// Adds a listener, and at once passes it the failures and summons so far.
  void add(FailureListener* listener);
  void remove(FailureListener* listener);

  /// One more communicator keeps this rank in the world.
  void stay() { ++stays_; }
  /// Takes back one stay(), or the stay of the first communicator. Returns whether no stay is left:
  /// then leave() must follow.
  bool goes() { return --stays_ == 0; }
  /// This rank leaves. Waits until its neighbours know, for two seconds at most.
  void leave();

  /// Keeps the claim (claim.h) of this rank as long as this object lives.
  void keep(std::shared_ptr<Fd> claim) { claim_ = std::move(claim); }

 private:
  struct Pending {
    std::string name;
    Deadline::Clock::time_point since = Deadline::Clock::now();
    bool done = false;
    Result<control::Gathering> result{Status(Code::kTimeout, "no answer")};
  };

  World(std::shared_ptr<Node> node, int size, int rank, Logger log);
  Status await_roster(const Config& config);
  void say_part(const Uuid& key, control::Gathering part, const control::RankSet& members);

  void joined(const std::shared_ptr<const control::Roster>& roster, std::uint32_t node) override;
  void failed(const Status& why) override;
  void heard(const control::News& news) override;
  void answered(const control::Gatherings::Answer& answer) override;
  void late(const control::Gatherings::Late& late) override;
  void over() override;

  void lose(const Status& why) HCCL_REQUIRES(mutex_);
  void finish(const Uuid& key, Result<control::Gathering> result) HCCL_REQUIRES(mutex_);
  Result<control::Gathering> gather(const Uuid& key, control::Gathering part,
                                    const std::vector<int>& members, const std::string& name,
                                    Deadline deadline, const AbortFlag* abort);
  Result<Agreed> agree(const Uuid& key, control::Gathering part, const std::vector<int>& members,
                       const std::string& configuration, const std::string& name, Deadline deadline,
                       const AbortFlag* abort);

  const std::shared_ptr<Node> node_;
  std::shared_ptr<Fd> claim_;
  const int size_, rank_;
  const Logger log_;
  std::vector<Host> hosts_;  // does not change once the rank has joined
  std::vector<std::atomic<bool>> left_ =
      std::vector<std::atomic<bool>>(static_cast<std::size_t>(size_));  // by rank
  std::atomic<int> stays_ = 1;
  mutable Mutex mutex_{LockLevel::kWorld};
  Doorbell bell_;
  std::shared_ptr<const control::Roster> roster_ HCCL_GUARDED_BY(mutex_);
  std::map<Uuid, std::shared_ptr<Pending>> pending_ HCCL_GUARDED_BY(mutex_);
  std::set<FailureListener*> listeners_ HCCL_GUARDED_BY(mutex_);
  // By scope: the members. A communicator has two scopes.
  Recent<Uuid, control::RankSet> not_coming_ HCCL_GUARDED_BY(mutex_){2 * control::kScopesCap};
  bool leaving_ HCCL_GUARDED_BY(mutex_) = false;
  control::News news_ HCCL_GUARDED_BY(mutex_);          // all news so far
  std::optional<Status> dead_ HCCL_GUARDED_BY(mutex_);  // why this rank has lost the control tree
};

}  // namespace hccl::join
