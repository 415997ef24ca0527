// Stores the calls that ranks have refused because of wrong arguments. Other ranks may wait in the
// corresponding valid calls.
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

inline constexpr std::ptrdiff_t kRefusalsCap = 1024;  ///< per node, without calls for groups
/// Calls for groups have no order: within this time, a valid call may still follow a refused call.
inline constexpr std::chrono::milliseconds kForgiving{500};

/// The calls that one rank has refused in place of one operation of a communicator. With scope
/// kEverything: the calls for groups that the rank has refused, which have no order.
struct Refusal {
  Uuid scope{};
  std::uint32_t rank = 0;
  std::uint64_t version = 0;  ///< of two refusals of one rank and scope, the higher version counts
  std::uint64_t number = 0;   ///< of the operation
  std::uint32_t times = 0;    ///< how many calls the rank has refused
  std::string text;           ///< the error; empty: the rank has destroyed its communicator
  /// The other ranks, by the difference between this rank's and the other rank's number of refused
  /// calls for groups when both last made a group together. Ranks that are not in the map have 0.
  /// Once a refused call has become an error of both ranks, the difference shifts by one, so that
  /// the call does not count again.
  std::map<std::int64_t, RankSet> met;
};
void put(ByteWriter& out, const Refusal& refusal);
/// Returns nothing if the bytes end early, pass a limit or have a rank that is not below `size`.
std::optional<Refusal> get_refusal(ByteReader& in, std::uint32_t size);

/// The last refusal of each rank and scope, for the ranks of a node and of the nodes below it. A
/// node sends the refusals to a new parent, so that no refusal is lost when a root ends. Not
/// thread-safe.
class Refusals {
 public:
  using Key = std::pair<Uuid, std::uint32_t>;  ///< the scope and the rank
  struct Known {
    Refusal refusal;
    Time at{};  ///< when the refusal came
  };

  bool empty() const { return all_.empty(); }
  const std::map<Key, Known>& all() const { return all_; }
  /// Makes a refusal of a rank of this node; pass it to heard().
  Refusal refuse(std::uint32_t rank, const Uuid& scope, std::uint64_t number, std::string text);
  /// Stores a refusal. Returns whether it is new.
  bool heard(const Refusal& refusal, Time now);
  /// Forgets the refusals of communicators that have failed.
  void forget(const News& news);
  /// The refused calls of `ranks` for groups, in the form of Gathering::refused.
  std::map<std::uint32_t, RankSet> numbers(const RankSet& ranks) const;
  /// Handles the end of a gathering. Returns the changed refusals of this node's ranks, `own`.
  std::vector<Refusal> over(const Gatherings::Answer& answer, const RankSet& own);
  /// Compares how many calls for groups two ranks have refused since they last made a group
  /// together. Returns an error if an awaited rank has refused more than an arrived rank. Skips
  /// refusals after `until`. Equal numbers are no error: if all ranks make the same wrong call, all
  /// refuse it, and none waits. `gone`: ranks that only gatherings with kAwaitsAll wait for.
  std::optional<Status> find(const Gathering& sum, Time until = Time::max(),
                             const RankSet& gone = {}) const;

 private:
  std::map<Key, Known> all_;
  std::uint64_t versions_ = 0;
};

}  // namespace hccl::control
