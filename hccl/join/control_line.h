// A rank's line to the coordinator, apart from its data: joining, exchanging small blobs, reporting
// and hearing failures.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/base/log.h"
#include "hccl/base/mutex.h"
#include "hccl/base/socket.h"
#include "hccl/base/thread.h"
#include "hccl/join/host.h"
#include "hccl/join/line.h"
#include "hccl/join/root_info.h"
#include "hccl/join/wire.h"

namespace hccl::join {

/// Receives failures on the control thread; must not block.
class FailureListener {
 public:
  virtual ~FailureListener() = default;
  /// `scope` names the communicator that failed. All zeroes: every communicator of the culprit, a
  /// world rank, has failed.
  virtual void on_failure(const Uuid& scope, const Status& why) = 0;
  /// A rank of this communicator has called summon().
  virtual void on_summons(const Uuid& scope) = 0;
};

class ControlLine {
 public:
  /// Connects to the coordinator, proves itself (TLS), and waits until all `size` ranks have
  /// joined. kTimeout with the absent ranks after config.connect_timeout; kPara when the ranks
  /// disagree on version, size or configuration. `begun` gets the line before that wait: a forked
  /// child has to abandon() it. An error of `begun` ends joining. `attempt`: of this rank.
  /// `boot`: of this host.
  using Begun = std::function<Status(const std::shared_ptr<ControlLine>&)>;
  static Result<std::shared_ptr<ControlLine>> join(const RootInfo& info, int size, int rank,
                                                   const Config& config, Logger log,
                                                   const Begun& begun = {},
                                                   const wire::Attempt& attempt = {},
                                                   Result<std::string> boot = boot_id());
  /// Leaves in good order.
  ~ControlLine();
  ControlLine(const ControlLine&) = delete;
  ControlLine& operator=(const ControlLine&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<wire::Member>& members() const { return members_; }
  const RootInfo& info() const { return info_; }
  const Logger& log() const { return log_; }

  /// Gathers one blob from each of the `size` ranks that use this key, in order of index. Any
  /// thread may call. kTimeout names the absent indices. Ends early when `abort` is raised. `name`
  /// is the communicator that is opened; the log uses it to say which ranks are late. `members`:
  /// the set of the communicator's world ranks; a rank among them that has left ends the exchange.
  /// `makes_group`: a rank among them that refused to make a group ends it, too. `waits` is called
  /// every 0.4 s meanwhile.
  Result<std::vector<std::string>> exchange(const Uuid& key, std::uint32_t size,
                                            std::uint32_t index, const std::string& mine,
                                            Deadline deadline, const AbortFlag& abort,
                                            std::string name = "exchange",
                                            const std::string& members = {},
                                            bool makes_group = false,
                                            const std::function<void()>& waits = {});
  /// Tells all ranks that this communicator has failed.
  void report(const Uuid& scope, const Status& why);
  /// Tells the coordinator that this rank waits in a call. The coordinator compares the calls of
  /// the ranks, and names the absent ranks at a deadline. `awaited`: world ranks.
  void stalled(const Uuid& scope, std::uint64_t sequence, const std::string& call,
               const std::vector<int>& awaited);

  /// Tells the coordinator that this rank refused a call in the place of this operation, with the
  /// error's text. If other ranks then wait for this rank in the operation, all get the error. No
  /// text: this rank has destroyed the communicator.
  void refused(const Uuid& scope, std::uint64_t sequence, const std::string& text);
  /// The same for a call that would have made a group of any ranks.
  void refused_group(const std::string& text) { refused(Uuid{}, 0, text); }

  /// Tells the coordinator that this rank's program ends without leaving, and its last operation.
  void ended(const std::string& last);

  /// Tells the listeners of all other ranks that this communicator's ranks are needed.
  void summon(const Uuid& scope);

  /// Tells all ranks that this rank has destroyed the communicator whose messages these are. Those
  /// that wait for it in opening connections get an error.
  void absent(const Uuid& messages);
  /// Answers every later summons to these messages in this way.
  void will_not_come(const Uuid& messages) noexcept;

  /// Whether the coordinator has ended or cannot be reached: nothing is exchanged any more.
  bool is_lost() const;
  /// Whether this world rank has left in good order.
  bool has_left(int rank) const;

  /// Reports the deaths so far to the listener at once.
  void add(FailureListener* listener);
  void remove(FailureListener* listener);

  /// Says that this rank leaves. Waits, for a bounded time, until the ranks of other processes
  /// leave, too: then no last message is cut off, and the coordinator lives as long as its ranks.
  void leave(std::chrono::nanoseconds at_most);

  /// Keeps the claim (claim.h) of this rank as long as the line lives.
  void keep(std::shared_ptr<Fd> claim) { claim_ = std::move(claim); }

  /// For a forked child, which never uses the line again: the child's copies of the sockets would
  /// hide this process's death from the coordinator.
  void abandon() { line_.abandon(); }

 private:
  // How long after the deadline a rank still waits for the frame in which the coordinator names the
  // absent ranks.
  static constexpr std::chrono::seconds kGrace{5};

  struct Pending {
    std::string name;
    std::uint32_t index = 0;  // of this rank
    Deadline::Clock::time_point since = Deadline::Clock::now();
    std::uint32_t size = 0;
    bool done = false;
    Result<std::vector<std::string>> result{Status(Code::kTimeout, "no answer")};
  };

  ControlLine(Line line, const RootInfo& info, int rank, std::chrono::nanoseconds peer_timeout,
              Logger log);
  Status say_hello(int size, const Config& config, const wire::Attempt& attempt, HostIdentity host,
                   Deadline deadline);
  Status read_table(const std::string& frame, int size);
  void await_coordinator();
  void listen();
  Status take_in();
  void handle(const std::string& frame);
  void summoned(const Uuid& scope);
  Status send(const wire::Frame& frame, Deadline deadline);
  void send(const wire::Frame& frame);
  Result<std::string> receive(Deadline deadline);
  void lost(const Status& why);
  void fail(const Status& why) noexcept;
  void say_awaited(ByteReader& in) const HCCL_REQUIRES(mutex_);
  void finish_all(const Status& why) HCCL_REQUIRES(mutex_);
  bool others_left() const HCCL_REQUIRES(mutex_);

  Line line_;
  std::shared_ptr<Fd> claim_;
  RootInfo info_;
  int rank_;
  std::chrono::nanoseconds peer_timeout_;
  int coordinator_rank_ = -1;
  Logger log_;
  std::vector<wire::Member> members_;
  Mutex send_mutex_{LockLevel::kSend};  // held by the thread that waits until its frame is sent
  Mutex line_mutex_;                    // for TLS itself; never held while a thread waits
  mutable Mutex mutex_{LockLevel::kControlLine};
  Doorbell bell_;
  std::map<Uuid, std::shared_ptr<Pending>> pending_ HCCL_GUARDED_BY(mutex_);
  std::set<FailureListener*> listeners_ HCCL_GUARDED_BY(mutex_);
  std::set<int> left_ HCCL_GUARDED_BY(mutex_);
  std::set<Uuid> not_coming_ HCCL_GUARDED_BY(mutex_);
  bool leaving_ HCCL_GUARDED_BY(mutex_) = false;
  std::vector<Status> deaths_ HCCL_GUARDED_BY(mutex_);  // of other ranks
  std::optional<Status> dead_ HCCL_GUARDED_BY(mutex_);  // the line to the coordinator is gone
  Thread thread_;
};

}  // namespace hccl::join
