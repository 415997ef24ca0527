#include "hccl/control/gatherings.h"

#include <algorithm>

namespace hccl::control {
namespace {

using std::chrono::nanoseconds;

Status differing(const Gathering& sum) {
  const auto& [first, other] = sum.members;
  return {Code::kPara,
          "EI0005: the ranks' calls differ: rank " + std::to_string(first->first) +
              " called for a group of ranks " + first->second.text() + ", rank " +
              std::to_string(other->first) + " for a group of ranks " + other->second.text() +
              " (world ranks)",
          static_cast<int>(other->first)};
}
Status late_error(const RankSet& awaited, const std::string& elsewhere) {
  return {Code::kTimeout,
          "ranks that did not come: " + awaited.text() + " (world ranks)" + elsewhere,
          awaited.count() == 1 ? static_cast<int>(awaited.lowest()) : Status::kNobody};
}

Status doubt_error(const RankSet& others) {
  return {Code::kTimeout,
          "ranks of which nobody knew in time whether they are cut off: " + others.text() +
              " (world ranks)",
          Status::kNobody};
}

// Estimates the bytes that an answer takes in memory.
std::uint64_t bytes_of(const Gathering& sum) {
  std::uint64_t bytes = kAgreementCap;  // an estimate of all but the blobs
  for (const auto& [rank, blob] : sum.blobs) bytes += blob.size() + 96;
  return bytes;
}

}  // namespace

std::optional<Gatherings::Answer> Gatherings::add(const Key& key, const Gathering& part, Time now,
                                                  bool partial) {
  bool over = false;
  for (const bool success : {true, false}) {
    const Answer* answer = last(key.group, success);
    if (answer != nullptr && answer->key == key) return *answer;
    // A later success shows that all members have gone on, so this gathering is over. A later error
    // does not.
    over = over || (success && answer != nullptr && answer->key.number > key.number);
  }
  if (over) {
    return Answer{key, part, Status(Code::kInternal, "this gathering of the group is over")};
  }
  if (open_.size() >= kGatheringsCap && open_.count(key) == 0) {
    return Answer{key, part, Status(Code::kUnavail, "too many groups are opened at once")};
  }
  const auto [at, added] = open_.try_emplace(key);
  Open& open = at->second;
  const Time deadline = part.patience > Time::max() - now ? Time::max() : now + part.patience;
  if (added) open = {{}, now, deadline, Time::max(), false, false, false, {}};
  open.deadline = std::min(open.deadline, deadline);
  open.partial = open.partial || partial;
  open.since = std::min<Time>(open.since, now - part.waited);
  if (!open.late) open.next_report = open.since + kLateAfter;
  open.sum.merge(part);
  open.said -= part.arrived;  // the node below has moved, and may have missed the answer
  return std::nullopt;
}

// This node's answer, if this node must answer. The lowest node that has all members below it
// answers. Once that node has sent the gathering to its parent, the root answers instead.
std::optional<Status> Gatherings::verdict(const Open& open, const Place& place, Time now) {
  const bool differs = open.sum.members.other.has_value();
  RankSet awaited = open.sum.awaited();
  if (place.root && !open.sum.awaits_all()) awaited -= place.gone;
  const bool all_below = !open.up && place.below.contains(open.sum.named());
  if (!differs && awaited.empty() && (place.root || all_below)) {
    return may_go_on(open, place, now);
  }
  if (!place.root) return std::nullopt;
  if (differs) return differing(open.sum);
  if (now >= std::max(open.deadline, place.parts_by)) return late_error(awaited, open.elsewhere);
  return std::nullopt;
}

// Silent members may live in a part of the network that this node cannot reach, and go on without
// the members here. So only the larger part goes on or, if the parts are equal, the part with the
// lowest rank. A cut in the network silences members one after the other, so members in doubt count
// for the other part until their part is known. A gathering with kAwaitsAll leaves nobody out, so
// the rule does not apply.
std::optional<Status> Gatherings::may_go_on(const Open& open, const Place& place, Time now) {
  const RankSet named = open.sum.named(), silent = named & place.silent;
  if (open.sum.awaits_all() || silent.empty()) return Status();
  const RankSet others = silent | (named & (place.in_doubt - place.gone));
  const RankSet here = open.sum.arrived - place.gone - others;
  const bool lowest = !here.empty() && here.lowest() < others.lowest();
  const std::size_t more = here.count() + (lowest ? 1 : 0);
  if (more > others.count()) return Status();
  if (others != silent && now < open.deadline) return std::nullopt;
  if (others != silent) return doubt_error(others);
  return Status(
      Code::kUnavail,
      "ranks " + here.text() + " may not go on without ranks " + others.text() +
          ", which may live and be cut off from them: a part of the ranks goes on if it has more "
          "than half of them, or half with the lowest rank (world ranks)",
      Status::kNobody);
}

// Returns whether this node must now send its sum to the parent. The sum must have a part that the
// parent lacks, and one of these must hold: all living members below have arrived, this node or a
// node below has already sent a partial sum, or the gathering is late or will fail.
bool Gatherings::says(const Key& key, const Open& open, const Place& place, Time now) {
  if (place.root || open.sum.arrived == open.said) return false;
  return open.up || open.partial || open.sum.members.other || now - open.since >= kLateAfter ||
         place.vain.contains(key) || ((open.sum.awaited() & place.below) - place.gone).empty();
}

Gatherings::Due Gatherings::due(const Place& place, Time now) {
  Due due;
  for (auto& [key, open] : open_) {
    if (place.root && now >= open.deadline) note_other_calls(key, open);
    if (auto why = verdict(open, place, now)) {
      due.answers.push_back({key, open.sum, std::move(*why)});
    } else if (says(key, open, place, now)) {
      open.up = true;
      open.said = open.sum.arrived;
      open.sum.patience = std::max(nanoseconds(0), open.deadline - now);
      open.sum.waited = now - open.since;
      due.parts.emplace_back(key, open.sum);
    }
  }
  for (const Answer& each : due.answers) static_cast<void>(answered(each));
  return due;
}

// Ranks that call for one group with different names, numbers or lists make two gatherings, which
// wait for each other's ranks. The errors of both then say so.
void Gatherings::note_other_calls(const Key& key, Open& open) {
  if (!open.elsewhere.empty() || (open.sum.flags & kMakesGroup) == 0) return;
  const auto text = [](const RankSet& ranks, const Open& where) {
    return "; rank " + std::to_string(ranks.lowest()) + " called for a group of ranks " +
           where.sum.named().text() + " with another name, number or list of ranks";
  };
  for (auto& [its, other] : open_) {
    const RankSet here = open.sum.awaited() & other.sum.arrived;
    const RankSet there = other.sum.awaited() & open.sum.arrived;
    if (its == key || here.empty() || there.empty()) continue;
    if ((other.sum.flags & kMakesGroup) == 0) continue;
    open.elsewhere = text(here, other);
    if (other.elsewhere.empty()) other.elsewhere = text(there, open);
    return;
  }
}

const Gatherings::Answer* Gatherings::last(const Uuid& group, bool success) const {
  return last_.find({group, success});
}

bool Gatherings::answered(Answer answer) {
  const bool was_open = open_.erase(answer.key) != 0;
  const bool success = answer.why.ok();
  const Answer *same = last(answer.key.group, success), *other = last(answer.key.group, !success);
  if (same != nullptr && same->key.number >= answer.key.number) return was_open;
  if (other != nullptr && other->key == answer.key) return false;
  if (!success && other != nullptr && other->key > answer.key) return false;
  const std::pair group(answer.key.group, success);
  const std::uint64_t bytes = bytes_of(answer.sum);
  last_.put(group, std::move(answer), bytes);
  return true;
}

Gatherings::Answer Gatherings::fail(const Key& key, const Status& why,
                                    const std::map<std::uint32_t, RankSet>& refused) {
  Answer answer{key, open_.at(key).sum, why};
  for (const auto& [times, ranks] : refused) answer.sum.refused[times] |= ranks;
  static_cast<void>(answered(answer));
  return answer;
}

void Gatherings::moved() {
  for (auto& [key, open] : open_) {
    open.up = true;
    open.said = {};
  }
}

std::vector<const Gatherings::Answer*> Gatherings::last() const {
  std::vector<const Answer*> all;
  last_.each([&all](const Answer& each) { all.push_back(&each); });
  return all;
}

std::vector<Gatherings::Late> Gatherings::late(Time now) {
  std::vector<Late> all;
  for (auto& [key, open] : open_) {
    if (now < open.next_report) continue;
    const bool told = std::exchange(open.late, true);
    open.next_report = told ? now + kReportEvery : now + kPartialsMeet;
    if (told) all.push_back({key, open.sum.arrived, open.sum.awaited()});
  }
  return all;
}

Time Gatherings::next() const {
  Time first = Time::max();
  for (const auto& [key, open] : open_) first = std::min({first, open.deadline, open.next_report});
  return first;
}

}  // namespace hccl::control
