// Membership admits ranks, and decides between two processes that claim one rank.
#include <algorithm>
#include <iterator>
#include <utility>

#include "hccl/join/membership.h"

namespace hccl::join {
namespace {

constexpr std::uint64_t kTicks = 100;  // of Process::started, in a second

void append(Membership::Outs& outs, Membership::Outs more) {
  std::move(more.begin(), more.end(), std::back_inserter(outs));
}

}  // namespace

Status two_claims(const wire::Member& first, const wire::Member& second) {
  const auto name = [](const wire::Member& each) {
    return each.address + " pid " + std::to_string(each.pid) + " (started " +
           std::to_string(each.started / kTicks) + " s after the boot)";
  };
  return Status(Code::kPara,
                "EI0016: two processes claim rank " + std::to_string(first.rank) + ": " +
                    name(first) + " and " + name(second) +
                    ". If they belong to two jobs, set HCCL_JOB_ID to a text of its own for "
                    "each job; if one is left over from an earlier attempt, end it",
                static_cast<int>(first.rank));
}

bool is_earlier(const wire::Member& one, const wire::Member& than) {
  return one.host == than.host && one.attempt.agent != 0 &&
         one.attempt.agent == than.attempt.agent && one.attempt.number < than.attempt.number;
}

bool is_older(const wire::Member& one, const wire::Member& than) {
  return one.host == than.host && one.started != 0 && one.started + kTicks < than.started;
}

Membership::Outs Membership::hello(int connection, ByteReader& in) {
  const auto version = in.get<std::uint32_t>();
  if (!in.ok()) return {{connection, {}, true}};
  const auto size = in.get<std::uint32_t>();
  const std::string agreement = in.get_text(wire::kAgreementCap);
  const wire::Member member = wire::get_member(in);
  const std::string rank = "rank " + std::to_string(member.rank);
  if (version != wire::kVersion) {
    return give_up(connection,
                   Status(Code::kPara, "EI0008: version mismatch: " + rank + " speaks protocol " +
                                           std::to_string(version) + ", the root " +
                                           std::to_string(wire::kVersion)));
  }
  if (!in.finished()) return {{connection, {}, true}};
  if (gave_up_) {
    ++told_;
    return refuse(connection, why_gave_up_);
  }
  if (complete_) {
    return refuse(connection, Status(Code::kUnavail, rank + " came when joining was over"));
  }
  if (size == 0 || size > wire::kRanksCap || member.rank >= size) {
    return refuse(connection, Status(Code::kPara, rank + " of " + std::to_string(size) +
                                                      " ranks is impossible"));
  }
  if (size_ == 0) {
    size_ = size;
    agreement_ = agreement;
    agreement_rank_ = member.rank;
    members_.resize(size);
    connection_of_.assign(size, -1);
    deadline_ = after(patience_);
  }
  const Status differs = compare_with_first(member.rank, size, agreement);
  if (!differs.ok()) return give_up(connection, differs);
  if (claimants_.find && member.rank == 0 && (member.host != host_ || member.pid != pid_)) {
    return contest(connection, root(), member);
  }
  Outs outs = end_earlier_attempts(connection, member);
  if (gave_up_ || (!outs.empty() && outs.back().connection == connection)) return outs;
  if (members_[member.rank]) {
    append(outs, contest(connection, *members_[member.rank], member));
    if (members_[member.rank] || gave_up_) return outs;
  }
  members_[member.rank] = member;
  connection_of_[member.rank] = connection;
  connections_[connection] = member.rank;
  ++present_;
  append(outs, begin());
  return outs;
}

// All ranks that one agent has started must belong to one attempt. A rank of an earlier attempt is
// refused, whether it is the newcomer or has joined already. If the root's rank is of an earlier
// attempt, the world ends.
Membership::Outs Membership::end_earlier_attempts(int connection, const wire::Member& newcomer) {
  const auto text = [](const wire::Member& each) {
    return "rank " + std::to_string(each.rank) + " (" + each.address + " pid " +
           std::to_string(each.pid) + ", restart " + std::to_string(each.attempt.number) + ")";
  };
  const auto why = [&](const wire::Member& old, const wire::Member& young) {
    return Status(Code::kPara,
                  "EI0016: " + text(old) + " is left over from an earlier attempt of its agent: " +
                      "TORCHELASTIC_RESTART_COUNT is higher for " + text(young),
                  static_cast<int>(old.rank));
  };
  Outs outs;
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    const auto other = members_[rank];
    if (!other) continue;
    if (is_earlier(newcomer, *other)) return refuse(connection, why(newcomer, *other));
    if (!is_earlier(*other, newcomer)) continue;
    if (is_own(rank)) return give_up(connection, why(*other, newcomer));
    append(outs, send_away(rank, why(*other, newcomer)));
  }
  return outs;
}

// Begins the world if all ranks have come. A process that has not come yet may claim a place, too:
// then the world waits for that process, or fails.
Membership::Outs Membership::begin() {
  Outs outs;
  if (present_ < size_) return outs;
  std::vector<wire::Member> all;
  for (const auto& member : members_) all.push_back(*member);
  if (claimants_.find) {
    for (const wire::Member& each : claimants_.find(all, host_)) {
      if (each.rank >= size_ || !members_[each.rank]) continue;
      append(outs, contest(-1, *members_[each.rank], each));
      if (gave_up_) return outs;
    }
  }
  if (present_ < size_) return outs;
  complete_ = true;
  return send_table();
}

// Two processes claim one rank. A process that is left over from an earlier attempt is refused
// alone. Otherwise the ranks of two jobs may have met already, and none of them can go on.
// `connection`: of the second; -1 if it has not come.
Membership::Outs Membership::contest(int connection, const wire::Member& first,
                                     const wire::Member& second) {
  const Status why = two_claims(first, second);
  if (is_left_over(second) || is_earlier(second, first)) {
    return connection < 0 ? Outs() : refuse(connection, why);
  }
  const bool replaced = is_older(first, second) && is_older(first, root());
  if (!replaced && !is_earlier(first, second)) {
    if (claimants_.remember) claimants_.remember();
    // The root's process may end as soon as its rank knows.
    Outs outs = connection < 0 ? Outs() : refuse(connection, why);
    Outs others = refuse_all(why);
    told_ = static_cast<std::uint32_t>(others.size());
    append(outs, std::move(others));
    return outs;
  }
  return send_away(first.rank, why);
}

// Refuses a rank that has come. Another process may take its place.
Membership::Outs Membership::send_away(std::uint32_t rank, const Status& why) {
  const int old = connection_of_[rank];
  members_[rank].reset();
  connection_of_[rank] = -1;
  connections_.erase(old);
  --present_;
  return refuse(old, why);
}

// The process of this coordinator.
wire::Member Membership::root() const {
  return {.rank = 0, .pid = pid_, .host = host_, .address = "the root", .started = started_};
}

bool Membership::is_left_over(const wire::Member& claimant) const {
  return is_older(claimant, root()) && std::ranges::all_of(members_, [&](const auto& each) {
           return !each || each->host != host_ || is_older(claimant, *each);
         });
}

// The difference between the configurations of a rank and of the first rank; success if none.
Status Membership::compare_with_first(std::uint32_t rank, std::uint32_t size,
                                      const std::string& agreement) const {
  const std::string theirs = "rank " + std::to_string(rank);
  const std::string first = "rank " + std::to_string(agreement_rank_);
  if (size != size_) {
    return Status(Code::kPara, "EI0016: " + theirs + " says " + std::to_string(size) + " ranks, " +
                                   first + " says " + std::to_string(size_));
  }
  if (agreement != agreement_) {
    return Status(Code::kPara, "EI0016: configuration differs: " + theirs + " has \"" + agreement +
                                   "\", " + first + " has \"" + agreement_ + "\"");
  }
  return {};
}

}  // namespace hccl::join
