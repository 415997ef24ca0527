// News, which reach all nodes of the control tree: the nodes and ranks that died or left, the
// verdicts, and the communicators whose ranks are summoned to open connections. News
// only grow. Nodes merge news in any order, and pass additions to their neighbours.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "hccl/base/bytes.h"
#include "hccl/base/status.h"
#include "hccl/control/rank_set.h"

namespace hccl::control {

inline constexpr std::size_t kScopesCap = 4096;  ///< communicators whose reports a node stores
inline constexpr std::size_t kVerdictsCap = kScopesCap + kRanksCap;  ///< has room for a death of
                                                                     ///< each rank

/// The scope of a rank's death: all communicators that the rank is in.
inline constexpr Uuid kEverything{};

struct Verdict {
  Uuid scope{};             ///< the communicator that failed, or kEverything
  std::uint32_t epoch = 0;  ///< of the root that decided; each new root has a higher epoch
  Status why;
  std::uint32_t number = 0;  ///< numbers the verdicts of one root

  using Key = std::pair<Uuid, int>;  ///< the scope and, in kEverything, the rank
  Key key() const { return {scope, scope == kEverything ? why.culprit() : Status::kNobody}; }
  /// Whether this verdict counts, if `other` has the same key. The verdict of the earlier root
  /// counts, because some ranks may have got that verdict already.
  bool counts_before(const Verdict& other) const;
  /// Whether this verdict was decided before `than`. A later verdict may be a consequence of an
  /// earlier verdict.
  bool is_older(const Verdict& than) const {
    return std::pair(epoch, number) < std::pair(than.epoch, than.number);
  }
};

struct News {
  RankSet dead, left;  ///< numbers of nodes
  std::map<Verdict::Key, Verdict> verdicts;
  std::set<Uuid> summons{};  ///< communicators; at most kScopesCap
  RankSet silent{};          ///< nodes of `dead` whose processes may live
  RankSet left_ranks{};      ///< ranks that left, while other ranks of their processes stayed

  /// Commutative, associative and idempotent. Returns the additions. At kVerdictsCap verdicts,
  /// drops the verdicts on communicators: they are kept only to save messages. At kScopesCap
  /// summons, drops all summons.
  News merge(const News& more);
  bool merge(const Verdict& verdict);
  /// The ranks that have died according to the verdicts.
  RankSet dead_ranks() const;
  /// The verdicts in the order of the decisions. Valid while the news do not change.
  std::vector<const Verdict*> in_order() const;
  bool empty() const {
    return dead.empty() && left.empty() && verdicts.empty() && summons.empty() && silent.empty() &&
           left_ranks.empty();
  }
};

void put(ByteWriter& out, const News& news);
/// Returns nothing if the bytes end early or pass a limit, or if a node's number is not below
/// `nodes`.
std::optional<News> get_news(ByteReader& in, std::uint32_t nodes);

}  // namespace hccl::control
