// Calls that ranks have refused because their arguments were wrong, while other ranks may wait for
// the right ones.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hccl/control/gatherings.h"
#include "hccl/control/news.h"

namespace hccl::control {

inline constexpr std::ptrdiff_t kRefusalsCap = 1024;  ///< that a node keeps, those for groups apart
/// Calls for groups have no order: after a refused one, the right one may come in this time.
inline constexpr std::chrono::milliseconds kForgiving{500};

/// The calls that one rank has refused in the place of one operation of a communicator, or the
/// calls that would have made a group, in kEverything: these have no order.
struct Refusal {
  Uuid scope{};
  std::uint32_t rank = 0;
  std::uint64_t version = 0;  ///< of two refusals of one rank and scope, the higher one counts
  std::uint64_t number = 0;   ///< of the operation
  std::uint32_t times = 0;    ///< how many calls
  std::string text;           ///< of the last one; empty: the rank has destroyed its communicator
  /// By how many more calls for groups the rank had refused than these ranks when it last made a
  /// group with them, or the refusal was told. Zero for others.
  std::map<std::int64_t, RankSet> met;
};
void put(ByteWriter& out, const Refusal& refusal);
/// Nothing if the bytes end early or pass a limit. All ranks are below `size`.
std::optional<Refusal> get_refusal(ByteReader& in, std::uint32_t size);

/// The last refusal of each rank and scope, of the ranks of a node and of those below it. They are
/// said again to a new parent, so that a root has nothing that only it knows. For one thread.
class Refusals {
 public:
  using Key = std::pair<Uuid, std::uint32_t>;  ///< the scope and the rank
  struct Known {
    Refusal refusal;
    Time at{};  ///< when it came
  };

  bool empty() const { return all_.empty(); }
  const std::map<Key, Known>& all() const { return all_; }
  /// The refusal of a rank of this node. heard() then takes it.
  Refusal refuse(std::uint32_t rank, const Uuid& scope, std::uint64_t number, std::string text);
  /// Returns whether it is news.
  bool heard(const Refusal& refusal, Time now);
  /// All have heard why these communicators failed.
  void forget(const News& news);
  /// For Gathering::refused.
  std::map<std::uint32_t, RankSet> numbers(const RankSet& ranks) const;
  /// A gathering is over. Returns what has changed for ranks of this node, `own`.
  std::vector<Refusal> over(const Gatherings::Answer& answer, const RankSet& own);
  /// The error for an awaited rank that has refused more calls for groups than one that has arrived
  /// since the two last made a group, the last one by `until`. If all ranks make the same wrong
  /// call, all refuse it, and none waits. `gone`: ranks for which not every gathering waits.
  std::optional<Status> find(const Gathering& sum, Time until = Time::max(),
                             const RankSet& gone = {}) const;

 private:
  std::map<Key, Known> all_;
  std::uint64_t versions_ = 0;
};

}  // namespace hccl::control
