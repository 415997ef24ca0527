// The frames of a Relay: their contents, and the effect of each on the node that receives it.
#include "hccl/control/relay.h"
#include "hccl/control/wire.h"

namespace hccl::control {

void Relay::send(LineId id, Kind kind, std::string_view body) {
  Line* line = neighbours_.find(id);
  if (line == nullptr) return;
  step_.outs.push_back({id, neighbours_.seal(*line, kind, tree_.root(), body, now_), false});
}

std::string Relay::adopt_body() const {
  const bool passed = tree_.lives(tree_.root().node) && !tree_.rules();
  const std::uint32_t epoch = passed ? tree_.root().epoch : 0;
  return encode(node_, epoch, below(), tree_.gone(), news_);
}

Relay::Step Relay::frame(LineId id, std::string_view bytes, Time now) {
  return step(now, [&] {
    Line* line = neighbours_.find(id);
    if (line == nullptr) line = &neighbours_.add(id, Role::kStranger, kNodesCap, now);
    ByteReader in(bytes);
    const auto head = neighbours_.unseal(*line, in, now);
    if (!head) return close(id);
    obey(head->root, id);
    // After this node was stopped, its buffer may hold frames of a parent that is dead now. Nodes
    // that did not get these frames may have another root and other news. So the frames wait until
    // the parent has shown that it lives.
    if (id != parent_ || proof_ == 0) return digest(id, bytes);
    doubted_.emplace_back(bytes);
    if (line->heeded < proof_) return;
    proof_ = 0;
    for (const auto& each : std::exchange(doubted_, {})) digest(id, each);
  });
}

void Relay::digest(LineId id, std::string_view bytes) {
  Line* line = neighbours_.find(id);  // a node that has become the root has no parent
  if (line == nullptr) return;
  const auto kind = static_cast<Kind>(bytes.front());
  if (!hear(id, *line, kind, bytes.substr(Neighbours::kHeadBytes))) close(id);
}

// Returns whether the bytes are valid. Ignores a kind that does not fit the line's role: the sender
// did not know yet that the role had changed.
bool Relay::hear(LineId id, Line& line, Kind kind, std::string_view body) {
  ByteReader in(body);
  const bool child = line.role == Role::kChild, kin = child || id == parent_;
  const bool fresh = line.role == Role::kStranger || line.role == Role::kOffered;
  if (kind == Kind::kBye) {
    const bool heeds = line.knows_farewell() && news_.left.contains(node_);
    told_ = told_ || (child && heeds && tree_.lives(line.node));
    close(id);
    return true;
  }
  if (kind == Kind::kAdopt) return !fresh || hear_adopt(id, line, in);
  if (kind == Kind::kOffer) return line.role != Role::kStranger || hear_offer(id, line, in);
  if (kind == Kind::kWelcome) return hear_welcome(id, line, in);
  if (kind == Kind::kRefused && id != parent_) return hear_known(id, in) && (close(id), true);
  if (kind == Kind::kNews) return !kin || hear_known(id, in);
  if (kind == Kind::kAnswer) return (!kin && line.role != Role::kAsked) || hear_answer(id, in);
  if (kind == Kind::kAwaited) return id != parent_ || hear_awaited(in);
  if (!child) return true;
  if (kind == Kind::kPart) return hear_part(id, in);
  if (kind > Kind::kPart) return hear_up(kind, body);
  if (kind != Kind::kBelow) return in.finished();
  const auto nodes = static_cast<std::uint32_t>(roster_->nodes.size());
  const auto below = get_ranks(in, nodes), in_doubt = get_ranks(in, nodes);
  if (!below || !in_doubt || !in.finished()) return false;
  line.below = *below | RankSet{line.node};
  line.in_doubt = *in_doubt;
  return true;
}

bool Relay::hear_known(LineId id, ByteReader& in) {
  const auto nodes = static_cast<std::uint32_t>(roster_->nodes.size());
  const auto gone = get_ranks(in, nodes);
  const auto news = gone ? get_news(in, nodes) : std::nullopt;
  if (!news || !in.finished()) return false;
  learn(*gone, *news, id);
  return true;
}

bool Relay::hear_adopt(LineId id, Line& line, ByteReader& in) {
  const auto nodes = static_cast<std::uint32_t>(roster_->nodes.size());
  const auto node = in.get<std::uint32_t>();
  const auto passed = in.get<std::uint32_t>();  // the epoch of a root that does not answer
  const auto below = get_ranks(in, nodes);
  if (!below || node >= nodes) return false;
  if (!hear_known(id, in)) return false;
  if (neighbours_.find(id) == nullptr) return true;
  if (passed == tree_.root().epoch && state_ != State::kRoot) {
    Tree would = tree_;
    would.pass_over();
    if (would.successor() == node_) tree_.pass_over();
  }
  if (state_ != State::kOver && state_ != State::kRoot && tree_.succeeds(node_)) become_root();
  // Everything that this node knows. Later frames on the line have only additions.
  const std::string known = encode(tree_.gone(), news_);
  if (state_ == State::kOver || news_.dead.contains(node) || !tree_.adopts(node_, node)) {
    // The other nodes that had this node's answers may be dead.
    if (news_.left.contains(node_)) {
      for (const auto* each : gatherings_.last()) say_answer(id, *each);
    }
    send(id, Kind::kRefused, known);
    return true;
  }
  const auto old = neighbours_.those([&](LineId at, const Line& its) {
    return at != id && its.node == node && its.role == Role::kChild;
  });
  for (const LineId other : old) close(other);
  line.role = Role::kChild;
  line.node = node;
  line.told = now_;
  line.below = *below | RankSet{node};
  send(id, Kind::kWelcome, known);
  return true;
}

// A node takes an offer if it has no parent, or if its parent does not answer the sender.
bool Relay::hear_offer(LineId id, Line& line, ByteReader& in) {
  const auto node = in.get<std::uint32_t>();
  const auto skipped = in.get<std::uint32_t>();
  if (node >= roster_->nodes.size() || !hear_known(id, in)) return false;
  if (neighbours_.find(id) == nullptr) return true;
  const Line* parent = neighbours_.find(parent_);
  const bool takes = state_ == State::kOrphan || (parent != nullptr && parent->node == skipped);
  if (!takes || !tree_.adopts(node, node_)) {
    send(id, Kind::kRefused, encode(tree_.gone(), news_));
    return true;
  }
  if (parent_ != kNoLine) say_bye(parent_);
  line.role = Role::kAsked;
  line.node = node;
  line.told = now_;
  send(id, Kind::kAdopt, adopt_body());
  return true;
}

bool Relay::hear_welcome(LineId id, Line& line, ByteReader& in) {
  if (!hear_known(id, in)) return false;
  if (neighbours_.find(id) == nullptr) return true;
  if (line.role != Role::kAsked || state_ != State::kOrphan || !tree_.lives(line.node)) {
    if (id != parent_) say_bye(id);
    return true;
  }
  const auto others = neighbours_.those(
      [id](LineId other, const Line& its) { return other != id && its.role == Role::kAsked; });
  for (const LineId other : others) say_bye(other);
  state_ = State::kIn;
  parent_ = id;
  proof_ = 0;
  doubted_.clear();
  line.role = Role::kParent;
  said_below_ = {};  // the set in kAdopt may be out of date
  if (learned_ >= line.told) send(id, Kind::kNews, encode(tree_.gone(), news_));
  gatherings_.moved();
  for (const auto* each : gatherings_.last()) say_answer(id, *each);
  for (const auto& [kind, body] : kept_) send(id, kind, body);
  for (const auto& [key, known] : refusals_.all()) say_refusal(known.refusal);
  return true;
}

// ---- gatherings ----

void Relay::say_answer(LineId to, const Gatherings::Answer& answer) {
  const auto& [key, sum, why] = answer;
  send(to, Kind::kAnswer,
       why.ok() ? encode(key.group, key.number, std::uint8_t{1}, sum)
                : encode(key.group, key.number, std::uint8_t{0}, why, sum));
}

// Sends the answer to children with members below them, and to the parent if members are elsewhere.
void Relay::tell_answer(const Gatherings::Answer& answer, LineId from) {
  const RankSet named = answer.sum.named();
  const bool elsewhere = !ranks_of(below()).contains(named);
  const auto to = neighbours_.those([&](LineId id, const Line& line) {
    const bool down = line.role == Role::kChild && !(ranks_of(line.below) & named).empty();
    return id != from && (down || (id == parent_ && elsewhere));
  });
  for (const LineId id : to) say_answer(id, answer);
  const RankSet& own = roster_->nodes[node_].ranks;
  if ((named & own).empty()) return;
  tell_own(answer);
  for (const Refusal& each : refusals_.over(answer, own)) hear_refusal(each);
}

// An error may follow from news that this node's ranks do not have. The ranks get the news first.
void Relay::tell_own(const Gatherings::Answer& answer) {
  const bool may_follow = !answer.why.ok() && !untold_.empty();
  (may_follow ? untold_.back().answers : step_.answers).push_back(answer);
}

void Relay::answered(const Gatherings::Answer& answer, LineId from) {
  if (gatherings_.answered(answer)) tell_answer(answer, from);
}

bool Relay::hear_answer(LineId id, ByteReader& in) {
  Gatherings::Answer answer{{in.get<Uuid>(), in.get<std::uint64_t>()}, {}, {}};
  if (in.get<std::uint8_t>() == 0) answer.why = get_status(in);
  auto sum = get_gathering(in, static_cast<std::uint32_t>(roster_->node_of.size()));
  if (!sum || !in.finished()) return false;
  answer.sum = std::move(*sum);
  answered(answer, id);
  return true;
}

bool Relay::hear_part(LineId id, ByteReader& in) {
  const Gatherings::Key key{in.get<Uuid>(), in.get<std::uint64_t>()};
  const auto part = get_gathering(in, static_cast<std::uint32_t>(roster_->node_of.size()));
  if (!part || !in.finished()) return false;
  const RankSet others = ranks_of(neighbours_.find(id)->below - tree_.gone());
  const bool partial = !(part->awaited() & others).empty();
  if (const auto over = gatherings_.add(key, *part, now_, partial)) {
    say_answer(id, *over);
  }
  return true;
}

Relay::Step Relay::gather(const Gatherings::Key& key, const Gathering& part, Time now) {
  return step(now, [&] {
    Gathering own = part;
    if ((part.flags & kMakesGroup) != 0) own.refused = refusals_.numbers(part.arrived);
    if (const auto over = gatherings_.add(key, own, now)) tell_own(*over);
  });
}

void Relay::answer_due() {
  if (gatherings_.open().empty()) return;
  if (state_ == State::kOver || (state_ == State::kRoot && held_)) return;
  const RankSet gone = gone_ranks();
  Gatherings::Place place{ranks_of(below()), gone, state_ == State::kRoot};
  place.parts_by = parts_by_;
  place.silent = ranks_of(news_.silent);
  if (place.root && !place.silent.empty()) place.in_doubt = ranks_in_doubt();
  for (const auto& [key, open] : gatherings_.open()) {
    if (refusals_.find(open.sum, Time::max(), gone)) place.vain.insert(key);
  }
  const auto due = gatherings_.due(place, now_);
  for (const auto& each : due.answers) tell_answer(each, kNoLine);
  for (const auto& [key, sum] : due.parts) {
    if (parent_ != kNoLine) send(parent_, Kind::kPart, encode(key.group, key.number, sum));
  }
  for (const auto& each : gatherings_.late(now_)) {
    const RankSet awaited = each.awaited - gone;
    if (state_ == State::kRoot && !awaited.empty()) {
      tell_late({each.key, speakers(each), awaited});
    }
  }
}

// Sends the list of late ranks to the nodes of the arrived ranks, which log the list.
void Relay::tell_late(const Gatherings::Late& late) {
  const auto& [key, arrived, awaited] = late;
  const std::string body = encode(key.group, key.number, arrived, awaited);
  for (const auto& [id, line] : neighbours_.lines()) {
    const bool down = line.role == Role::kChild && !(ranks_of(line.below) & arrived).empty();
    if (down) send(id, Kind::kAwaited, body);
  }
  const RankSet own = arrived & roster_->nodes[node_].ranks;
  if (!own.empty()) step_.late.push_back({key, own, awaited});
}

bool Relay::hear_awaited(ByteReader& in) {
  const auto size = static_cast<std::uint32_t>(roster_->node_of.size());
  const Gatherings::Key key{in.get<Uuid>(), in.get<std::uint64_t>()};
  const auto arrived = get_ranks(in, size), awaited = get_ranks(in, size);
  if (!arrived || !awaited || !in.finished()) return false;
  tell_late({key, *arrived, *awaited});
  return true;
}

}  // namespace hccl::control
