#include "hccl/control/seek.h"

#include <algorithm>

#include "hccl/control/wire.h"

namespace hccl::control {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBatch{5};     // processes that join within this time are reported together
constexpr milliseconds kGrace{1000};  // other processes wait this much longer than the root
constexpr milliseconds kFirstPause{2}, kLastPause{500};

// The roster of node 0 alone.
Roster top_of(const Roster& sub) {
  Roster top{{sub.hosts[sub.nodes[0].host]}, {sub.nodes[0]}, {}};
  top.nodes[0].host = 0;
  return top;
}

bool is_same(const Roster& a, std::uint32_t node, const Roster& b) {
  const Roster::Node &one = a.nodes[node], &other = b.nodes[0];
  return one.pid == other.pid && one.port == other.port && one.started == other.started &&
         a.hosts[one.host].machine == b.hosts[other.host].machine;
}

std::optional<std::uint32_t> find(const Roster& all, const Roster& process) {
  for (std::uint32_t node = 0; node < all.nodes.size(); ++node) {
    if (is_same(all, node, process)) return node;
  }
  return std::nullopt;
}

}  // namespace

Seek::Seek(Roster own, std::uint32_t size, std::string agreement, std::optional<Place> root,
           std::chrono::nanoseconds patience, Time now, Claimants claimants)
    : own_(std::move(own)),
      size_(size),
      agreement_(std::move(agreement)),
      first_(name_of(own_)),
      root_(std::move(root)),
      patience_(patience),
      state_(root_ ? State::kSeeking : State::kSeated),
      now_(now),
      next_(now),
      deadline_(size == 0 ? Time::max() : now + patience),
      all_(own_),
      fresh_(own_),
      claimants_(std::move(claimants)) {}

Seek::Step Seek::step(Time now, const std::function<void()>& event) {
  now_ = now;
  event();
  if (joining()) root_ ? settle() : settle_root();
  if (!joining()) next_ = Time::max();
  return std::exchange(step_, {});
}

void Seek::settle() {
  if (!wrong_.ok()) return end(wrong_);
  if (now_ >= deadline_ && !to_tell_.ok()) return end(to_tell_);
  if (now_ >= deadline_) {
    const std::string where = to_.address + ":" + std::to_string(to_.port);
    return end(reached_ ? Status(Code::kTimeout, "joining: no word from the root; " + last_)
                        : Status(Code::kTimeout,
                                 "EI0006: the root at " + where + " does not answer: " + last_));
  }
  if (above_ == kNoLine && !dialing_ && now_ >= seek_at_) dial(*root_);
  if (state_ == State::kSeated && now_ >= say_at_) say_above();
  next_ = deadline_;
  if (above_ == kNoLine && !dialing_) next_ = std::min(next_, seek_at_);
  if (state_ == State::kSeated) next_ = std::min(next_, say_at_);
}

// ---- up: the root, and the nodes to which it sends this process ----

void Seek::dial(const Place& to) {
  to_root_ = to.address == root_->address && to.port == root_->port;
  dialing_ = true;
  step_.dial = to_ = to;
}

// The jitter spreads processes that failed at the same time.
void Seek::seek_later() {
  pause_ = std::clamp<std::chrono::nanoseconds>(2 * pause_, kFirstPause, kLastPause);
  seek_at_ = now_ + pause_ + pause_ * (own_.nodes[0].pid % 16) / 16;
}

Seek::Step Seek::opened(LineId id, Time now) {
  return step(now, [&] {
    dialing_ = false;
    if (!joining()) return step_.outs.push_back({id, {}, true});
    if (to_root_ && !std::exchange(reached_, true)) deadline_ = now_ + patience_ + kGrace;
    above_ = id;
    if (!to_tell_.ok()) {
      step_.outs.push_back({id, cannot(to_tell_), false});
      return end(to_tell_);
    }
    send(id, encode(Kind::kAsk, kJoinVersion, size_, agreement_, all_.roster()));
    fresh_ = RosterDraft(own_);
    whole_ = false;
    say_at_ = Time::max();
  });
}

Seek::Step Seek::failed(bool gone, std::string why, Time now) {
  return step(now, [&] {
    dialing_ = false;
    last_ = std::move(why);
    if (!joining()) return;
    if (to_root_ && gone && reached_) {
      return end({Code::kRemote, "the root of the job died while joining"});
    }
    seek_later();
  });
}

bool Seek::hear_above(Kind kind, ByteReader& in) {
  if (!joining()) return true;
  if (kind == Kind::kRefused) {
    const auto alone = in.get<std::uint8_t>();
    const Status why = get_status(in);
    return in.finished() && alone <= 1 && (end(why, alone != 0), true);
  }
  if (kind == Kind::kAway) {
    const Process process{in.get_text(kMachineCap), in.get<std::uint32_t>(),
                          in.get<std::uint16_t>(), in.get<std::uint64_t>()};
    const Status why = get_status(in);
    return state_ == State::kSeated && in.finished() && (pass_away(process, why), true);
  }
  const auto keeps = in.get<std::uint8_t>();
  if (kind == Kind::kRoster) {
    auto roster = get_roster(in);
    if (!roster || !in.finished() || keeps > 1 || roster->node_of.size() != size_) return false;
    const auto node = find(*roster, own_);
    if (!node || *node == 0) return false;
    return come_in(std::make_shared<const Roster>(std::move(*roster)), keeps != 0), true;
  }
  const Place to{in.get_text(kAddressCap), in.get<std::uint16_t>()};
  if (kind != Kind::kSeat || state_ != State::kSeeking || !in.finished() || keeps > 1) return false;
  if (keeps != 0) {
    state_ = State::kSeated;
    pause_ = {};
  } else {
    step_.outs.push_back({std::exchange(above_, kNoLine), {}, true});
    dial(to);
  }
  return true;
}

void Seek::say_above() {
  say_at_ = Time::max();
  const Roster& roster = whole_ ? all_.roster() : fresh_.roster();
  send(above_, encode(Kind::kBelow, std::uint8_t{whole_}, roster));
  fresh_ = RosterDraft(own_);
  whole_ = false;
}

// ---- down ----

Seek::Step Seek::frame(LineId id, std::string_view bytes, Time now) {
  return step(now, [&] {
    ByteReader in(bytes);
    const auto kind = in.get<Kind>();
    if (id == above_ ? hear_above(kind, in) : hear_below(id, kind, in)) return;
    drop(id);
  });
}

bool Seek::hear_below(LineId id, Kind kind, ByteReader& in) {
  const auto child = children_.find(id);
  if (kind == Kind::kCannot) {
    const Status why = get_status(in);
    if (in.finished() && !root_) end(why);
    if (!joining()) return child != children_.end();
    if (in.finished() && above_ != kNoLine) step_.outs.push_back({above_, cannot(why), false});
    if (in.finished() && above_ == kNoLine) to_tell_ = why;
    return false;
  }
  if (child == children_.end() && kind == Kind::kHello) return hear_hello(id, in);
  if (child == children_.end()) return kind == Kind::kAsk && hear_ask(id, in);
  if (!joining()) return true;
  const auto whole = in.get<std::uint8_t>();
  const auto sub = get_roster(in);
  if (kind != Kind::kBelow || !sub || !in.finished() || whole > 1) return false;
  return is_same(child->second.roster(), 0, *sub) && (add(id, *sub, whole != 0), true);
}

bool Seek::hear_ask(LineId id, ByteReader& in) {
  const auto version = in.get<std::uint32_t>(), size = in.get<std::uint32_t>();
  if (!in.ok()) return false;
  const std::string agreement = in.get_text(kAgreementCap);
  const auto sub = get_roster(in);
  const bool good = sub && in.finished() && !sub->hosts[sub->nodes[0].host].address.empty();
  const std::string name = good ? name_of(*sub) : "a process";
  if ((version == kJoinVersion && !good) || alone_) return false;
  Status why = why_;
  if (version != kJoinVersion) {
    why = other_version(name, version);
  } else if (state_ == State::kIn) {
    return send_roster(id, *sub), true;
  } else if (joining() && !root_) {
    if (size == 0 || !(sub->nodes[0].ranks - RankSet::range(0, size)).empty()) {
      return refuse(id, impossible(*sub, size), true), true;
    }
    why = differs(name, size, agreement);
  }
  if (!why.ok()) {
    refuse(id, why);
    if (!root_) end(why);
    return true;
  }
  const auto old = std::ranges::find_if(
      children_, [&](const auto& each) { return is_same(each.second.roster(), 0, *sub); });
  if (old != children_.end()) drop(old->first);
  const auto go_to = seats_.seat(id);
  Place place;
  if (go_to) {
    const Roster& to = children_.at(*go_to).roster();
    place = {to.hosts[0].address, to.nodes[0].port};
  }
  send(id, encode(Kind::kSeat, std::uint8_t{!go_to}, place.address, place.port), go_to.has_value());
  if (go_to) return true;
  children_.try_emplace(id, top_of(*sub));
  return add(id, *sub, false), true;
}

std::string Seek::cannot(const Status& why) { return encode(Kind::kCannot, why); }

void Seek::add(LineId id, const Roster& sub, bool whole) {
  RosterDraft& draft = children_.at(id);
  if (whole) draft = RosterDraft(top_of(sub));
  note(draft.add(sub));
  seats_.announced(static_cast<int>(id), draft.roster().nodes.size());
  if (whole) return rebuild();
  note_grown(sub);
}

// The root judges a process again if it has more ranks now.
void Seek::note_grown(const Roster& sub) {
  std::vector<std::uint32_t> grown;
  note(all_.add(sub, &grown));
  if (root_) note(fresh_.add(sub));
  for (const std::uint32_t node : grown) judged_ = std::min(judged_, node);
  say_at_ = std::min<Time>(say_at_, now_ + kBatch);
}

// Processes below have ended, or moved in the tree: collects the processes again.
void Seek::rebuild() {
  const RankSet before = taken_;
  all_ = fresh_ = RosterDraft(own_);
  for (const auto& [id, draft] : children_) note(all_.add(draft.roster()));
  judged_ = 0;
  if (!root_) recount();
  went_ |= before - taken_;
  whole_ = true;
  say_at_ = std::min<Time>(say_at_, now_ + kBatch);
}

void Seek::note(const Status& why) {
  if (why.ok() || !wrong_.ok()) return;
  wrong_ = why;
}

Seek::Step Seek::closed(LineId id, Time now) {
  return step(now, [&] { lose(id); });
}

void Seek::drop(LineId id) {
  step_.outs.push_back({id, {}, true});
  lose(id);
}

void Seek::lose(LineId id) {
  const bool above = id == above_;
  if (above) above_ = kNoLine;
  if (!joining()) return;
  if (above) {
    state_ = State::kSeeking;
    seek_later();
  } else if (children_.erase(id) != 0) {
    seats_.gone(id);
    rebuild();
  }
}

// ---- the end of joining ----

void Seek::come_in(std::shared_ptr<const Roster> roster, bool keeps) {
  roster_ = std::move(roster);
  node_ = find(*roster_, own_).value_or(0);
  state_ = State::kIn;
  if (keeps) lines_.emplace_back(above_, roster_->nodes[node_].parent);
  for (const auto& [id, draft] : children_) send_roster(id, draft.roster());
}

// Sends the roster to a child, or to a process that has lost its parent and becomes an orphan.
void Seek::send_roster(LineId id, const Roster& process) {
  const auto node = find(*roster_, process);
  if (!node) return refuse(id, {Code::kUnavail, name_of(process) + " came when joining was over"});
  const bool keeps = children_.count(id) != 0 && roster_->nodes[*node].parent == node_;
  send(id, encode(Kind::kRoster, std::uint8_t{keeps}, *roster_), !keeps);
  if (keeps) lines_.emplace_back(id, *node);
}

void Seek::end(const Status& why, bool alone) {
  if (!joining()) return;
  state_ = State::kOver;
  why_ = why;
  alone_ = alone;
  for (const auto& [id, draft] : children_) {
    alone ? step_.outs.push_back({id, {}, true}) : refuse(id, why);
  }
  if (above_ != kNoLine) step_.outs.push_back({std::exchange(above_, kNoLine), {}, true});
}

void Seek::send(LineId id, std::string frame, bool close) {
  step_.outs.push_back({id, std::move(frame), close});
}

void Seek::refuse(LineId id, const Status& why, bool alone) {
  send(id, encode(Kind::kRefused, std::uint8_t{alone}, why), true);
}

Seek::Process Seek::process_of(const Roster& all, std::uint32_t node) {
  const Roster::Node& its = all.nodes[node];
  return {all.hosts[its.host].machine, its.pid, its.port, its.started};
}

// Refuses a process below this one: a child directly, another process by a frame to the child above
// it. The processes below the refused process join again. Does nothing if the process has gone or
// moved.
void Seek::pass_away(const Process& process, const Status& why) {
  for (const auto& [id, draft] : children_) {
    const Roster& roster = draft.roster();
    std::uint32_t node = 0;
    while (node < roster.nodes.size() && process_of(roster, node) != process) ++node;
    if (node == roster.nodes.size()) continue;
    if (node == 0) {
      refuse(id, why, true);
      return lose(id);
    }
    const auto& [machine, pid, port, started] = process;
    return send(id, encode(Kind::kAway, machine, pid, port, started, why));
  }
}

}  // namespace hccl::control
