// Silent ranks, and reports of ranks: calls in which they wait, calls that they refused, and
// connections that ended.
#include <algorithm>
#include <chrono>
#include <utility>

#include "hccl/base/error_text.h"
#include "hccl/join/membership.h"

namespace hccl::join {
namespace {

// A connection may end because of a death. The coordinator learns of a death in this time.
constexpr std::chrono::seconds kDeathIsKnown{2};
// In this time a rank whose call was refused may make the right call, which it reports at once.
constexpr std::chrono::milliseconds kForgiving{500};
// A rank that waits reports it more often.
constexpr std::chrono::seconds kReportIsNew{1};
constexpr Uuid kAnyGroup{};

}  // namespace

// While the coordinator does not run, it receives nothing. Such time does not count as silence.
void Membership::pass(Time now) {
  const auto gap = now - now_;
  const auto longest = wire::beat_interval(peer_timeout_);
  if (complete_ && gap > longest) {
    for (auto& [connection, end] : silence_) end += gap - longest;
  }
  now_ = now;
}

// A stopped process keeps its connections; only its silence shows that it is stopped.
Membership::Outs Membership::expel_silent() {
  Outs outs;
  for (auto at = connections_.begin(); complete_ && at != connections_.end();) {
    const auto [connection, rank] = *at++;
    const auto silence = silence_.find(connection);
    if (silence == silence_.end() || now_ < silence->second) continue;
    const auto tell = [&](const Outs& more) { outs.insert(outs.end(), more.begin(), more.end()); };
    tell(forget(connection, rank));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(peer_timeout_).count();
    const Status why(Code::kRemote,
                     name_of(rank) + " has given no sign of life for " + std::to_string(seconds) +
                         " s (HCCL_PEER_TIMEOUT): it is stopped, or cut off",
                     static_cast<int>(rank));
    tell(tell_all(kEverything, why));
    // If the process is resumed, it reads that it was expelled.
    outs.push_back({connection, wire::failure_frame(kEverything, why), true});
  }
  return outs;
}

// Removes the last report of the rank.
void Membership::Stalls::forget(std::uint32_t rank) {
  const auto at = sequences.find(rank);
  if (at == sequences.end()) return;
  const auto operation = operations.find(at->second);
  sequences.erase(at);
  Waiting& waiting = operation->second;
  for (const std::uint32_t each : waiting.reports.at(rank).awaited) {
    if (--waiting.awaited.at(each) == 0) waiting.awaited.erase(each);
  }
  waiting.reports.erase(rank);
  if (waiting.reports.empty()) operations.erase(operation);
}

// The ranks that are awaited in the witness's operation and do not wait in it themselves.
std::vector<std::uint32_t> Membership::missing(const Uuid& scope, std::uint32_t witness) const {
  const auto at = stalls_.find(scope);
  if (at == stalls_.end() || at->second.sequences.count(witness) == 0) return {};
  const Waiting& waiting = at->second.of(witness);
  std::vector<std::uint32_t> absent;
  for (const auto& [rank, number] : waiting.awaited) {
    if (waiting.reports.count(rank) == 0) absent.push_back(rank);
  }
  return absent;
}

// The call in which the rank waits, if that is not the witness's: a later one, so that it has
// called that of the witness, or an earlier one, which it has just reported.
std::string Membership::elsewhere(const Uuid& scope, std::uint32_t witness,
                                  std::uint32_t rank) const {
  const Stalls& stalls = stalls_.at(scope);
  const auto its = stalls.sequences.find(rank);
  if (its == stalls.sequences.end()) return {};
  const bool later = its->second > stalls.sequences.at(witness);
  const Waiting& waiting = stalls.of(rank);
  const bool is_new = now_ - waiting.reports.at(rank).reported < kReportIsNew;
  return later || is_new ? waiting.call : std::string();
}

// Compares the call with that of one other rank that waits in the operation. All ranks that wait
// there have made the same call, so one comparison is enough.
Membership::Outs Membership::stall(std::uint32_t rank, ByteReader& in) {
  const auto scope = in.get<Uuid>();
  const auto sequence = in.get<std::uint64_t>();
  std::string call = in.get_text(wire::kTextCap);
  std::vector<std::uint32_t> awaited(
      std::min<std::size_t>(in.get<std::uint32_t>(), wire::kAwaitedCap));
  for (std::uint32_t& each : awaited) each = in.get<std::uint32_t>();
  const bool sane = std::ranges::all_of(awaited, [this](auto each) { return each < size_; });
  if (!in.finished() || !sane) return drop(connection_of_[rank]);
  // Forgets reports of old communicators; ranks that still wait report again.
  if (stalls_.size() >= wire::kScopesCap && stalls_.count(scope) == 0) stalls_.clear();
  Stalls& stalls = stalls_[scope];
  const auto own = stalls.sequences.find(rank);
  const bool again = own != stalls.sequences.end() && own->second == sequence;
  const Time before = again ? stalls.of(rank).reports.at(rank).reported : Time::min();
  stalls.forget(rank);
  Waiting& waiting = stalls.operations[sequence];
  if (!waiting.reports.empty() && waiting.call != call) {
    const Status why(Code::kPara, "EI0005: the ranks' calls differ: rank " + std::to_string(rank) +
                                      " called " + call + ", rank " +
                                      std::to_string(waiting.reports.begin()->first) + " called " +
                                      waiting.call + " (world ranks)");
    stalls_.erase(scope);
    return tell_all(scope, why);
  }
  waiting.call = std::move(call);
  for (const std::uint32_t each : awaited) ++waiting.awaited[each];
  waiting.reports[rank] = {std::move(awaited), before, now_};
  stalls.sequences[rank] = sequence;
  auto why = refused_one(scope, rank);
  if (!why) why = gone_one(scope, rank);
  if (why) {
    stalls_.erase(scope);
    refusals_.erase(scope);
    return tell_all(scope, *why);
  }
  return {};
}

// The error for a rank that the witness awaits and that will never come: it has left, or its
// program is ending. Data that it sent before may still be on the way. So the witness must have
// reported its wait twice since then.
std::optional<Status> Membership::gone_one(const Uuid& scope, std::uint32_t witness) const {
  const Waiting& waiting = stalls_.at(scope).of(witness);
  const Time before = waiting.reports.at(witness).before;
  for (const auto& [rank, since] : gone_) {
    if (waiting.awaited.count(rank) == 0 || waiting.reports.count(rank) != 0 || before <= since) {
      continue;
    }
    return Status(Code::kRemote,
                  name_of(rank) + how_it_left(rank) + "; rank " + std::to_string(witness) +
                      " called " + waiting.call + " (world ranks)",
                  static_cast<int>(rank));
  }
  return std::nullopt;
}

std::string Membership::ended(const std::string& last) {
  return " has left: its program ended without HcclCommDestroy, after " + last;
}

std::string Membership::how_it_left(std::uint32_t rank) const {
  const auto end = ends_.find(rank);
  return end != ends_.end() ? ended(end->second) : " has destroyed its communicator";
}

Membership::Outs Membership::summons(int connection, ByteReader& in) {
  const auto scope = in.get<Uuid>();
  if (!in.finished()) return drop(connection);
  return to_members(ByteWriter().put(wire::Kind::kSummons).put(scope).take(), connection);
}

// Stores the refusal. It is judged when another rank reports again that it waits.
Membership::Outs Membership::refusal(std::uint32_t rank, ByteReader& in) {
  const auto scope = in.get<Uuid>();
  const auto sequence = in.get<std::uint64_t>();
  std::string text = in.get_text(wire::kTextCap);
  if (!in.finished()) return drop(connection_of_[rank]);
  if (scope == kAnyGroup) {
    group_refusals_.refused(rank, std::move(text), now_);
    return {};
  }
  if (refusals_.size() >= wire::kScopesCap && refusals_.count(scope) == 0) refusals_.clear();
  Refusal& refusal = refusals_[scope][rank];
  if (refusal.sequence != sequence) refusal = {sequence, 0, {}, {}};
  ++refusal.number;
  refusal.text = std::move(text);
  refusal.at = now_;
  return {};
}

// The error for a rank that the witness awaits and that has refused more calls in the place of the
// operation than the witness. If all ranks make the same wrong call, all refuse it, and none waits.
std::optional<Status> Membership::refused_one(const Uuid& scope, std::uint32_t witness) const {
  const auto at = refusals_.find(scope);
  if (at == refusals_.end()) return std::nullopt;
  const std::uint64_t sequence = stalls_.at(scope).sequences.at(witness);
  const Waiting& waiting = stalls_.at(scope).operations.at(sequence);
  const auto own = at->second.find(witness);
  const bool both = own != at->second.end() && own->second.sequence == sequence;
  for (const auto& [rank, its] : at->second) {
    if (its.sequence != sequence || (both && own->second.number >= its.number)) continue;
    if (waiting.awaited.count(rank) == 0 || waiting.reports.count(rank) != 0) continue;
    if (now_ - its.at < kForgiving) continue;
    if (its.text.empty()) {
      return Status(Code::kRemote,
                    name_of(rank) + how_it_left(rank) + "; rank " + std::to_string(witness) +
                        " called " + waiting.call + " (world ranks)",
                    static_cast<int>(rank));
    }
    return Status(Code::kPara,
                  "EI0005: the ranks' calls differ: rank " + std::to_string(witness) + " called " +
                      waiting.call + ", but a call of rank " + std::to_string(rank) +
                      " was refused: " + its.text + " (world ranks)",
                  static_cast<int>(rank));
  }
  return std::nullopt;
}

// The error for a rank that this group awaits and that has refused to make a group.
std::optional<Status> Membership::refused_one(const Gathering& gathering) const {
  if (!gathering.makes_group || group_refusals_.empty() || now_ - gathering.since < kForgiving) {
    return std::nullopt;
  }
  std::vector<std::uint32_t> present, absent = wire::ranks_in(gathering.members);
  for (const int connection : gathering.connections) {
    present.push_back(connections_.at(connection));
    std::erase(absent, present.back());
  }
  const auto found = group_refusals_.find(present, absent, now_ - kForgiving);
  if (!found) return std::nullopt;
  const std::string rank = "rank " + std::to_string(found->rank);
  return Status(Code::kPara,
                "EI0005: the ranks' calls differ: rank " + std::to_string(found->witness) +
                    " called for a group with " + rank + ", but a call of " + rank +
                    " was refused: " + found->text + " (world ranks)",
                static_cast<int>(found->rank));
}

// The same for a rank that has left, or whose program ends.
std::optional<Status> Membership::gone_one(const Gathering& gathering) const {
  for (const auto& [rank, since] : gone_) {
    if (now_ - std::max(since, gathering.since) < kForgiving || gathering.came.count(rank) != 0 ||
        gathering.connections.empty() || !wire::is_in(gathering.members, rank)) {
      continue;
    }
    const std::uint32_t witness = connections_.at(gathering.connections.front());
    return Status(Code::kRemote,
                  name_of(rank) + how_it_left(rank) + "; rank " + std::to_string(witness) +
                      (gathering.makes_group ? " called for a group with rank "
                                             : " opens connections in a group with rank ") +
                      std::to_string(rank) + " (world ranks)",
                  static_cast<int>(rank));
  }
  return std::nullopt;
}

// Ends gatherings that wait for a rank that will not come.
Membership::Outs Membership::end_vain() {
  if (group_refusals_.empty() && gone_.empty()) return {};
  std::vector<std::pair<Uuid, Status>> vain;
  for (const auto& [key, gathering] : gatherings_) {
    auto why = refused_one(gathering);
    if (!why) why = gone_one(gathering);
    if (why) vain.emplace_back(key, std::move(*why));
  }
  Outs outs;
  for (const auto& [key, why] : vain) {
    if (gatherings_.at(key).makes_group) {
      group_refusals_.told(wire::ranks_in(gatherings_.at(key).members),
                           static_cast<std::uint32_t>(why.culprit()));
    }
    gatherings_.erase(key);
    Outs more = tell_all(key, why);
    outs.insert(outs.end(), more.begin(), more.end());
  }
  return outs;
}

// A rank reports that a connection has ended. It does not know whether the other rank has died, has
// closed all its connections after a failure, or sees the same end.
Membership::Outs Membership::broken(std::uint32_t rank, const Uuid& scope, const Status& why) {
  const auto suspect = static_cast<std::uint32_t>(why.culprit());
  if (why.culprit() < 0 || suspect >= size_ || connections_.count(connection_of_[suspect]) == 0) {
    return tell_all(scope, why);
  }
  if (failed_.count(scope) != 0) return {};  // all ranks know
  if (broken_.size() >= wire::kScopesCap && broken_.count(scope) == 0) broken_.clear();
  Broken& known = broken_[scope];
  if (known.reports.empty()) {
    known.first = rank;
    known.deadline = after(kDeathIsKnown);
  }
  known.reports.emplace(rank, why);
  const auto its = known.reports.find(suspect);
  const bool both = its != known.reports.end() && its->second.culprit() == static_cast<int>(rank);
  return both ? judge(scope) : Outs();
}

Membership::Outs Membership::judge_broken() {
  std::vector<Uuid> due;
  for (const auto& [scope, known] : broken_) {
    if (now_ >= known.deadline) due.push_back(scope);
  }
  Outs outs;
  for (const Uuid& scope : due) {
    Outs more = judge(scope);
    outs.insert(outs.end(), more.begin(), more.end());
  }
  return outs;
}

// A rank closes its connections when it has seen one of them end. So each report names a rank that
// may itself have reported an earlier end. The chain of reports leads to the cause: two ranks that
// name each other, or a rank without a report. If the chain is a circle, the first report counts.
// Of two ranks that name each other, the one that closed the connection knows why.
Membership::Outs Membership::judge(const Uuid& scope) {
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
  const auto its = known.reports.find(suspect_of(witness));
  const bool mutual =
      its != known.reports.end() && its->second.culprit() == static_cast<int>(witness);
  if (mutual && known.reports.at(witness).message().find(kClosedByPeer) != std::string::npos) {
    witness = its->first;
  }
  const std::uint32_t suspect = suspect_of(witness);
  const Status& why = known.reports.at(witness);
  return tell_all(
      scope, Status(why.code(),
                    why.message() + "; the connection between " + name_of(witness) + " and " +
                        name_of(suspect) + " ended, and neither of them has died (world ranks)",
                    why.culprit()));
}

}  // namespace hccl::join
