#include "hccl/control/verdicts.h"

#include <algorithm>
#include <chrono>

#include "hccl/base/error_text.h"

namespace hccl::control {
namespace {

// A connection may end because of a death. The root learns of a death within this time.
constexpr std::chrono::seconds kDeathIsKnown{2};
// A rank's part of a gathering, sent before the rank left, arrives within this time.
constexpr std::chrono::milliseconds kPartsArrive{500};

// A search for circles takes time in proportion to the waiting ranks.
constexpr std::chrono::seconds kLooksEvery{1};

std::string rank_text(std::uint32_t rank) { return "rank " + std::to_string(rank); }

}  // namespace

News Verdicts::tell(const Uuid& scope, const Status& why) {
  Verdict verdict{scope, epoch_, why};
  News news;
  if (told_.verdicts.count(verdict.key()) != 0) return news;
  if (!held_) {
    verdict.number = number_++;
    told_.merge(verdict);
    news.merge(verdict);
  } else if (withheld_.size() < kVerdictsCap) {
    withheld_.push_back(verdict);
  }
  return news;
}

News Verdicts::release() {
  held_ = false;
  News news;
  for (const Verdict& each : std::exchange(withheld_, {})) news.merge(tell(each.scope, each.why));
  return news;
}

News Verdicts::heard(const News& all) {
  News fresh = told_.merge(all);
  for (const auto& [key, verdict] : fresh.verdicts) {
    if (key.first == kEverything) absent_ |= {static_cast<std::uint32_t>(key.second)};
  }
  return fresh;
}

std::string Verdicts::name_of(std::uint32_t rank) const {
  if (rank >= roster_->node_of.size()) return rank_text(rank);
  return rank_text(rank) + " (" + roster_->name(roster_->node_of[rank]) + ")";
}

std::string Verdicts::how_it_left(std::uint32_t rank) const {
  const auto end = ends_.find(rank);
  return end == ends_.end()
             ? " has destroyed its communicator"
             : " has left: its program ended without HcclCommDestroy, after " + end->second;
}

void Verdicts::ends(std::uint32_t rank, std::string last, Time now) {
  ends_[rank] = std::move(last);
  gone_.emplace(rank, now);
}

void Verdicts::left(const RankSet& ranks, Time now) {
  for (const std::uint32_t rank : ranks.ranks()) gone_.emplace(rank, now);
  absent_ |= ranks;
}

News Verdicts::died(const RankSet& ranks, const std::string& how, const std::string& more) {
  News news;
  for (const std::uint32_t rank : (ranks - absent_).ranks()) {
    const std::string end = ends_.count(rank) != 0 ? how_it_left(rank) : " died or was cut off";
    news.merge(tell(kEverything, {Code::kRemote, name_of(rank) + (how.empty() ? end : how) + more,
                                  static_cast<int>(rank)}));
  }
  absent_ |= ranks;
  return news;
}

News Verdicts::report(std::uint32_t rank, const Uuid& scope, const Status& why, Time now) {
  if (scope == kEverything || why.ok()) return {};
  if (why.code() == Code::kTimeout) return timed_out(rank, scope, why, now);
  const bool left = why.culprit() == static_cast<int>(rank);  // the rank itself reports that it
                                                              // left
  return why.code() == Code::kRemote && !left ? broken(rank, scope, why, now) : tell(scope, why);
}

// Names the absent ranks, which only the root knows. If data was lost, ranks wait in different
// operations, so the text names these operations, too.
News Verdicts::timed_out(std::uint32_t rank, const Uuid& scope, const Status& why, Time now) {
  RankSet absent = waits_.missing(scope, rank);
  std::string text = why.message();
  for (const std::uint32_t each : absent.ranks()) {
    const std::string call = waits_.elsewhere(scope, rank, each, now);
    if (call.empty()) continue;
    text += "; " + rank_text(each) + " is in " + call;
    absent -= {each};
  }
  if (absent.empty()) return tell(scope, Status(why.code(), text, why.culprit()));
  return tell(scope, {why.code(), text + "; these did not call it (world ranks): " + absent.text(),
                      absent.count() == 1 ? static_cast<int>(absent.lowest()) : why.culprit()});
}

News Verdicts::waits(const Wait& wait, Time now) {
  if (is_known(wait.scope)) return {};
  if (const Status differs = waits_.add(wait, now); !differs.ok()) {
    return tell(wait.scope, differs);
  }
  auto why = refused_one(wait);
  if (!why) why = gone_one(wait);
  if (!why) why = circle(wait, now);
  if (!why) return {};
  waits_.forget(wait.scope);
  refusals_.erase(wait.scope);
  return tell(wait.scope, *why);
}

void Verdicts::refused(const Refusal& refusal) {
  const Uuid& scope = refusal.scope;
  if (scope == kEverything || is_known(scope)) return;
  Refused* known = refusals_.find(scope);
  if (known == nullptr) known = &refusals_.put(scope, {});
  known->calls.erase(refusal.rank);
  for (auto& [at, ranks] : known->destroyed) {
    if (ranks.contains(refusal.rank)) ranks -= {refusal.rank};
  }
  if (refusal.text.empty()) {
    known->destroyed[{refusal.number, refusal.times}] |= {refusal.rank};
  } else {
    known->calls.emplace(refusal.rank, refusal);
  }
}

// Returns an error if an awaited rank has refused more calls in place of the operation than a
// waiting rank. Equal numbers are no error: all ranks made the same wrong call, all refused it, and
// each may make the right call afterwards.
std::optional<Status> Verdicts::refused_one(const Wait& wait) const {
  const Refused* known = refusals_.find(wait.scope);
  if (known == nullptr) return std::nullopt;
  std::map<std::uint32_t, RankSet> refused;  // by the number of calls refused in the operation
  for (const auto& [at, ranks] : known->destroyed) {
    if (at.first == wait.number) refused[at.second] |= ranks;
  }
  for (const auto& [rank, its] : known->calls) {
    if (its.number == wait.number) refused[its.times] |= {rank};
  }
  const RankSet awaited = waits_.at(wait.scope, wait.number)->awaited();
  std::optional<std::uint32_t> culprit, witness;
  RankSet fewer = wait.waiting;  // the waiting ranks that have refused fewer calls
  for (const auto& [times, ranks] : refused) fewer -= ranks;
  for (const auto& [times, ranks] : refused) {
    const RankSet those = ranks & awaited;
    if (!fewer.empty() && !those.empty() && (!culprit || those.lowest() < *culprit)) {
      culprit = those.lowest();
      witness = fewer.lowest();
    }
    fewer |= wait.waiting & ranks;
  }
  if (!culprit) return std::nullopt;
  const std::string called = rank_text(*witness) + " called " + wait.call;
  const auto call = known->calls.find(*culprit);
  if (call == known->calls.end()) {
    return Status(Code::kRemote,
                  name_of(*culprit) + how_it_left(*culprit) + "; " + called + " (world ranks)",
                  static_cast<int>(*culprit));
  }
  return Status(Code::kPara,
                "EI0005: the ranks' calls differ: " + called + ", but a call of " +
                    rank_text(*culprit) + " was refused: " + call->second.text + " (world ranks)",
                static_cast<int>(*culprit));
}

// Returns an error if an awaited rank will never come, because it has left or its program is
// ending. Data that the rank sent before may still be on the way, so a waiting rank must have
// reported its wait twice since then.
std::optional<Status> Verdicts::gone_one(const Wait& wait) const {
  const Waits::Operation& operation = *waits_.at(wait.scope, wait.number);
  const RankSet awaited = operation.awaited();
  for (const auto& [rank, since] : gone_) {
    if (!awaited.contains(rank)) continue;
    for (const Waits::Report& each : operation.reports) {
      if (each.before <= since || (each.waiting & wait.waiting).empty()) continue;
      return Status(Code::kRemote,
                    name_of(rank) + how_it_left(rank) + "; " + rank_text(each.waiting.lowest()) +
                        " called " + wait.call + " (world ranks)",
                    static_cast<int>(rank));
    }
  }
  return std::nullopt;
}

// Returns an error if the ranks wait for each other in different calls. The calls for which they
// wait may have come meanwhile, so all must have waited for the peer timeout.
std::optional<Status> Verdicts::circle(const Wait& wait, Time now) {
  if (!waits_.is_long(wait, now, peer_timeout_)) return std::nullopt;
  if (looks_.size() >= kScopesCap) looks_.clear();
  Time& next = looks_[communicator_of(wait.scope)];
  if (now < next) return std::nullopt;
  next = now + kLooksEvery;
  const auto text = waits_.circle(wait.scope, now, peer_timeout_);
  if (!text) return std::nullopt;
  return Status(
      Code::kPara,
      "EI0005: the ranks' calls differ, so they wait for each other: " + *text + " (world ranks)",
      Status::kNobody);
}

std::optional<Status> Verdicts::vain(const Gatherings::Open& gathering, Time now) const {
  const RankSet awaited = gathering.sum.awaited();
  const bool makes_group = (gathering.sum.flags & kMakesGroup) != 0;
  for (const auto& [rank, since] : gone_) {
    if (!awaited.contains(rank) || now - std::max(since, gathering.since) < kPartsArrive) continue;
    return Status(
        Code::kRemote,
        name_of(rank) + how_it_left(rank) + "; " + rank_text(gathering.sum.arrived.lowest()) +
            (makes_group ? " called for a group with " : " opens connections in a group with ") +
            rank_text(rank) + " (world ranks)",
        static_cast<int>(rank));
  }
  return std::nullopt;
}

// A rank reports that a connection has ended. The rank does not know whether the other rank has
// died, has closed all its connections after a failure, or has lost the connection, too.
News Verdicts::broken(std::uint32_t rank, const Uuid& scope, const Status& why, Time now) {
  const auto suspect = static_cast<std::uint32_t>(why.culprit());
  if (suspect >= roster_->node_of.size() || absent_.contains(suspect)) return tell(scope, why);
  if (is_known(scope)) return {};
  if (broken_.size() >= kScopesCap && broken_.count(scope) == 0) broken_.clear();
  Broken& known = broken_[scope];
  if (known.reports.empty()) {
    known.first = rank;
    known.deadline = now + kDeathIsKnown;
  }
  known.reports.emplace(rank, why);
  const auto its = known.reports.find(suspect);
  const bool both = its != known.reports.end() && its->second.culprit() == static_cast<int>(rank);
  return both ? judge(scope) : News();
}

News Verdicts::tick(Time now) {
  std::vector<Uuid> due;
  for (const auto& [scope, known] : broken_) {
    if (now >= known.deadline) due.push_back(scope);
  }
  News news;
  for (const Uuid& scope : due) news.merge(judge(scope));
  return news;
}

Time Verdicts::next() const {
  Time first = Time::max();
  for (const auto& [scope, known] : broken_) first = std::min(first, known.deadline);
  return first;
}

// A rank closes its connections when it has seen one of them end. So each report names a rank that
// may itself have reported an earlier end. The chain of reports leads to the cause: two ranks that
// name each other, or a rank without a report. If the chain is a circle, the first report counts.
// Of two ranks that name each other, the one that closed the connection knows why.
News Verdicts::judge(const Uuid& scope) {
  const Broken known = std::move(broken_.at(scope));
  broken_.erase(scope);
  const auto suspect_of = [&](std::uint32_t rank) {
    return static_cast<std::uint32_t>(known.reports.at(rank).culprit());
  };
  const auto is_echo = [&](std::uint32_t rank) {
    return known.reports.count(suspect_of(rank)) != 0 && suspect_of(suspect_of(rank)) != rank;
  };
  std::uint32_t witness = known.first;
  for (std::size_t i = 0; i < known.reports.size() && is_echo(witness); ++i) {
    witness = suspect_of(witness);
  }
  if (is_echo(witness)) witness = known.first;
  const std::uint32_t other = suspect_of(witness);
  const bool mutual = known.reports.count(other) != 0 && suspect_of(other) == witness;
  if (mutual && known.reports.at(witness).message().find(kClosedByPeer) != std::string::npos) {
    witness = other;
  }
  const Status& why = known.reports.at(witness);
  return tell(scope, {why.code(),
                      why.message() + "; the connection between " + name_of(witness) + " and " +
                          name_of(suspect_of(witness)) +
                          " ended, and neither of them has died (world ranks)",
                      why.culprit()});
}

}  // namespace hccl::control
