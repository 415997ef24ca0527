// The part of a Relay that only the root uses: it waits for all nodes, decides, and sends the
// decisions.
#include <algorithm>

#include "hccl/control/relay.h"

namespace hccl::control {
namespace {

constexpr std::chrono::seconds kOfferAgain{1};
constexpr std::chrono::seconds kAfterStop{5};  // ends that become known within this time
constexpr std::size_t kOffers = 32;            // the most offers in one turn
constexpr std::size_t kMany = 8;  // if more ranks are late, one rank of each host logs them

}  // namespace

void Relay::become_root() {
  state_ = State::kRoot;
  const auto others = neighbours_.those([](LineId, const Line& line) {
    return line.role == Role::kParent || line.role == Role::kAsked;
  });
  parent_ = kNoLine;
  for (const LineId id : others) say_bye(id);
  verdicts_.emplace(roster_, tree_.root().epoch, neighbours_.peer_timeout());
  static_cast<void>(verdicts_->heard(news_));
  verdicts_->left(ranks_of(news_.left) | news_.left_ranks, now_);
  verdicts_->hold();
  held_ = true;
  held_until_ = now_ + kGrace;
  census_at_ = now_ + kTurnUp;
  spread({}, {}, kNoLine);
  const auto kept = kept_;
  for (const auto& [kind, body] : kept) decide(kind, *get_up(kind, ByteReader(body)));
  for (const auto& [key, known] : refusals_.all()) verdicts_->refused(known.refusal);
}

// Another node is the root now. If this node has no child, no other node has this node's last
// verdicts on communicators, so this node drops the verdicts.
void Relay::step_down() {
  const bool alone = std::ranges::none_of(
      neighbours_.lines(), [](const auto& each) { return each.second.role == Role::kChild; });
  for (Untold& untold : untold_) {
    std::erase_if(untold.news.verdicts, [&](const auto& each) {
      const bool own = alone && each.second.epoch == verdicts_->epoch();
      if (own && each.first.first != kEverything) news_.verdicts.erase(each.first);
      return own && each.first.first != kEverything;
    });
  }
  verdicts_.reset();
  suspects_.clear();
  held_ = false;
  become_orphan();
  tell_ranks();
}

RankSet Relay::missing() const {
  const auto nodes = static_cast<std::uint32_t>(roster_->nodes.size());
  return RankSet::range(0, nodes) - tree_.gone() - below();
}

// A cut of the network silences a node and the nodes below it at the same time. So a missing node
// below `silent` counts as silent once a dial has no answer, without a peer timeout of its own.
void Relay::suspect(std::uint32_t silent) {
  suspects_.try_emplace(silent, now_ + neighbours_.beats());
  for (const std::uint32_t node : missing().ranks()) {
    const auto above = roster_->ancestors(node);
    if (std::ranges::find(above, silent) == above.end()) continue;
    absent_[node].since = now_ - neighbours_.peer_timeout() - neighbours_.beats();
  }
}

// A missing node that answers no dial is silent a beat after the peer timeout, because its last
// frame may have come a whole beat before it was stopped.
void Relay::note_absent() {
  const RankSet all = missing();
  std::erase_if(absent_, [&](const auto& each) { return !all.contains(each.first); });
  for (const std::uint32_t node : all.ranks()) {
    const Absent& its = absent_.try_emplace(node, Absent{now_}).first->second;
    if (its.unanswered && now_ >= its.since + neighbours_.peer_timeout() + neighbours_.beats()) {
      suspects_.try_emplace(node, now_);
    }
  }
}

// If this process was stopped for too long, the others may have gone on without it, and have ended
// before it runs again. The text of a rank's end then says so. Empty: it was not stopped.
std::string Relay::after_stop() const {
  const RankSet& own = roster_->nodes[node_].ranks;
  if (own.empty() || stop_.length.count() == 0 || now_ > stop_.end + kAfterStop) return {};
  const auto seconds = [](auto time) {
    return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count());
  };
  return ", after rank " + std::to_string(own.lowest()) + " had not run for " +
         seconds(stop_.length) + " s (HCCL_PEER_TIMEOUT is " + seconds(neighbours_.peer_timeout()) +
         " s)";
}

// Nodes below this node that have left a frame without an acknowledgement for too long.
RankSet Relay::nodes_in_doubt() const {
  RankSet all;
  for (const auto& [id, line] : neighbours_.lines()) {
    if (line.role == Role::kChild) all |= line.skipped ? RankSet{line.node} : line.in_doubt;
  }
  return all - tree_.gone();
}

// A cut in the network that has silenced one node may silence others. After two beats, each
// silenced node is missing or has left a beat without an acknowledgement; until then the ranks of
// all other nodes are in doubt.
RankSet Relay::ranks_in_doubt() const {
  const auto all = static_cast<std::uint32_t>(roster_->node_of.size());
  if (now_ < silenced_ + 2 * neighbours_.beats()) {
    return RankSet::range(0, all) - roster_->nodes[node_].ranks;
  }
  return ranks_of(missing() | nodes_in_doubt());
}

void Relay::rule() {
  // An earlier root that is not below this node does not answer, so it was passed over. There is no
  // need to wait for it: other nodes have the decisions that it sent.
  const bool all_here = (missing() - tree_.ruled()).empty() &&
                        std::ranges::all_of(neighbours_.lines(), [](const auto& each) {
                          return each.second.role != Role::kChild || each.second.unheeded.empty();
                        });
  const bool leaves = news_.left.contains(node_);  // the successor decides
  if (leaves) verdicts_->hold();
  if (held_ && !leaves && (all_here || now_ >= held_until_)) {
    held_ = false;
    parts_by_ = now_ + kTurnUp;
    learn({}, verdicts_->release(), kNoLine);
  }
  note_absent();
  const RankSet here = below();
  std::erase_if(suspects_, [&](const auto& each) {
    return here.contains(each.first) || !tree_.lives(each.first);
  });
  census();
  if (held_ || leaves) return;
  RankSet silent;
  for (const auto& [node, when] : suspects_) {
    if (now_ >= when) silent |= {node};
  }
  const RankSet ended = tree_.gone() - news_.dead - news_.left;
  if (!(ended | silent).empty()) {
    News news{ended | silent, {}, {}, {}, silent - ended};
    news.merge(verdicts_->died(ranks_of(ended), {}, after_stop()));
    const auto timeout =
        std::chrono::duration_cast<std::chrono::seconds>(neighbours_.peer_timeout());
    news.merge(verdicts_->died(ranks_of(silent),
                               " has given no sign of life for " + std::to_string(timeout.count()) +
                                   " s (HCCL_PEER_TIMEOUT): it is stopped, or cut off"));
    learn({}, news, kNoLine);
  }
  learn({}, verdicts_->tick(now_), kNoLine);
  judge_gatherings();
}

// Dials the nodes that are missing in the tree, to become their parent or to learn that they are
// gone.
void Relay::census() {
  const RankSet all = missing();
  if (all.empty()) {
    census_at_ = Time::max();
  } else if (census_at_ == Time::max()) {
    census_at_ = now_ + kTurnUp;
  } else if (now_ >= census_at_) {
    census_at_ = now_ + kOfferAgain;
    RankSet offered;
    for (const auto& [id, line] : neighbours_.lines()) {
      if (line.role == Role::kOffered) offered |= {line.node};
    }
    auto nodes = (all - offered).ranks();
    if (nodes.size() > kOffers) nodes.resize(kOffers);
    // A root that was passed over may have children that still obey it.
    const RankSet passed = all & tree_.ruled();
    for (const std::uint32_t node : nodes) {
      dial(node, Why::kOffer, passed.empty() ? kNodesCap : passed.lowest());
    }
  }
}

// The arrived ranks that log the late ranks: all arrived ranks or, if many ranks are late, the
// lowest arrived rank on each host.
RankSet Relay::speakers(const Gatherings::Late& late) const {
  if (late.awaited.count() <= kMany) return late.arrived;
  std::map<std::uint32_t, std::uint32_t> first;  // by host
  for (const std::uint32_t rank : late.arrived.ranks()) {
    first.try_emplace(roster_->nodes[roster_->node_of[rank]].host, rank);
  }
  std::vector<std::uint32_t> all;
  for (const auto& [host, rank] : first) all.push_back(rank);
  return RankSet(std::move(all));
}

void Relay::judge_gatherings() {
  if (gatherings_.open().empty()) return;
  std::vector<std::pair<Gatherings::Key, Status>> vain;
  const RankSet dead = news_.dead_ranks(), gone = gone_ranks();
  for (const auto& [key, open] : gatherings_.open()) {
    const bool awaits_all = open.sum.awaits_all();
    auto why = awaits_all ? verdicts_->vain(open, now_) : std::nullopt;
    const auto known = news_.verdicts.find({key.group, Status::kNobody});  // has failed
    if (known != news_.verdicts.end()) why = known->second.why;
    if (!why && now_ - open.since >= kForgiving) {
      why = refusals_.find(open.sum, now_ - kForgiving, gone);
    }
    const RankSet died = open.sum.awaited() & dead;
    if (!why && awaits_all && !died.empty()) {
      const auto death = news_.verdicts.find({kEverything, static_cast<int>(died.lowest())});
      if (death != news_.verdicts.end()) why = death->second.why;
    }
    if (why) vain.emplace_back(key, *why);
  }
  for (const auto& [key, why] : vain) {
    const auto refused = refusals_.numbers(gatherings_.open().at(key).sum.awaited());
    tell_answer(gatherings_.fail(key, why, refused), kNoLine);
  }
}

}  // namespace hccl::control
