#include "hccl/join/membership.h"

#include <algorithm>

namespace hccl::join {
namespace {

using wire::Kind;

constexpr std::size_t kScopesCap = 4096;  // gatherings or stalled communicators at one time
constexpr Uuid kEverything{};  // scope of a rank's death: all communicators that it is in

ByteWriter frame_of(Kind kind) {
  ByteWriter out;
  out.put(kind);
  return out;
}

std::string list(const std::vector<std::uint32_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == 64) return text + ", … (" + std::to_string(ranks.size()) + " in all)";
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace

Membership::Membership(std::string host, std::uint32_t pid, std::chrono::nanoseconds patience,
                       std::chrono::nanoseconds peer_timeout)
    : host_(std::move(host)), pid_(pid), patience_(patience), peer_timeout_(peer_timeout) {}

std::size_t Membership::cap(int connection) const {
  return connections_.count(connection) != 0 ? wire::kFrameCap : wire::kHelloCap;
}

bool Membership::finished() const {
  if (!gave_up_) return complete_ && connections_.empty();
  return deadline_->expired() || (size_ != 0 && told_ >= size_);
}

std::string Membership::who(std::uint32_t rank) const {
  std::string text = "rank " + std::to_string(rank);
  if (rank < members_.size() && members_[rank]) {
    text += " (" + members_[rank]->address + " pid " + std::to_string(members_[rank]->pid) + ")";
  }
  return text;
}

Membership::Outs Membership::refuse(int connection, const Status& why) const {
  ByteWriter out = frame_of(Kind::kRefused);
  wire::put(out, why);
  return {{connection, out.take(), true}};
}

// Ranks that were started differently never become a world: everybody is told at once, not only the
// one that came last.
Membership::Outs Membership::give_up(int connection, const Status& why) {
  Outs outs = refuse(connection, why);
  if (complete_ || gave_up_) return outs;
  for (const auto& [other, rank] : connections_) {
    for (auto& out : refuse(other, why)) outs.push_back(std::move(out));
  }
  told_ = static_cast<std::uint32_t>(outs.size());
  connections_.clear();
  gave_up_ = true;
  why_gave_up_ = why;
  if (!deadline_) deadline_ = Deadline::after(patience_);
  return outs;
}

Membership::Outs Membership::frame(int connection, std::string_view bytes) {
  ByteReader in(bytes);
  const auto kind = in.get<Kind>();
  const auto at = connections_.find(connection);
  if (at == connections_.end()) {
    if (kind != Kind::kHello) return drop(connection);
    return hello(connection, in);
  }
  const std::uint32_t rank = at->second;
  if (!complete_) return drop(connection);  // nobody has more to say before the table
  silence_.insert_or_assign(connection, Deadline::after(peer_timeout_));
  switch (kind) {
    case Kind::kBeat:
      return {};
    case Kind::kExchange:
      return exchange(connection, in);
    case Kind::kFailure:
      return failure(rank, in);
    case Kind::kStall:
      return stall(rank, in);
    case Kind::kLeave: {
      ByteWriter out = frame_of(Kind::kLeave);
      out.put(rank);
      connections_.erase(connection);  // what follows on this connection is not a death any more
      left_.insert(connection);
      Outs outs;
      for (const auto& [other, r] : connections_) outs.push_back({other, out.bytes()});
      for (const int other : left_) outs.push_back({other, out.bytes()});  // they wait for the rest
      return outs;
    }
    default:
      return drop(connection);
  }
}

Membership::Outs Membership::drop(int connection) {
  Outs outs = closed(connection);
  outs.push_back({connection, {}, true});
  return outs;
}

Membership::Outs Membership::hello(int connection, ByteReader& in) {
  const auto version = in.get<std::uint32_t>();
  if (!in.ok()) return {{connection, {}, true}};
  const auto size = in.get<std::uint32_t>();
  const std::string agreement = in.get_text(2048);
  const wire::Member member = wire::get_member(in);
  if (version != wire::kVersion) {
    return give_up(
        connection,
        Status(Code::kPara, "EI0008: version mismatch: rank " + std::to_string(member.rank) +
                                " speaks protocol " + std::to_string(version) + ", the root " +
                                std::to_string(wire::kVersion)));
  }
  if (!in.finished()) return {{connection, {}, true}};
  if (gave_up_) {
    ++told_;
    return refuse(connection, why_gave_up_);
  }
  if (complete_) {
    return refuse(connection, Status(Code::kUnavail, "rank " + std::to_string(member.rank) +
                                                         " came when joining was over"));
  }
  if (size == 0 || size > wire::kRanksCap || member.rank >= size) {
    return refuse(connection,
                  Status(Code::kPara, "rank " + std::to_string(member.rank) + " of " +
                                          std::to_string(size) + " ranks is impossible"));
  }
  if (size_ == 0) {
    size_ = size;
    agreement_ = agreement;
    agreement_rank_ = member.rank;
    members_.resize(size);
    connection_of_.assign(size, -1);
    deadline_ = Deadline::after(patience_);
  }
  if (size != size_) {
    return give_up(connection,
                   Status(Code::kPara, "EI0016: rank " + std::to_string(member.rank) + " says " +
                                           std::to_string(size) + " ranks, rank " +
                                           std::to_string(agreement_rank_) + " says " +
                                           std::to_string(size_)));
  }
  if (agreement != agreement_) {
    return give_up(
        connection,
        Status(Code::kPara, "EI0016: configuration differs: rank " + std::to_string(member.rank) +
                                " has \"" + agreement + "\", rank " +
                                std::to_string(agreement_rank_) + " has \"" + agreement_ + "\""));
  }
  if (members_[member.rank]) {
    return refuse(connection, Status(Code::kPara, "rank " + std::to_string(member.rank) +
                                                      " is here already: " + who(member.rank)));
  }
  members_[member.rank] = member;
  connection_of_[member.rank] = connection;
  connections_[connection] = member.rank;
  if (++present_ < size_) return {};
  complete_ = true;
  return admit_all();
}

Membership::Outs Membership::admit_all() {
  std::uint32_t hub_rank = size_;
  for (std::uint32_t r = 0; r < size_ && hub_rank == size_; ++r) {
    if (members_[r]->host == host_ && members_[r]->pid == pid_) hub_rank = r;
  }
  ByteWriter out = frame_of(Kind::kTable);
  out.put(size_).put(hub_rank);
  for (const auto& member : members_) wire::put(out, *member);
  Outs outs;
  for (const int connection : connection_of_) {
    outs.push_back({connection, out.bytes()});
    silence_.insert_or_assign(connection, Deadline::after(peer_timeout_));
  }
  next_beat_ = Deadline::after(wire::beat_interval(peer_timeout_));
  return outs;
}

// Tells the ranks that the hub is alive.
Membership::Outs Membership::beat() {
  if (!next_beat_.expired()) return {};
  next_beat_ = Deadline::after(wire::beat_interval(peer_timeout_));
  Outs outs;
  for (const auto& [connection, rank] : connections_) {
    outs.push_back({connection, frame_of(Kind::kBeat).take()});
  }
  return outs;
}

// A stopped process keeps its connections: only its silence tells.
Membership::Outs Membership::bury_silent() {
  Outs outs;
  for (auto at = connections_.begin(); complete_ && at != connections_.end();) {
    const auto [connection, rank] = *at++;
    const auto silence = silence_.find(connection);
    if (silence == silence_.end() || !silence->second.expired()) continue;
    connections_.erase(connection);
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(peer_timeout_).count();
    const Status why(Code::kRemote,
                     who(rank) + " has given no sign of life for " + std::to_string(seconds) +
                         " s (HCCL_PEER_TIMEOUT): it is stopped, or cut off",
                     static_cast<int>(rank));
    for (auto& out : flood(kEverything, why, -1)) outs.push_back(std::move(out));
    // Should it wake up, it hears that it was given up.
    ByteWriter expelled = frame_of(Kind::kFailure);
    expelled.put(kEverything);
    wire::put(expelled, why);
    outs.push_back({connection, expelled.take(), true});
  }
  return outs;
}

Membership::Outs Membership::exchange(int connection, ByteReader& in) {
  const auto key = in.get<Uuid>();
  const auto size = in.get<std::uint32_t>();
  const auto index = in.get<std::uint32_t>();
  const auto patience = in.get<std::uint64_t>();  // nanoseconds
  std::string part = in.get_text(wire::kBlobCap);
  const bool known = gatherings_.count(key) != 0;
  if (!in.finished() || size == 0 || size > size_ || index >= size ||
      (!known && gatherings_.size() >= kScopesCap)) {
    return drop(connection);
  }
  Gathering& gathering = gatherings_[key];
  if (!known) {
    gathering.parts.resize(size);
    gathering.deadline =
        Deadline::after(std::chrono::nanoseconds(std::min<std::uint64_t>(patience, 1ull << 62)));
  }
  if (gathering.parts.size() != size || gathering.parts[index]) return drop(connection);
  gathering.parts[index] = std::move(part);
  gathering.connections.push_back(connection);
  if (++gathering.arrived < size) return {};
  ByteWriter out = frame_of(Kind::kExchange);
  out.put(key).put(std::uint32_t{0}).put(size);
  for (const auto& each : gathering.parts) out.put_text(*each);
  Outs outs;
  for (const int each : gathering.connections) outs.push_back({each, out.bytes()});
  gatherings_.erase(key);
  return outs;
}

Membership::Outs Membership::flood(const Uuid& scope, const Status& why, int except) {
  if (failed_.count(scope) != 0 && scope != kEverything) return {};
  if (failed_.size() >= kScopesCap) failed_.clear();  // it only saves messages
  failed_[scope] = true;
  ByteWriter out = frame_of(Kind::kFailure);
  out.put(scope);
  wire::put(out, why);
  Outs outs;
  for (const auto& [connection, rank] : connections_) {
    if (connection != except) outs.push_back({connection, out.bytes()});
  }
  return outs;
}

Membership::Outs Membership::failure(std::uint32_t rank, ByteReader& in) {
  const auto scope = in.get<Uuid>();
  const Status why = wire::get_status(in);
  // Deaths are for the hub alone to see.
  if (!in.finished() || scope == kEverything) return drop(connection_of_[rank]);
  if (why.code() != Code::kTimeout) return flood(scope, why, connection_of_[rank]);
  // Only here is known who did not come; the rank that asks waits for that.
  const std::vector<std::uint32_t> absent = missing(scope, rank);
  if (absent.empty()) return flood(scope, why, -1);
  return flood(
      scope,
      Status(why.code(), why.message() + "; these did not call it (world ranks): " + list(absent),
             absent.size() == 1 ? static_cast<int>(absent[0]) : why.culprit()),
      -1);
}

// Who is waited for in the witness's operation and does not wait in it.
std::vector<std::uint32_t> Membership::missing(const Uuid& scope, std::uint32_t witness) const {
  const auto at = stalls_.find(scope);
  if (at == stalls_.end() || at->second.count(witness) == 0) return {};
  const std::uint64_t sequence = at->second.at(witness).sequence;
  std::set<std::uint32_t> absent;
  for (const auto& [rank, stall] : at->second) {
    if (stall.sequence == sequence) absent.insert(stall.awaited.begin(), stall.awaited.end());
  }
  for (const auto& [rank, stall] : at->second) {
    if (stall.sequence == sequence) absent.erase(rank);
  }
  return {absent.begin(), absent.end()};
}

Membership::Outs Membership::stall(std::uint32_t rank, ByteReader& in) {
  const auto scope = in.get<Uuid>();
  const auto sequence = in.get<std::uint64_t>();
  std::string call = in.get_text(wire::kTextCap);
  std::vector<std::uint32_t> awaited(
      std::min<std::size_t>(in.get<std::uint32_t>(), wire::kAwaitedCap));
  for (std::uint32_t& each : awaited) each = in.get<std::uint32_t>();
  const bool sane = std::all_of(awaited.begin(), awaited.end(),
                                [this](std::uint32_t each) { return each < size_; });
  if (!in.finished() || !sane) return drop(connection_of_[rank]);
  // Old communicators' reports are worth nothing; those that still wait report again.
  if (stalls_.size() >= kScopesCap && stalls_.count(scope) == 0) stalls_.clear();
  auto& calls = stalls_[scope];
  for (const auto& [other, theirs] : calls) {
    if (other == rank || theirs.sequence != sequence || theirs.call == call) continue;
    const Status why(Code::kPara, "EI0005: the ranks' calls differ: rank " + std::to_string(rank) +
                                      " called " + call + ", rank " + std::to_string(other) +
                                      " called " + theirs.call + " (world ranks)");
    stalls_.erase(scope);
    return flood(scope, why, -1);
  }
  calls[rank] = {sequence, std::move(call), std::move(awaited)};
  return {};
}

Membership::Outs Membership::closed(int connection) {
  silence_.erase(connection);
  left_.erase(connection);
  const auto at = connections_.find(connection);
  if (at == connections_.end()) return {};
  const std::uint32_t rank = at->second;
  connections_.erase(at);
  if (!complete_) {
    // It may come again while the others are still awaited.
    members_[rank].reset();
    connection_of_[rank] = -1;
    --present_;
    return {};
  }
  return flood(kEverything,
               Status(Code::kRemote, who(rank) + " died or was cut off", static_cast<int>(rank)),
               -1);
}

Membership::Outs Membership::tick() {
  Outs outs = bury_silent();
  for (auto& out : beat()) outs.push_back(std::move(out));
  if (!complete_ && !gave_up_ && deadline_ && deadline_->expired()) {
    std::vector<std::uint32_t> absent;
    for (std::uint32_t r = 0; r < size_; ++r) {
      if (!members_[r]) absent.push_back(r);
    }
    const Status why(
        Code::kTimeout,
        "EI0015: " + std::to_string(absent.size()) + " of " + std::to_string(size_) +
            " ranks did not join within HCCL_CONNECT_TIMEOUT; absent: " + list(absent));
    for (const auto& [connection, rank] : connections_) {
      for (auto& out : refuse(connection, why)) outs.push_back(std::move(out));
    }
    connections_.clear();
    gave_up_ = true;
    why_gave_up_ = why;
  }
  for (auto at = gatherings_.begin(); at != gatherings_.end();) {
    if (!at->second.deadline.expired()) {
      ++at;
      continue;
    }
    ByteWriter out = frame_of(Kind::kExchange);
    std::vector<std::uint32_t> absent;
    for (std::uint32_t i = 0; i < at->second.parts.size(); ++i) {
      if (!at->second.parts[i]) absent.push_back(i);
    }
    out.put(at->first).put(static_cast<std::uint32_t>(absent.size()));
    for (const std::uint32_t i : absent) out.put(i);
    for (const int connection : at->second.connections) outs.push_back({connection, out.bytes()});
    at = gatherings_.erase(at);
  }
  return outs;
}

}  // namespace hccl::join
