#include "hccl/join/membership.h"

#include <algorithm>
#include <iterator>

namespace hccl::join {
namespace {

using wire::failure_frame;
using wire::Kind;

// When the ranks in an exchange first get the list of awaited ranks, and how often after that.
constexpr std::chrono::seconds kFirstWord{2};
constexpr std::chrono::seconds kNextWord{30};

ByteWriter frame_of(Kind kind) { return ByteWriter().put(kind); }

std::string list(const std::vector<std::uint32_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == 64) return text + ", … (" + std::to_string(ranks.size()) + " in all)";
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

std::vector<std::uint32_t> empty_places(const auto& places) {
  std::vector<std::uint32_t> empty;
  for (std::uint32_t i = 0; i < places.size(); ++i) {
    if (!places[i]) empty.push_back(i);
  }
  return empty;
}

void put_indices(ByteWriter& out, const std::vector<std::uint32_t>& indices) {
  out.put(static_cast<std::uint32_t>(indices.size()));
  for (const std::uint32_t index : indices) out.put(index);
}

void append(Membership::Outs& outs, Membership::Outs more) {
  std::move(more.begin(), more.end(), std::back_inserter(outs));
}

}  // namespace

bool Membership::finished() const {
  if (!gave_up_) return complete_ && connections_.empty();
  return now_ >= *deadline_ || (size_ != 0 && told_ >= size_);
}

std::string Membership::name_of(std::uint32_t rank) const {
  std::string text = "rank " + std::to_string(rank);
  if (rank < members_.size() && members_[rank]) {
    text += " (" + members_[rank]->address + " pid " + std::to_string(members_[rank]->pid) + ")";
  }
  return text;
}

// The coordinator's process may end as soon as its own ranks have an answer, which may tell of a
// failure. The other ranks would then learn only of that end.
std::vector<int> Membership::own_last(std::vector<int> connections) const {
  std::ranges::stable_partition(connections,
                                [this](int each) { return !is_own(connections_.at(each)); });
  return connections;
}

std::vector<int> Membership::here() const {
  std::vector<int> all;
  for (const auto& [connection, rank] : connections_) all.push_back(connection);
  return own_last(std::move(all));
}

Membership::Outs Membership::refuse(int connection, const Status& why) const {
  ByteWriter out = frame_of(Kind::kRefused);
  wire::put(out, why);
  return {{connection, out.take(), true}};
}

// Tells the ranks that have come that the world will not exist.
Membership::Outs Membership::refuse_all(const Status& why) {
  Outs outs;
  const wire::Frame frame = refuse(-1, why).front().frame;
  for (const int connection : here()) outs.push_back({connection, frame, true});
  connections_.clear();
  gave_up_ = true;
  why_gave_up_ = why;
  return outs;
}

// Ranks that were started differently never become a world: all of them get the error at once.
Membership::Outs Membership::give_up(int connection, const Status& why) {
  Outs outs = refuse(connection, why);
  if (complete_ || gave_up_) return outs;
  append(outs, refuse_all(why));
  told_ = static_cast<std::uint32_t>(outs.size());
  if (!deadline_) deadline_ = after(patience_);
  return outs;
}

Membership::Outs Membership::frame(int connection, std::string_view bytes, Time now) {
  pass(now);
  ByteReader in(bytes);
  const auto kind = in.get<Kind>();
  if (left_.count(connection) != 0) return {};  // it waits for the other ranks, and still beats
  const auto at = connections_.find(connection);
  if (at == connections_.end()) {
    return kind == Kind::kHello ? hello(connection, in) : drop(connection);
  }
  const std::uint32_t rank = at->second;
  if (!complete_) return drop(connection);  // a rank sends only its hello before the table
  silence_.insert_or_assign(connection, after(peer_timeout_));
  switch (kind) {
    case Kind::kBeat:
      return {};
    case Kind::kExchange:
      return exchange(connection, in);
    case Kind::kFailure:
      return failure(rank, in);
    case Kind::kStall:
      return stall(rank, in);
    case Kind::kRefusal:
      return refusal(rank, in);
    case Kind::kEnd: {
      std::string last = in.get_text(wire::kTextCap);
      if (!in.finished()) return drop(connection);
      ends_[rank] = std::move(last);
      gone_.emplace(rank, now_);
      return {};
    }
    case Kind::kSummons:
      return summons(connection, in);
    case Kind::kLeave: {
      left_.insert(connection);
      gone_.emplace(rank, now_);
      Outs outs = forget(connection, rank);  // its end is no death any more
      append(outs, to_members(frame_of(Kind::kLeave).put(rank).take()));
      return outs;
    }
    default:
      return drop(connection);
  }
}

// A rank has gone: it gets no answers, and ranks that have left no longer wait for it.
Membership::Outs Membership::forget(int connection, std::uint32_t rank) {
  connections_.erase(connection);
  for (auto& [key, gathering] : gatherings_) std::erase(gathering.connections, connection);
  Outs outs;
  const wire::Frame gone = frame_of(Kind::kLeave).put(rank).take();
  for (const int each : left_) outs.push_back({each, gone});
  return outs;
}

Membership::Outs Membership::drop(int connection) {
  Outs outs = closed(connection);
  outs.push_back({connection, {}, true});
  return outs;
}

Membership::Outs Membership::send_table() {
  std::uint32_t coordinator_rank = size_;
  for (std::uint32_t r = 0; r < size_ && coordinator_rank == size_; ++r) {
    if (is_own(r)) coordinator_rank = r;
  }
  ByteWriter out = frame_of(Kind::kTable);
  out.put(size_).put(coordinator_rank);
  for (const auto& member : members_) wire::put(out, *member);
  const wire::Frame table = out.take();
  Outs outs;
  for (const int connection : here()) {
    outs.push_back({connection, table});
    silence_.insert_or_assign(connection, after(peer_timeout_));
  }
  next_beat_ = after(wire::beat_interval(peer_timeout_));
  return outs;
}

// Tells the ranks that the coordinator is alive.
Membership::Outs Membership::beat() {
  if (now_ < next_beat_) return {};
  next_beat_ = after(wire::beat_interval(peer_timeout_));
  return to_members(frame_of(Kind::kBeat).take());
}

Membership::Outs Membership::exchange(int connection, ByteReader& in) {
  const auto key = in.get<Uuid>();
  const auto size = in.get<std::uint32_t>();
  const auto index = in.get<std::uint32_t>();
  const auto patience = in.get<std::uint64_t>();  // nanoseconds
  std::string part = in.get_text(wire::kBlobCap);
  std::string members = in.get_text(wire::kRanksCap / 8);
  const bool makes_group = in.get<std::uint8_t>() != 0;
  const bool known = gatherings_.count(key) != 0;
  if (!in.finished() || size == 0 || size > size_ || index >= size ||
      (!known && gatherings_.size() >= wire::kScopesCap)) {
    return drop(connection);
  }
  // The exchange has failed, and its other ranks no longer wait.
  const auto over = failed_.find(key);
  if (over != failed_.end()) return {{connection, failure_frame(key, over->second)}};
  Gathering& gathering = gatherings_[key];
  if (!known) {
    gathering.parts.resize(size);
    gathering.deadline =
        after(std::chrono::nanoseconds(std::min<std::uint64_t>(patience, 1ull << 62)));
    gathering.next_word = after(kFirstWord);
    gathering.since = now_;
    gathering.members = std::move(members);
    gathering.makes_group = makes_group;
  }
  if (gathering.parts.size() != size || gathering.parts[index]) return drop(connection);
  gathering.parts[index] = std::move(part);
  gathering.connections.push_back(connection);
  gathering.came.insert(connections_.at(connection));
  if (++gathering.arrived < size) return {};
  ByteWriter out = frame_of(Kind::kExchange);
  out.put(key).put(std::uint32_t{0}).put(size);
  for (const auto& each : gathering.parts) out.put_text(*each);
  const wire::Frame answer = out.take();
  Outs outs;
  for (const int each : own_last(gathering.connections)) outs.push_back({each, answer});
  if (makes_group && !group_refusals_.empty()) {
    group_refusals_.met(wire::ranks_in(gathering.members));
  }
  gatherings_.erase(key);
  return outs;
}

Membership::Outs Membership::tell_all(const Uuid& scope, const Status& why, int except) {
  if (failed_.count(scope) != 0 && scope != kEverything) return {};
  if (failed_.size() >= wire::kScopesCap) failed_.clear();  // it only saves messages
  failed_.insert_or_assign(scope, why);
  return to_members(failure_frame(scope, why), except);
}

Membership::Outs Membership::failure(std::uint32_t rank, ByteReader& in) {
  const auto scope = in.get<Uuid>();
  const Status why = wire::get_status(in);
  // Only the coordinator declares deaths.
  if (!in.finished() || scope == kEverything) return drop(connection_of_[rank]);
  if (why.code() == Code::kRemote && why.culprit() == static_cast<int>(rank)) {  // it has left
    gatherings_.erase(scope);
    return tell_all(scope, why);
  }
  if (why.code() == Code::kRemote) return broken(rank, scope, why);
  if (why.code() != Code::kTimeout) return tell_all(scope, why, connection_of_[rank]);
  // Only the coordinator knows the absent ranks; the rank that reports waits for their names.
  std::vector<std::uint32_t> absent = missing(scope, rank);
  std::string text = why.message();
  // Where data is lost on its way, ranks wait in different operations.
  std::erase_if(absent, [&](std::uint32_t each) {
    const std::string call = elsewhere(scope, rank, each);
    if (!call.empty()) text += "; rank " + std::to_string(each) + " is in " + call;
    return !call.empty();
  });
  if (absent.empty()) return tell_all(scope, Status(why.code(), text, why.culprit()));
  return tell_all(
      scope, Status(why.code(), text + "; these did not call it (world ranks): " + list(absent),
                    absent.size() == 1 ? static_cast<int>(absent[0]) : why.culprit()));
}

Membership::Outs Membership::closed(int connection, const std::string& cut) {
  silence_.erase(connection);
  left_.erase(connection);
  const auto at = connections_.find(connection);
  if (at == connections_.end()) return {};
  const std::uint32_t rank = at->second;
  Outs outs = forget(connection, rank);
  if (!complete_) {
    // The rank may come again until the world is complete.
    members_[rank].reset();
    connection_of_[rank] = -1;
    --present_;
    return {};
  }
  const auto end = ends_.find(rank);
  std::string how = end == ends_.end() ? " died or was cut off" : ended(end->second);
  if (!cut.empty()) how = " was cut off: " + cut;
  const Status why(Code::kRemote, name_of(rank) + how, static_cast<int>(rank));
  append(outs, tell_all(kEverything, why));
  return outs;
}

Membership::Outs Membership::fail(const Status& why) {
  if (gave_up_) return {};
  if (!complete_) {
    Outs outs = refuse_all(why);
    told_ = static_cast<std::uint32_t>(outs.size());
    if (!deadline_) deadline_ = after(patience_);
    return outs;
  }
  Outs outs = to_members(failure_frame(kEverything, why));
  for (Out& each : outs) each.close = true;
  return outs;
}

Membership::Outs Membership::tick(Time now) {
  pass(now);
  Outs outs = expel_silent();
  append(outs, beat());
  append(outs, end_joining());
  append(outs, end_vain());
  append(outs, end_gatherings());
  append(outs, say_awaited());
  append(outs, judge_broken());
  return outs;
}

// Refuses the ranks that came, if the time for joining is over.
Membership::Outs Membership::end_joining() {
  if (complete_ || gave_up_ || !deadline_ || now_ < *deadline_) return {};
  const std::vector<std::uint32_t> absent = empty_places(members_);
  return refuse_all(
      Status(Code::kTimeout,
             "EI0015: " + std::to_string(absent.size()) + " of " + std::to_string(size_) +
                 " ranks did not join within HCCL_CONNECT_TIMEOUT; absent: " + list(absent)));
}

// One rank a host, the first that came, if many ranks are late: each of them logs a line.
std::vector<int> Membership::speakers(const Gathering& gathering) const {
  constexpr std::size_t kMany = 8;
  if (gathering.parts.size() - gathering.arrived <= kMany) return gathering.connections;
  std::set<std::string_view> hosts;
  std::vector<int> first;
  for (const int connection : gathering.connections) {
    if (hosts.insert(members_[connections_.at(connection)]->host).second) {
      first.push_back(connection);
    }
  }
  return first;
}

// Long before an exchange's time is over, its ranks get the list of awaited ranks.
Membership::Outs Membership::say_awaited() {
  Outs outs;
  for (auto& [key, gathering] : gatherings_) {
    if (now_ < gathering.next_word) continue;
    gathering.next_word = after(kNextWord);
    ByteWriter out = frame_of(Kind::kAwaited);
    out.put(key);
    put_indices(out, empty_places(gathering.parts));
    const wire::Frame awaited = out.take();
    for (const int connection : speakers(gathering)) outs.push_back({connection, awaited});
  }
  return outs;
}

// Answers exchanges whose time is over, with the absent indices.
Membership::Outs Membership::end_gatherings() {
  Outs outs;
  std::erase_if(gatherings_, [&](const auto& each) {
    const auto& [key, gathering] = each;
    if (now_ < gathering.deadline) return false;
    const std::vector<std::uint32_t> absent = empty_places(gathering.parts);
    ByteWriter out = frame_of(Kind::kExchange);
    out.put(key);
    put_indices(out, absent);
    const wire::Frame answer = out.take();
    for (const int connection : own_last(gathering.connections)) {
      outs.push_back({connection, answer});
    }
    return true;
  });
  return outs;
}

}  // namespace hccl::join
