// The root's decisions: which rank is the culprit when a communicator fails, and the text that all
// ranks get. Each communicator has one culprit, even if the root changes.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hccl/base/recent.h"
#include "hccl/control/gatherings.h"
#include "hccl/control/news.h"
#include "hccl/control/refusals.h"
#include "hccl/control/roster.h"
#include "hccl/control/waits.h"

namespace hccl::control {

/// Takes reports and the time, and returns verdicts for all ranks. Callers pass times that never
/// decrease. Ranks are ranks of the roster. Not thread-safe.
class Verdicts {
 public:
  /// `peer_timeout`: within this time the data that a rank has sent arrives.
  Verdicts(std::shared_ptr<const Roster> roster, std::uint32_t epoch,
           std::chrono::nanoseconds peer_timeout = std::chrono::seconds(30))
      : roster_(std::move(roster)), epoch_(epoch), peer_timeout_(peer_timeout) {}

  std::uint32_t epoch() const { return epoch_; }
  /// A rank reports that a communicator has failed. Ignores a report about kEverything (a death):
  /// only the root declares deaths.
  News report(std::uint32_t rank, const Uuid& scope, const Status& why, Time now);
  News waits(const Wait& wait, Time now);
  /// A rank has refused calls in place of an operation; `refusal` is the rank's last refusal.
  void refused(const Refusal& refusal);
  /// The rank's program ends without HcclCommDestroy; `last` is the rank's last operation.
  void ends(std::uint32_t rank, std::string last, Time now);
  /// Ranks have shut down cleanly.
  void left(const RankSet& ranks, Time now);
  /// Ranks have died. `how`: the circumstances if known, such as " was cut off". `more` is added to
  /// each text.
  News died(const RankSet& ranks, const std::string& how = {}, const std::string& more = {});
  /// Returns the error of a gathering that waits for a rank which has left, or nothing if the
  /// gathering waits for no such rank.
  std::optional<Status> vain(const Gatherings::Open& gathering, Time now) const;
  /// Makes the decisions that are due.
  News tick(Time now);
  /// When tick() next has something to do.
  Time next() const;

  /// Adds the verdicts of an earlier root, which another node has sent. Returns the verdicts that
  /// are new here.
  News heard(const News& news);
  /// All verdicts, for ranks that may not have heard them.
  const News& known() const { return told_; }
  /// Withholds all decisions until release(), because another root may have decided or may decide.
  /// Verdicts that come meanwhile take precedence over the withheld decisions.
  void hold() { held_ = true; }
  News release();

 private:
  // The ranks of one communicator that have refused calls or destroyed the communicator.
  struct Refused {
    std::map<std::uint32_t, Refusal> calls;  // by rank: its last refused call
    // The ranks that have destroyed the communicator, by the operation and the number of refused
    // calls.
    std::map<std::pair<std::uint64_t, std::uint32_t>, RankSet> destroyed;
  };
  // Closed connections that ranks of one communicator have seen.
  struct Broken {
    std::map<std::uint32_t, Status> reports;  // by rank
    std::uint32_t first = 0;                  // the rank whose report came first
    Time deadline{};
  };
  News tell(const Uuid& scope, const Status& why);
  bool is_known(const Uuid& scope) const {
    return told_.verdicts.count({scope, Status::kNobody}) != 0;
  }
  News timed_out(std::uint32_t rank, const Uuid& scope, const Status& why, Time now);
  News broken(std::uint32_t rank, const Uuid& scope, const Status& why, Time now);
  News judge(const Uuid& scope);
  std::optional<Status> refused_one(const Wait& wait) const;
  std::optional<Status> gone_one(const Wait& wait) const;
  std::optional<Status> circle(const Wait& wait, Time now);
  std::string name_of(std::uint32_t rank) const;
  std::string how_it_left(std::uint32_t rank) const;

  std::shared_ptr<const Roster> roster_;
  std::uint32_t epoch_;
  const std::chrono::nanoseconds peer_timeout_;
  std::uint32_t number_ = 0;  // of the next verdict
  bool held_ = false;
  std::vector<Verdict> withheld_;
  News told_;
  RankSet absent_;                             // dead, or shut down cleanly
  std::map<std::uint32_t, Time> gone_;         // by rank: when it left, or its program began to end
  std::map<std::uint32_t, std::string> ends_;  // by rank: its last operation, if its program ended
  Waits waits_;
  Recent<Uuid, Refused> refusals_{kScopesCap};
  std::map<Uuid, Broken> broken_;
  std::map<Uuid, Time> looks_;  // by communicator: when circle() may search again
};

}  // namespace hccl::control
