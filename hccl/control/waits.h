// The calls in which ranks wait. A waiting rank reports its call every 0.4 s. Relays merge reports
// of equal calls, so a report names sets of ranks. Equal calls have equal digests.
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

/// The collectives of a communicator and its messages have different scopes with equal first
/// halves. Returns the first half, and zeroes.
Uuid communicator_of(const Uuid& scope);

/// Ranks that wait in one call.
struct Wait {
  Uuid scope{};              ///< the communicator
  std::uint64_t number = 0;  ///< of the operation in the communicator
  Uuid digest{};             ///< of the call; equal calls have equal digests
  std::string call;          ///< for people
  RankSet waiting, awaited;
};
void put(ByteWriter& out, const Wait& wait);
/// Returns nothing if the bytes end early, pass a limit or have a rank that is not below `size`.
std::optional<Wait> get_wait(ByteReader& in, std::uint32_t size);

/// The last report of each rank. Not thread-safe.
class Waits {
 public:
  struct Report {
    RankSet waiting, awaited;
    /// When the first, the previous and the last report of these ranks on this wait came.
    Time since{}, before{}, reported{};
  };
  struct Operation {
    Uuid digest{};
    std::string call;
    std::vector<Report> reports;  ///< each waiting rank is in one report
    RankSet waiting() const;
    RankSet awaited() const;  ///< without the ranks that wait
  };
  using Place = std::pair<const std::uint64_t, Operation>;  ///< with the operation's number

  /// Adds a report. If ranks made different calls in the operation, returns the error and forgets
  /// the scope.
  Status add(const Wait& wait, Time now);
  /// The operation in which the rank waits, by its last report; null: the rank has not reported a
  /// wait.
  const Place* of(const Uuid& scope, std::uint32_t rank) const;
  /// The operation of this number; null if nobody waits in it.
  const Operation* at(const Uuid& scope, std::uint64_t number) const;
  /// The ranks that are awaited in the operation in which the witness waits, but do not wait there.
  RankSet missing(const Uuid& scope, std::uint32_t witness) const;
  /// The call in which `rank` waits, if the call comes after the witness's operation or `rank`
  /// reported the call within the last second; else empty. The rank may wait for a message while
  /// the witness waits in a collective, or the reverse.
  std::string elsewhere(const Uuid& scope, std::uint32_t witness, std::uint32_t rank,
                        Time now) const;
  /// Whether ranks of this wait have waited for at least `patience`.
  bool is_long(const Wait& wait, Time now, std::chrono::nanoseconds patience) const;
  /// If ranks of the scope's communicator have waited for each other for at least `patience`: a
  /// text with these ranks and their calls. They wait for ever, because a communicator runs one
  /// operation at a time, and no collective ends before all ranks have called it.
  std::optional<std::string> circle(const Uuid& scope, Time now,
                                    std::chrono::nanoseconds patience) const;
  void forget(const Uuid& scope) { scopes_.erase(scope); }

 private:
  std::map<Uuid, std::map<std::uint64_t, Operation>> scopes_;
};

}  // namespace hccl::control
