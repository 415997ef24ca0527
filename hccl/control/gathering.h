// A gathering: every member of a group contributes a part, and all members get the sum of the
// parts. Relays of the control tree merge parts on the way up, in any order and any number of
// times.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hccl/base/bytes.h"
#include "hccl/control/rank_set.h"

namespace hccl::control {

inline constexpr std::size_t kAgreementCap = 2048;     ///< bytes of Config::agreement()
inline constexpr std::size_t kBlobCap = 64 << 10;      ///< bytes of one rank's blob
inline constexpr std::uint32_t kRefusedCap = 1 << 30;  ///< the most refused calls that are counted
/// A flag in Gathering::flags: the members make a group. Without this flag they open connections in
/// a group.
inline constexpr std::uint32_t kMakesGroup = 1U << 31;
/// A flag in Gathering::flags: a member that has died or left ends the gathering with an error.
/// Without this flag the gathering does not wait for members that have died or left.
inline constexpr std::uint32_t kAwaitsAll = 1U << 30;

/// Statements of ranks, which should all be equal. Stores two of them: the statement of the lowest
/// rank, and the statement of the lowest rank that differs from it.
template <class T>
struct Statements {
  using One = std::pair<std::uint32_t, T>;  ///< the rank, and its statement
  std::optional<One> first, other;

  void add(const One& one) {
    if (!first || one < *first) {
      const std::optional<One> old = std::exchange(first, one);
      if (old && old->second != one.second) other = old;
    } else if (one.second != first->second && (!other || one < *other)) {
      other = one;
    }
  }
  void merge(const Statements& more) {
    if (more.first) add(*more.first);
    if (more.other) add(*more.other);
  }
  bool operator==(const Statements&) const = default;
};

/// The sum of some parts. merge() is commutative, associative and idempotent.
struct Gathering {
  RankSet arrived;                               ///< the ranks whose parts are in the sum
  Statements<RankSet> members;                   ///< the list of the group's members
  Statements<std::string> agreement;             ///< see Config::agreement()
  std::uint32_t flags = ~0U;                     ///< the flags of all parts, combined by AND
  std::chrono::nanoseconds patience{INT64_MAX};  ///< the shortest time to a member's deadline
  std::chrono::nanoseconds waited{0};            ///< the longest wait of an arrived member
  std::map<std::uint32_t, std::string> blobs;    ///< by rank
  /// With kMakesGroup: the ranks that have refused calls for groups, by the number of refused
  /// calls.
  std::map<std::uint32_t, RankSet> refused;

  void merge(const Gathering& more);
  /// All ranks in the one or two lists in `members`; empty before the first part.
  RankSet named() const;
  /// The members whose parts are not in the sum.
  RankSet awaited() const { return named() - arrived; }
  bool awaits_all() const { return (flags & kAwaitsAll) != 0; }
};

void put(ByteWriter& out, const Gathering& sum);
/// Returns nothing if the bytes end early, pass a limit or have a rank that is not below `size`.
std::optional<Gathering> get_gathering(ByteReader& in, std::uint32_t size);

}  // namespace hccl::control
