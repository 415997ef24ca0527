// What a node of the control tree says to its neighbours, and does with what they say.
#include <algorithm>

#include "hccl/control/relay.h"
#include "hccl/control/wire.h"

namespace hccl::control {
namespace {

constexpr std::chrono::milliseconds kMergeWaits{100};
constexpr std::size_t kKeptCap = 2 * kScopesCap;

std::string body_of(const Gatherings::Key& key, const Gathering& sum, const Status* why) {
  ByteWriter out;
  out.put(key.group).put(key.number);
  if (why != nullptr) out.put(static_cast<std::uint8_t>(why->ok()));
  if (why != nullptr && !why->ok()) put(out, *why);
  put(out, sum);
  return out.take();
}

}  // namespace

void Relay::send(LineId id, Kind kind, std::string_view body) {
  Line* line = neighbours_.find(id);
  if (line == nullptr) return;
  step_.outs.push_back({id, neighbours_.seal(*line, kind, tree_.root(), body, now_), false});
}

void Relay::up(Kind kind, std::string_view body) {
  if (state_ == State::kRoot) {
    ByteReader in(body);
    static_cast<void>(decide(kind, in));
  } else if (parent_ != kNoLine) {
    send(parent_, kind, body);
  }
}

// Everything that this node knows, so that an answer to it may be what is new only.
void Relay::put_known(ByteWriter& out) const {
  put(out, tree_.gone());
  put(out, news_);
}

ByteWriter Relay::adopt_body() const {
  ByteWriter out;
  const bool passed = tree_.lives(tree_.root().node) && !tree_.rules();
  out.put(node_).put(passed ? tree_.root().epoch : 0);
  put(out, below());
  put_known(out);
  return out;
}

Relay::Step Relay::frame(LineId id, std::string_view bytes, Time now) {
  return step(now, [&] {
    Line* line = neighbours_.find(id);
    if (line == nullptr) line = &neighbours_.add(id, Role::kStranger, kNodesCap, now);
    ByteReader in(bytes);
    const auto head = neighbours_.unseal(*line, in, now);
    if (!head) return close(id);
    obey(head->root, id);
    hear(id, *line, head->kind, in);
  });
}

// A frame of a kind that does not fit the line was sent before its sender knew better.
void Relay::hear(LineId id, Line& line, Kind kind, ByteReader& in) {
  const bool child = line.role == Role::kChild;
  bool good = true;
  if (kind == Kind::kBye) {
    told_ = told_ || (child && line.unheeded.empty() && news_.left.contains(node_));
    close(id);
  } else if (kind == Kind::kAdopt) {
    good = hear_adopt(id, line, in);
  } else if (kind == Kind::kOffer) {
    good = hear_offer(id, line, in);
  } else if (kind == Kind::kWelcome) {
    good = hear_welcome(id, line, in);
  } else if (kind == Kind::kRefused) {
    good = hear_known(id, in);
    if (good && neighbours_.find(id) != nullptr && id != parent_) close(id);
  } else if (kind == Kind::kNews) {
    good = hear_known(id, in);
  } else if (kind == Kind::kAnswer) {
    good = hear_answer(id, in);
  } else if (child && kind == Kind::kBelow) {
    const auto below = get_ranks(in, static_cast<std::uint32_t>(roster_->nodes.size()));
    good = below.has_value();
    if (good) line.below = *below | RankSet{line.node};
  } else if (child && kind == Kind::kPart) {
    good = hear_part(id, in);
  } else if (child && kind > Kind::kPart) {
    std::string body;
    while (in.ok() && !in.finished()) body += in.get<char>();
    good = hear_up(kind, body);
  }
  if (!good) close(id);
}

bool Relay::hear_known(LineId id, ByteReader& in) {
  const auto nodes = static_cast<std::uint32_t>(roster_->nodes.size());
  const auto gone = get_ranks(in, nodes);
  const auto news = gone ? get_news(in, nodes) : std::nullopt;
  if (news) learn(*gone, *news, id);
  return news.has_value();
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
  ByteWriter known;
  put_known(known);
  if (state_ == State::kOver || news_.dead.contains(node) || !tree_.adopts(node_, node)) {
    send(id, Kind::kRefused, known.bytes());
    return true;
  }
  std::vector<LineId> old;
  for (const auto& [other, its] : neighbours_.lines()) {
    if (other != id && its.node == node && its.role == Role::kChild) old.push_back(other);
  }
  for (const LineId other : old) close(other);
  line.role = Role::kChild;
  line.node = node;
  line.told = now_;
  line.below = *below | RankSet{node};
  send(id, Kind::kWelcome, known.bytes());
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
    ByteWriter known;
    put_known(known);
    send(id, Kind::kRefused, known.bytes());
    return true;
  }
  if (parent_ != kNoLine) say_bye(parent_);
  line.role = Role::kAsked;
  line.node = node;
  send(id, Kind::kAdopt, adopt_body().bytes());
  return true;
}

bool Relay::hear_welcome(LineId id, Line& line, ByteReader& in) {
  if (!hear_known(id, in)) return false;
  if (neighbours_.find(id) == nullptr) return true;
  if (line.role != Role::kAsked || state_ != State::kOrphan || !tree_.lives(line.node)) {
    if (id != parent_) say_bye(id);
    return true;
  }
  std::vector<LineId> others;
  for (const auto& [other, its] : neighbours_.lines()) {
    if (other != id && its.role == Role::kAsked) others.push_back(other);
  }
  for (const LineId other : others) say_bye(other);
  state_ = State::kIn;
  parent_ = id;
  line.role = Role::kParent;
  said_below_ = {};  // what was asked with may have changed
  gatherings_.moved();
  for (const auto& each : gatherings_.last()) {
    say_answer(id, each);
  }
  for (const auto& [kind, body] : kept_) send(id, kind, body);
  return true;
}

// ---- gatherings ----

void Relay::say_answer(LineId to, const Gatherings::Answer& answer) {
  send(to, Kind::kAnswer, body_of(answer.key, answer.sum, &answer.why));
}

// Tells the children that have members below them, and the parent if members are elsewhere.
void Relay::tell_answer(const Gatherings::Answer& answer, LineId from) {
  const RankSet named = answer.sum.named();
  std::vector<LineId> to;
  for (const auto& [id, line] : neighbours_.lines()) {
    const bool down = line.role == Role::kChild && !(ranks_of(line.below) & named).empty();
    if (id != from && (down || (id == parent_ && !ranks_of(below()).contains(named)))) {
      to.push_back(id);
    }
  }
  for (const LineId id : to) say_answer(id, answer);
  if (!(named & roster_->nodes[node_].ranks).empty()) step_.answers.push_back(answer);
}

void Relay::answered(const Gatherings::Answer& answer, LineId from) {
  if (gatherings_.answered(answer)) tell_answer(answer, from);
}

bool Relay::hear_answer(LineId id, ByteReader& in) {
  Gatherings::Answer answer{{in.get<Uuid>(), in.get<std::uint64_t>()}, {}, {}};
  if (in.get<std::uint8_t>() == 0) answer.why = get_status(in);
  auto sum = get_gathering(in, static_cast<std::uint32_t>(roster_->node_of.size()));
  if (!sum) return false;
  answer.sum = std::move(*sum);
  answered(answer, id);
  return true;
}

bool Relay::hear_part(LineId id, ByteReader& in) {
  const Gatherings::Key key{in.get<Uuid>(), in.get<std::uint64_t>()};
  const auto part = get_gathering(in, static_cast<std::uint32_t>(roster_->node_of.size()));
  if (!part) return false;
  const RankSet others = ranks_of(neighbours_.find(id)->below - tree_.gone());
  const bool is_word = !(part->awaited() & others).empty();
  if (const auto over = gatherings_.add(key, *part, now_, is_word)) {
    say_answer(id, *over);
  }
  return true;
}

Relay::Step Relay::gather(const Gatherings::Key& key, const Gathering& part, Time now) {
  return step(now, [&] {
    if (const auto over = gatherings_.add(key, part, now)) step_.answers.push_back(*over);
  });
}

void Relay::answer_due() {
  if (state_ == State::kOver || (state_ == State::kRoot && held_)) return;
  const RankSet gone = ranks_of(tree_.gone());
  const auto due = gatherings_.due({ranks_of(below()), gone, state_ == State::kRoot}, now_);
  for (const auto& each : due.answers) tell_answer(each, kNoLine);
  for (const auto& [key, sum] : due.parts) {
    if (parent_ != kNoLine) send(parent_, Kind::kPart, body_of(key, sum, nullptr));
  }
  static_cast<void>(gatherings_.late(now_));
}

// ---- what goes up to the root ----

Relay::Step Relay::report(std::uint32_t rank, const Uuid& scope, const Status& why, Time now) {
  ByteWriter out;
  out.put(scope).put(rank);
  put(out, why);
  return step(now, [&] { static_cast<void>(hear_up(Kind::kReport, out.bytes())); });
}

Relay::Step Relay::ends(std::uint32_t rank, const std::string& last, Time now) {
  ByteWriter out;
  out.put(rank).put_text(std::string_view(last).substr(0, kTextCap));
  return step(now, [&] { static_cast<void>(hear_up(Kind::kEnds, out.bytes())); });
}

Relay::Step Relay::waits(const Wait& wait, Time now) {
  ByteWriter out;
  put(out, wait);
  return step(now, [&] { static_cast<void>(hear_up(Kind::kWait, out.bytes())); });
}

Relay::Step Relay::leave(Time now) {
  ByteWriter out;
  out.put(node_);
  return step(now, [&] { static_cast<void>(hear_up(Kind::kLeave, out.bytes())); });
}

// Waits are merged for a moment. What each rank says once is kept, for the next parent or root.
bool Relay::hear_up(Kind kind, const std::string& body) {
  if (kind == Kind::kWait && state_ != State::kRoot) {
    ByteReader in(body);
    const auto wait = get_wait(in, static_cast<std::uint32_t>(roster_->node_of.size()));
    if (!wait) return false;
    if (waits_.empty()) waits_at_ = now_ + kMergeWaits;
    if (waits_.size() >= kScopesCap) waits_.clear();
    const auto [at, added] = waits_.try_emplace({wait->scope, wait->number, wait->digest}, *wait);
    at->second.waiting |= wait->waiting;
    at->second.awaited |= wait->awaited;
    return true;
  }
  if (kind >= Kind::kReport && keep(kind, body) && kept_.size() < kKeptCap) {
    kept_.emplace(kind, body);
  }
  up(kind, body);
  return true;
}

// Whether the root's decision on it is not known yet.
bool Relay::keep(Kind kind, const std::string& body) {
  ByteReader in(body);
  if (kind == Kind::kReport) {
    return news_.verdicts.count({in.get<Uuid>(), Status::kNobody}) == 0;
  }
  const auto number = in.get<std::uint32_t>();
  if (kind == Kind::kLeave) return !(news_.left | news_.dead).contains(number);
  return number < roster_->node_of.size() && tree_.lives(roster_->node_of[number]);
}

// At the root.
bool Relay::decide(Kind kind, ByteReader& in) {
  const auto ranks = static_cast<std::uint32_t>(roster_->node_of.size());
  if (kind == Kind::kWait) {
    const auto wait = get_wait(in, ranks);
    if (wait) learn({}, verdicts_->waits(*wait, now_), kNoLine);
    return wait.has_value();
  }
  const Uuid scope = kind == Kind::kReport ? in.get<Uuid>() : Uuid{};
  const auto number = in.get<std::uint32_t>();
  if (kind == Kind::kReport) {
    const Status why = get_status(in);
    if (!in.ok() || number >= ranks) return false;
    learn({}, verdicts_->report(number, scope, why, now_), kNoLine);
  } else if (kind == Kind::kEnds) {
    std::string last = in.get_text(kTextCap);
    if (!in.ok() || number >= ranks) return false;
    verdicts_->ends(number, std::move(last), now_);
  } else {
    if (!in.ok() || number >= roster_->nodes.size()) return false;
    if (kind == Kind::kLeave) learn({}, {{}, {number}, {}}, kNoLine);
    if (kind == Kind::kSilent) suspects_.try_emplace(number, now_ + 2 * Neighbours::kBeats);
  }
  return true;
}

}  // namespace hccl::control
