#include "hccl/control/relay.h"

#include <algorithm>
#include <iterator>

#include "hccl/control/wire.h"

namespace hccl::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kAskAgain{300};  // an orphan dials silent nodes again after this time
constexpr milliseconds kAskSoon{20};    // the same after a failed dial
constexpr milliseconds kGiveUp{800};    // an unanswered orphan passes over the root after this time
constexpr milliseconds kSoon{5};
// The root runs every kRootRuns. After kStopped without running, other nodes may have passed over
// the root.
constexpr milliseconds kRootRuns{100}, kStopped{200};
// A node that did not run for this long first reads the frames that have come, and then judges
// other nodes.
constexpr milliseconds kAwake{20};

}  // namespace

Relay::Relay(std::shared_ptr<const Roster> roster, std::uint32_t node,
             std::chrono::nanoseconds peer_timeout, Time now)
    : roster_(std::move(roster)),
      children_(roster_->children()),
      node_(node),
      neighbours_(peer_timeout),
      tree_(roster_),
      now_(now),
      next_(now),
      ran_(now) {
  if (node != 0) return;
  state_ = State::kRoot;
  verdicts_.emplace(roster_, tree_.root().epoch, neighbours_.peer_timeout());
}

Relay::Step Relay::step(Time now, const std::function<void()>& event) {
  if (state_ == State::kOver) return {};
  now_ = now;
  const auto slept = now - std::exchange(ran_, now);
  if (slept >= neighbours_.peer_timeout()) stop_ = {now, slept};
  if (slept > kAwake) judges_at_ = now + kSoon;
  const auto late = neighbours_.ran(next_, now);
  for (Untold& each : untold_) each.since += late;
  for (auto& [node, its] : absent_) its.since += late;
  const Line* parent = neighbours_.find(parent_);
  if (parent != nullptr && slept > neighbours_.beats() + kAwake) {  // a beat is due, which the
                                                                    // parent acknowledges
    proof_ = parent->sent() + 1;
  }
  if (slept > kStopped && state_ == State::kRoot) {
    held_ = true;
    verdicts_->hold();
    held_until_ = now + kGrace;
    census_at_ = now;
    event();
    for (const auto& [id, line] : neighbours_.lines()) send(id, Kind::kBeat);
  } else {
    event();
  }
  if (state_ != State::kOver) settle();
  return std::exchange(step_, {});
}

void Relay::settle() {
  watch();
  leave_if_alone();
  if (state_ == State::kOrphan) seek();
  if (state_ == State::kRoot) rule();
  tell_ranks();
  say_below();  // before parts, because the parent sends answers only to nodes that it knows
  answer_due();
  std::erase_if(step_.late, [this](const auto& each) {
    return gatherings_.open().count(each.key) == 0;  // the ranks have got the answer meanwhile
  });
  if (now_ >= waits_at_ && state_ != State::kOrphan) {
    waits_at_ = Time::max();
    for (const auto& [key, wait] : std::exchange(waits_, {})) pass_on(wait);
  }
  go_if_told();
  next_ = std::min({neighbours_.next(), gatherings_.next(), waits_at_, leaves_at_, leave_by_});
  if (state_ == State::kOrphan) next_ = std::min({next_, seek_at_, give_up_at_});
  if (state_ == State::kRoot) {
    next_ = std::min({next_, Time(now_ + kRootRuns), verdicts_->next()});
  }
  next_ = std::max<Time>(next_, now_ + kSoon);
}

// ---- lines ----

Relay::Step Relay::seated(LineId id, std::uint32_t node, Time now) {
  return step(now, [&] {
    const bool parent = roster_->nodes[node_].parent == node && node_ != 0;
    Line& line = neighbours_.add(id, parent ? Role::kParent : Role::kChild, node, now);
    if (parent) {
      parent_ = id;
      state_ = State::kIn;
      return said_below_ = below(), void();
    }
    std::vector<std::uint32_t> all{node};
    for (std::size_t i = 0; i < all.size(); ++i) {
      all.insert(all.end(), children_[all[i]].begin(), children_[all[i]].end());
    }
    said_below_ |= line.below = RankSet(std::move(all));
  });
}

void Relay::dial(std::uint32_t node, Why why, std::uint32_t skipped) {
  if (node == node_) return;
  const auto [at, added] = dials_.try_emplace(node, Dial{why, skipped});
  if (why > at->second.why) at->second = {why, skipped};
  if (added) step_.dials.push_back(node);
}

Relay::Step Relay::opened(LineId id, std::uint32_t node, Time now) {
  return step(now, [&] {
    const auto known = dials_.extract(node);
    absent_.erase(node);  // it lives: note_absent() begins to count again
    const auto [why, skipped] = known.empty() ? Dial{Why::kProbe, kNodesCap} : known.mapped();
    if (why == Why::kAsk && state_ == State::kOrphan) {
      neighbours_.add(id, Role::kAsked, node, now).told = now;
      return send(id, Kind::kAdopt, adopt_body());
    }
    if (why == Why::kOffer && (skipped != kNodesCap || missing().contains(node))) {
      neighbours_.add(id, Role::kOffered, node, now);
      return send(id, Kind::kOffer, encode(node_, skipped, tree_.gone(), news_));
    }
    step_.outs.push_back({id, {}, true});  // the dial only had to show that the process lives
  });
}

Relay::Step Relay::failed(std::uint32_t node, bool gone, Time now) {
  return step(now, [&] {
    const auto dial = dials_.extract(node);
    if (gone) return learn({node}, {}, kNoLine);
    if (dial.empty()) return;
    if (dial.mapped().why == Why::kAsk) {  // the process may be about to end
      seek_at_ = std::min<Time>(seek_at_, now_ + kAskSoon);
      return;
    }
    // A stopped process does not answer, but lives. The root dials missing nodes again and again.
    if (const auto its = absent_.find(node); its != absent_.end()) its->second.unanswered = true;
  });
}

Relay::Step Relay::closed(LineId id, Time now) {
  return step(now, [&] { lose(id, true); });
}

void Relay::close(LineId id) {
  if (neighbours_.find(id) == nullptr) return;
  step_.outs.push_back({id, {}, true});
  lose(id, false);
}

void Relay::say_bye(LineId id) {
  send(id, Kind::kBye);
  close(id);
}

// Removes a line that has ended. `probe`: dials a child to learn whether its process lives.
void Relay::lose(LineId id, bool probe) {
  const Line* its = neighbours_.find(id);
  if (its == nullptr) return;
  const Line line = *its;
  neighbours_.erase(id);
  if (id == parent_) become_orphan();
  if (line.role == Role::kAsked) seek_at_ = std::min<Time>(seek_at_, now_ + kTurnUp);
  const bool child = line.role == Role::kChild;
  if (probe && child && tree_.lives(line.node)) dial(line.node, Why::kProbe);
}

void Relay::watch() {
  for (const LineId id : neighbours_.those([](LineId, const Line&) { return true; })) {
    Line* line = neighbours_.find(id);
    if (line == nullptr) continue;
    const bool judges = now_ >= judges_at_, unheeded = neighbours_.is_unheeded(*line, now_);
    if (judges && neighbours_.is_silent(*line, now_)) {
      const bool mine = line->role == Role::kChild || line->role == Role::kOffered;
      const std::string node = encode(line->node);
      close(id);
      say_below();  // first, because the root does not suspect a node that is still in the tree
      if (mine) static_cast<void>(hear_up(Kind::kSilent, node));
    } else if (judges && unheeded && line->role == Role::kParent) {
      if (line->node == tree_.root().node) {
        tree_.pass_over();
        absent_[line->node] = {line->heard};
      }
      say_bye(id);
    } else if (judges && unheeded && line->role == Role::kChild && !line->skipped) {
      line->skipped = true;
      offer_below(*line);
    } else if (const auto kind = Neighbours::due(*line, now_)) {
      send(id, *kind);
    }
  }
}

// The child does not answer, so this node offers to become the parent of the nodes below the child.
void Relay::offer_below(const Line& child) {
  const RankSet others = child.below - RankSet{child.node};
  for (const std::uint32_t node : others.ranks()) {
    const auto above = roster_->ancestors(node);
    const bool top =
        std::ranges::none_of(above, [&](std::uint32_t each) { return others.contains(each); });
    if (top && tree_.adopts(node_, node)) dial(node, Why::kOffer, child.node);
  }
}

// ---- knowledge that all nodes share ----

void Relay::obey(const Root& root, LineId from) {
  if (!tree_.heard(root)) return;
  if (state_ == State::kRoot) step_down();
  absent_.clear();
  seek_at_ = now_;
  give_up_at_ = Time::max();
  spread({}, {}, from);
  if (root.node == node_ && tree_.lives(node_)) become_root();  // others obey this node already
}

void Relay::spread(const RankSet& gone, const News& news, LineId from) {
  const std::string body = encode(gone, news);
  for (const auto& [id, line] : neighbours_.lines()) {
    const bool hears = line.role == Role::kParent || line.role == Role::kChild;
    if (id != from && hears) send(id, Kind::kNews, body);
  }
}

void Relay::learn(const RankSet& gone, const News& news, LineId from) {
  const RankSet unknown = gone - tree_.gone() - RankSet{node_};
  const News fresh = news_.merge(news);
  if (unknown.empty() && fresh.empty()) return;
  tree_.gone(unknown | fresh.dead | fresh.left);
  if (verdicts_) {
    static_cast<void>(verdicts_->heard(fresh));
    verdicts_->left(ranks_of(fresh.left) | fresh.left_ranks, now_);
  }
  spread(unknown, fresh, from);
  if (fresh.left.contains(node_)) {
    for (auto& [id, line] : neighbours_.lines()) line.farewell = line.sent();
  }
  untold_.push_back({learned_ = now_, fresh, {}});
  if (!fresh.silent.empty()) silenced_ = now_;
  seek_at_ = now_;
  // A child that leaves closes the line itself, once its neighbours know.
  const auto over = neighbours_.those([this](LineId, const Line& line) {
    return line.role != Role::kStranger && !tree_.lives(line.node) &&
           (line.role != Role::kChild || !news_.left.contains(line.node));
  });
  for (const LineId id : over) say_bye(id);
  if (!news_.dead.contains(node_)) return;
  if (state_ != State::kRoot) tell_ranks();
  go();
}

Relay::Step Relay::summon(const Uuid& scope, Time now) {
  return step(now, [&] {
    News news;
    news.summons.insert(scope);
    learn({}, news, kNoLine);
  });
}

// The root may end before any other node has its decisions. So the root's own ranks get a decision
// only when each child has acknowledged the decision or does not answer, or after kGrace.
void Relay::tell_ranks() {
  const auto& lines = neighbours_.lines();
  const auto waits = [](const auto& each, Time since) {
    const Line& line = each.second;
    if (line.role != Role::kChild || line.skipped || line.unheeded.empty()) return false;
    return line.unheeded.front() <= std::max(since, line.told);
  };
  while (!untold_.empty()) {
    auto& [since, news, answers] = untold_.front();
    const bool answered =
        std::ranges::none_of(lines, [&, at = since](const auto& each) { return waits(each, at); });
    const bool alone = below() == RankSet{node_} && !missing().empty();
    const bool late = now_ >= since + (answered ? Neighbours::kSkip : kGrace);
    if (state_ == State::kRoot && (!answered || alone) && !late) return;
    step_.heard.merge(news);
    std::ranges::move(answers, std::back_inserter(step_.answers));
    untold_.pop_front();
    forget_decided();
  }
}

RankSet Relay::ranks_of(const RankSet& nodes) const {
  std::vector<std::uint32_t> all;
  for (const std::uint32_t node : nodes.ranks()) {
    for (const std::uint32_t rank : roster_->nodes[node].ranks.ranks()) all.push_back(rank);
  }
  return RankSet(std::move(all));
}

RankSet Relay::gone_ranks() const {
  return ranks_of(tree_.gone()) | news_.left_ranks | news_.dead_ranks();
}

RankSet Relay::below() const {
  RankSet all{node_};
  for (const auto& [id, line] : neighbours_.lines()) {
    // Nodes below a child that does not answer get another parent.
    if (line.role == Role::kChild) all |= line.skipped ? RankSet{line.node} : line.below;
  }
  return all - (tree_.gone() - RankSet{node_});
}

bool Relay::is_heeded() const {
  return std::ranges::all_of(neighbours_.lines(), [](const auto& each) {
    const bool kin = each.second.role == Role::kParent || each.second.role == Role::kChild;
    return !kin || each.second.unheeded.empty();
  });
}

void Relay::say_below() {
  if (parent_ == kNoLine) return;
  const RankSet now = below(), doubts = nodes_in_doubt();
  if (now == said_below_ && doubts == said_doubts_) return;
  said_doubts_ = doubts;
  // Members that are no longer below this node may have missed an answer that this node sent down.
  const RankSet lost = ranks_of(std::exchange(said_below_, now) - now - tree_.gone());
  if (!lost.empty()) {
    for (const auto* each : gatherings_.last()) {
      if (!(each->sum.named() & lost).empty()) say_answer(parent_, *each);
    }
  }
  send(parent_, Kind::kBelow, encode(now, doubts));
}

void Relay::leave_if_alone() {
  if (leaves_at_ == Time::max()) return;
  if (now_ < leaves_at_ && below() != RankSet{node_}) return;
  leaves_at_ = Time::max();
  static_cast<void>(hear_up(Kind::kLeave, encode(node_)));
}

// A leaving process ends once its neighbours know that it leaves. If the process is the root, a
// node that stays must know, too.
void Relay::go_if_told() {
  if (!news_.left.contains(node_)) return;
  if (leave_by_ == Time::max()) leave_by_ = now_ + kGrace;
  bool heeded = true;
  for (const auto& [id, line] : neighbours_.lines()) {
    if (line.role != Role::kParent && line.role != Role::kChild) continue;
    heeded = heeded && line.unheeded.empty();
    told_ = told_ || (line.knows_farewell() && tree_.lives(line.node));
  }
  const bool known = told_ || state_ != State::kRoot || missing().empty();
  if ((heeded && known) || now_ >= leave_by_) go();
}

void Relay::go() {
  for (const auto& [id, line] : neighbours_.lines()) step_.outs.push_back({id, {}, true});
  neighbours_.lines().clear();
  state_ = State::kOver;
  next_ = Time::max();
}

// ---- orphans ----

void Relay::become_orphan() {
  parent_ = kNoLine;
  state_ = State::kOrphan;
  seek_at_ = now_;
  give_up_at_ = Time::max();
}

void Relay::seek() {
  if (now_ >= give_up_at_) give_up_asking();
  if (tree_.succeeds(node_)) return become_root();
  if (give_up_at_ == Time::max()) give_up_at_ = now_ + kGiveUp;
  if (now_ < seek_at_) return;
  seek_at_ = now_ + kAskAgain;
  for (const std::uint32_t node : tree_.asks(node_)) {
    const bool asked = std::ranges::any_of(neighbours_.lines(), [node](const auto& each) {
      return each.second.role == Role::kAsked && each.second.node == node;
    });
    if (!asked) dial(node, Why::kAsk);
  }
}

// Passes over the node that does not answer: the root, or the successor that should have taken
// over.
void Relay::give_up_asking() {
  give_up_at_ = Time::max();
  seek_at_ = now_;
  const auto next = tree_.successor();
  if (!tree_.rules() && next && *next != node_) {
    static_cast<void>(tree_.heard({tree_.root().epoch + 1, *next}));
  }
  tree_.pass_over();
}

}  // namespace hccl::control
