#include "hccl/control/neighbours.h"

#include <algorithm>

namespace hccl::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr milliseconds kPunctual{20};      // any thread may be this late
constexpr milliseconds kLatenessCap{250};  // beyond this, the node was stopped, not starved
constexpr seconds kRecent{10};

}  // namespace

Neighbours::Line& Neighbours::add(LineId id, Role role, std::uint32_t node, Time now) {
  return lines_[id] = {.role = role, .node = node, .below = {}, .heard = now, .beat = now + beats_};
}

Neighbours::Line* Neighbours::find(LineId id) {
  const auto at = lines_.find(id);
  return at == lines_.end() ? nullptr : &at->second;
}

std::string Neighbours::seal(Line& line, Kind kind, const Root& root, std::string_view body,
                             Time now) {
  ByteWriter out;
  out.put(kind).put(line.got).put(root.epoch).put(root.node);
  line.owes = Time::max();
  if (kind != Kind::kAck) {
    line.unheeded.push_back(now);
    line.beat = now + beats_;
  }
  return out.take().append(body);
}

std::optional<Neighbours::Head> Neighbours::unseal(Line& line, ByteReader& frame, Time now) {
  Head head{frame.get<Kind>(), {}};
  const auto heeded = frame.get<std::uint32_t>();
  head.root = {frame.get<std::uint32_t>(), frame.get<std::uint32_t>()};
  if (!frame.ok() || head.kind > Kind::kLeave || head.root.epoch > kEpochCap) return std::nullopt;
  if (heeded - line.heeded > line.unheeded.size()) return std::nullopt;
  for (; line.heeded != heeded; ++line.heeded) line.unheeded.pop_front();
  if (line.unheeded.empty()) line.skipped = false;
  line.heard = now;
  if (head.kind != Kind::kAck) {
    ++line.got;
    const bool waits = head.kind == Kind::kNews || head.kind == Kind::kLeave;  // the peer waits
    const bool starves = now < late_until_;  // this node may be late with later acknowledgements
    line.owes = std::min(line.owes, waits || starves ? now : Time(now + kAckIn));
  }
  return head;
}

// Moves all times of the lines by the time in which this node did not run, so that no neighbour is
// blamed.
nanoseconds Neighbours::ran(Time due, Time now) {
  if (now <= due || now - due < kPunctual) return nanoseconds(0);
  const nanoseconds late = now - due;
  lateness_ = std::min<nanoseconds>(late, kLatenessCap);
  late_until_ = now + kRecent;
  for (auto& [id, line] : lines_) {
    line.heard += late;
    line.told += late;
    for (Time& each : line.unheeded) each += late;
  }
  return late;
}

Time Neighbours::skip_at(const Line& line) const {
  if (line.unheeded.empty()) return Time::max();
  const Time sent = line.unheeded.front();
  return sent + kSkip + (sent < late_until_ ? 4 * lateness_ : nanoseconds(0));
}

std::optional<Kind> Neighbours::due(const Line& line, Time now) {
  const bool beats = line.role == Role::kParent || line.role == Role::kChild;
  if (beats && now >= line.beat && line.unheeded.empty()) return Kind::kBeat;
  return now >= line.owes ? std::optional(Kind::kAck) : std::nullopt;
}

Time Neighbours::next() const {
  Time first = Time::max();
  for (const auto& [id, line] : lines_) {
    first = std::min({first, line.owes, line.heard + peer_timeout_});
    const bool watched = line.role == Role::kParent || line.role == Role::kChild;
    if (watched && line.unheeded.empty()) first = std::min(first, line.beat);
    if (watched && !line.skipped) first = std::min(first, skip_at(line));
  }
  return first;
}

}  // namespace hccl::control
