// The part of a Seek that only the root uses: it admits processes, decides between those that claim
// one rank, and ends joining.
#include <algorithm>

#include "hccl/control/seek.h"
#include "hccl/control/wire.h"

namespace hccl::control {
namespace {

Claim claim_of(const Roster& all, std::uint32_t node, std::uint32_t rank) {
  const Roster::Node& its = all.nodes[node];
  const Roster::Host& host = all.hosts[its.host];
  return {rank, its.pid, host.machine, host.address, its.started, its.attempt};
}
Claim claim_of(const Roster& all, std::uint32_t node) {
  const RankSet& ranks = all.nodes[node].ranks;
  return claim_of(all, node, ranks.empty() ? 0 : ranks.lowest());
}

}  // namespace

void Seek::settle_root() {
  next_ = deadline_;
  if (!wrong_.ok()) return end(wrong_);
  while (joining() && judged_ < all_.roster().nodes.size()) admit(judged_++);
  if (!joining() || size_ == 0) return;
  const bool whole = taken_.count() >= size_ && !leaving_;
  if (whole ? !stands() : now_ < deadline_) return;
  auto roster = all_.finished(size_, all_.ranks() - taken_);
  if (roster.ok() && roster->node_of.size() != size_) {
    return end({Code::kInternal, "two processes have one rank"});
  }
  if (roster.ok()) return come_in(std::make_shared<const Roster>(std::move(*roster)), false);
  const RankSet went = went_ - taken_;
  const std::string died = went.empty() ? "" : "; died while joining: " + went.text();
  end({roster.status().code(), roster.status().message() + died});
}

Status Seek::other_version(const std::string& name, std::uint32_t version) {
  return {Code::kPara, "EI0008: version mismatch: " + name + " speaks protocol " +
                           std::to_string(version) + ", the root " + std::to_string(kJoinVersion)};
}

// Answers a rank of an old version in the form that the rank understands.
bool Seek::hear_hello(LineId id, ByteReader& in) {
  const auto version = in.get<std::uint32_t>();
  static_cast<void>(in.get<std::uint32_t>());  // the size
  static_cast<void>(in.get_text(kAgreementCap));
  const auto rank = in.get<std::uint32_t>();
  if (!in.ok() || version == 0 || version > kLastHello || root_) return false;
  const Status why = other_version("rank " + std::to_string(rank), version);
  send(id, encode(Kind::kHelloRefused, why), true);
  return end(why), true;
}

std::vector<std::uint32_t> Seek::admitted() const {
  std::vector<std::uint32_t> nodes;
  for (std::uint32_t node = 0; node < all_.roster().nodes.size(); ++node) {
    if (admitted_.count(process_of(all_.roster(), node)) != 0) nodes.push_back(node);
  }
  return nodes;
}

// Recomputes the admitted processes after processes have gone or were refused. A refused process
// stays in all_ for a moment. A process that has gone and comes back is judged again.
void Seek::recount() {
  const Roster& all = all_.roster();
  std::map<Process, RankSet> here;
  taken_ = {};
  leaving_ = false;
  for (std::uint32_t node = 0; node < all.nodes.size(); ++node) {
    const Process process = process_of(all, node);
    leaving_ = leaving_ || refused_.count(process) != 0;
    const auto judged = admitted_.find(process);
    if (judged == admitted_.end()) continue;
    taken_ |= here[process] = judged->second & all.nodes[node].ranks;
  }
  admitted_ = std::move(here);
}

// All processes that one agent has started must belong to one attempt, and no two processes may
// claim one rank. Otherwise the newcomer is refused, earlier processes are refused, or the world
// ends.
void Seek::admit(std::uint32_t node) {
  const Roster& all = all_.roster();
  const Process process = process_of(all, node);
  const RankSet ranks = all.nodes[node].ranks;
  const auto judged = admitted_.find(process);
  if (judged != admitted_.end() && judged->second == ranks) return;
  if (const auto old = refused_.find(process); old != refused_.end()) {
    return send_away(process, Status(old->second));
  }
  const RankSet fresh = judged == admitted_.end() ? ranks : ranks - judged->second;
  std::map<Process, Status> away;
  const Claim its = claim_of(all, node);
  const auto last =
      attempts_.try_emplace({its.machine, its.attempt.agent}, its.attempt.number).first;
  const bool one = its.attempt.agent == 0 || last->second == its.attempt.number;
  last->second = std::max(last->second, its.attempt.number);
  const bool alone = one && (fresh & taken_).empty();  // saves time in the usual case
  for (const std::uint32_t other : alone ? std::vector<std::uint32_t>() : admitted()) {
    if (other == node) continue;
    const Claim first = claim_of(all, other), second = claim_of(all, node);
    if (is_earlier(second, first)) return send_away(process, earlier_attempt(second, first));
    const RankSet both = all.nodes[other].ranks & ranks;
    if (is_earlier(first, second)) {
      away.emplace(process_of(all, other), earlier_attempt(first, second));
    } else if (!both.empty()) {
      const Claim one = claim_of(all, other, both.lowest());
      const Claim two = claim_of(all, node, both.lowest());
      const Goes goes = who_goes(one, two);
      if (goes == Goes::kBoth) return end_contested(two_claims(one, two));
      if (goes == Goes::kSecond) return send_away(process, two_claims(one, two));
      away.emplace(process_of(all, other), two_claims(one, two));
    }
  }
  admitted_[process] = ranks;
  taken_ |= ranks;
  for (const auto& [each, why] : away) send_away(each, why);
}

// A process that is left over from an earlier attempt is refused alone. In other cases the ranks of
// two jobs may have met already, and neither job can go on.
Seek::Goes Seek::who_goes(const Claim& first, const Claim& second) const {
  const Roster& all = all_.roster();
  const Claim root = claim_of(all, 0);
  const std::vector<std::uint32_t> nodes = admitted();
  const bool left_over =
      is_older(second, root) && std::ranges::all_of(nodes, [&](std::uint32_t node) {
        const Claim each = claim_of(all, node);
        return each.machine != root.machine || is_older(second, each);
      });
  if (left_over || is_earlier(second, first)) return Goes::kSecond;
  const bool replaced = is_older(first, second) && is_older(first, root);
  return replaced || is_earlier(first, second) ? Goes::kFirst : Goes::kBoth;
}

void Seek::end_contested(const Status& why) {
  if (claimants_.remember) claimants_.remember();
  end(why);
}

// Called when each rank has an admitted process. Another process, which has not come yet, may claim
// one of these ranks, too: then the world waits for that process, ends, or begins without that
// process. Returns whether the world begins.
bool Seek::stands() {
  if (!claimants_.find) return true;
  const Roster& all = all_.roster();
  std::vector<Claim> claims(size_);
  std::vector<Process> owners(size_);
  for (const std::uint32_t node : admitted()) {
    for (const std::uint32_t rank : (all.nodes[node].ranks & RankSet::range(0, size_)).ranks()) {
      claims[rank] = claim_of(all, node, rank);
      owners[rank] = process_of(all, node);
    }
  }
  for (const Claim& each : claimants_.find(claims, own_.hosts[0].machine)) {
    if (each.rank >= size_ || admitted_.count(owners[each.rank]) == 0) continue;
    const Status why = two_claims(claims[each.rank], each);
    const Goes goes = who_goes(claims[each.rank], each);
    if (goes == Goes::kBoth) return end_contested(why), false;
    if (goes == Goes::kFirst) send_away(owners[each.rank], why);
  }
  return taken_.count() >= size_ && !leaving_;
}

void Seek::send_away(const Process& process, const Status& why) {
  if (process == process_of(own_, 0)) return end(why);
  refused_.try_emplace(process, why);
  admitted_.erase(process);
  recount();
  pass_away(process, why);
}

}  // namespace hccl::control
