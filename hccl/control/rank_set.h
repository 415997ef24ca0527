// A set of ranks as sorted ranges. The ranks of a host usually follow each other, so the set of all
// ranks below a relay takes a few bytes, even for many ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "hccl/base/bytes.h"

namespace hccl::control {

inline constexpr std::uint32_t kRanksCap = 32768;  ///< ranks of a world

/// Not thread-safe. Every operation takes time linear in the number of ranges, except that
/// contains() of one rank takes logarithmic time.
class RankSet {
 public:
  RankSet() = default;
  RankSet(std::initializer_list<std::uint32_t> ranks)
      : RankSet(std::vector<std::uint32_t>(ranks)) {}
  /// The ranks in any order; a rank may occur several times.
  explicit RankSet(std::vector<std::uint32_t> ranks);
  /// The ranks from `first` up to, but not including, `end`.
  static RankSet range(std::uint32_t first, std::uint32_t end);

  bool empty() const { return edges_.empty(); }
  std::size_t count() const;
  bool contains(std::uint32_t rank) const;
  /// Whether all ranks of the other set are in this one.
  bool contains(const RankSet& other) const { return (other - *this).empty(); }
  /// The lowest rank. The set must not be empty.
  std::uint32_t lowest() const { return edges_.front(); }
  /// All ranks in ascending order.
  std::vector<std::uint32_t> ranks() const;
  /// For people: "0-3, 7"; at most 32 ranges, then the number of ranks.
  std::string text() const;

  friend RankSet operator|(const RankSet& a, const RankSet& b);
  friend RankSet operator&(const RankSet& a, const RankSet& b);
  friend RankSet operator-(const RankSet& a, const RankSet& b);
  RankSet& operator|=(const RankSet& other) { return *this = *this | other; }
  RankSet& operator-=(const RankSet& other) { return *this = *this - other; }
  /// An arbitrary order, so that sets can be sorted.
  auto operator<=>(const RankSet&) const = default;

  friend void put(ByteWriter& out, const RankSet& set);
  /// Returns nothing if the bytes end early, name a rank that is not below `end`, or cannot have
  /// been written by put().
  friend std::optional<RankSet> get_ranks(ByteReader& in, std::uint32_t end);

 private:
  template <class Keep>
  static RankSet merge(const RankSet& a, const RankSet& b, Keep keep);

  // Where membership changes, in ascending order: the first rank of each range, then the rank after
  // the range's last rank. So a rank is in the set if the number of edges up to and including the
  // rank is odd.
  std::vector<std::uint32_t> edges_;
};

void put(ByteWriter& out, const RankSet& set);
std::optional<RankSet> get_ranks(ByteReader& in, std::uint32_t end = kRanksCap);

}  // namespace hccl::control
