// The frames of ranks and nodes to the root. Each node keeps the frames on which the root has not
// decided yet.
#include "hccl/control/relay.h"
#include "hccl/control/wire.h"

namespace hccl::control {
namespace {

constexpr std::chrono::milliseconds kMergeWaits{100};
constexpr std::size_t kKeptCap = 2 * kScopesCap;

}  // namespace

std::optional<Relay::Up> Relay::get_up(Kind kind, ByteReader in) const {
  Up up;
  if (kind == Kind::kReport) up.scope = in.get<Uuid>();
  up.number = in.get<std::uint32_t>();
  if (kind == Kind::kReport) up.why = get_status(in);
  if (kind == Kind::kEnds) up.last = in.get_text(kTextCap);
  const bool rank = kind >= Kind::kReport && kind < Kind::kLeave;
  const std::size_t end = rank ? roster_->node_of.size() : roster_->nodes.size();
  return in.finished() && up.number < end ? std::optional(std::move(up)) : std::nullopt;
}

Relay::Step Relay::say_up(Kind kind, const std::string& body, Time now) {
  return step(now, [&] { static_cast<void>(hear_up(kind, body)); });
}

Relay::Step Relay::report(std::uint32_t rank, const Uuid& scope, const Status& why, Time now) {
  return say_up(Kind::kReport, encode(scope, rank, why), now);
}

Relay::Step Relay::ends(std::uint32_t rank, const std::string& last, Time now) {
  return say_up(Kind::kEnds, encode(rank, std::string_view(last).substr(0, kTextCap)), now);
}

Relay::Step Relay::say_rank(Kind kind, std::uint32_t rank, Time now) {
  return say_up(kind, encode(rank), now);
}

Relay::Step Relay::refused(std::uint32_t rank, const Uuid& scope, std::uint64_t number,
                           std::string text, Time now) {
  return step(now, [&] { hear_refusal(refusals_.refuse(rank, scope, number, std::move(text))); });
}

void Relay::hear_refusal(const Refusal& refusal) {
  if (news_.verdicts.count({refusal.scope, Status::kNobody}) != 0) return;
  if (!refusals_.heard(refusal, now_)) return;
  if (verdicts_) verdicts_->refused(refusal);
  say_refusal(refusal);
}

void Relay::say_refusal(const Refusal& refusal) {
  if (parent_ == kNoLine || refusal.times == 0) return;
  send(parent_, Kind::kRefusedCall, encode(refusal));
}

Relay::Step Relay::waits(const Wait& wait, Time now) {
  return say_up(Kind::kWait, encode(wait), now);
}

Relay::Step Relay::leave(Time now) {
  return step(now, [&] {
    if (!news_.left.contains(node_)) leaves_at_ = now_ + kTogether;
  });
}

// Merges reports of waits that come within kMergeWaits. Keeps frames that are sent only once, for
// the next parent or for the case that this node becomes the root.
bool Relay::hear_up(Kind kind, std::string_view body) {
  ByteReader in(body);
  if (kind == Kind::kWait) {
    const auto wait = get_wait(in, static_cast<std::uint32_t>(roster_->node_of.size()));
    if (!wait || !in.finished()) return false;
    if (state_ == State::kRoot) return pass_on(*wait), true;
    if (waits_.empty()) waits_at_ = now_ + kMergeWaits;
    if (waits_.size() >= kScopesCap) waits_.clear();
    const auto [at, added] = waits_.try_emplace({wait->scope, wait->number, wait->digest}, *wait);
    at->second.waiting |= wait->waiting;
    at->second.awaited |= wait->awaited;
    return true;
  }
  if (kind == Kind::kRefusedCall) {
    const auto refusal = get_refusal(in, static_cast<std::uint32_t>(roster_->node_of.size()));
    return refusal && in.finished() && (hear_refusal(*refusal), true);
  }
  const auto up = get_up(kind, in);
  if (!up) return false;
  if (kind >= Kind::kReport && keep(kind, *up) && kept_.size() < kKeptCap) {
    kept_.emplace(kind, body);
  }
  if (state_ == State::kRoot) {
    decide(kind, *up);
  } else if (parent_ != kNoLine) {
    send(parent_, kind, body);
  }
  return true;
}

void Relay::pass_on(const Wait& wait) {
  if (state_ == State::kRoot) return learn({}, verdicts_->waits(wait, now_), kNoLine);
  send(parent_, Kind::kWait, encode(wait));
}

// Whether the root's decision on this frame is still unknown.
bool Relay::keep(Kind kind, const Up& up) const {
  if (kind == Kind::kReport) return news_.verdicts.count({up.scope, Status::kNobody}) == 0;
  if (kind == Kind::kLeave) return !(news_.left | news_.dead).contains(up.number);
  if (kind == Kind::kRankLeft && news_.left_ranks.contains(up.number)) return false;
  const bool died = news_.verdicts.count({kEverything, static_cast<int>(up.number)}) != 0;
  return tree_.lives(roster_->node_of[up.number]) && !died;
}

void Relay::forget_decided() {
  refusals_.forget(news_);
  std::erase_if(kept_, [this](const auto& each) {
    return !keep(each.first, *get_up(each.first, ByteReader(each.second)));
  });
}

// Runs only at the root.
void Relay::decide(Kind kind, const Up& up) {
  if (kind == Kind::kReport)
    learn({}, verdicts_->report(up.number, up.scope, up.why, now_), kNoLine);
  if (kind == Kind::kEnds) verdicts_->ends(up.number, up.last, now_);
  if (kind == Kind::kRankLeft) learn({}, {{}, {}, {}, {}, {}, {up.number}}, kNoLine);
  if (kind == Kind::kRankDied) learn({}, verdicts_->died({up.number}), kNoLine);
  if (kind == Kind::kLeave) learn({}, {{}, {up.number}, {}}, kNoLine);
  if (kind == Kind::kSilent) suspect(up.number);
}

}  // namespace hccl::control
