#include "hccl/control/waits.h"

#include <algorithm>

#include "hccl/control/wire.h"

namespace hccl::control {
namespace {

// A waiting rank reports more often than this.
constexpr std::chrono::seconds kReportIsNew{1};

// The most calls in the text of a circle.
constexpr std::size_t kCalls = 6;

// The collectives of a communicator and its messages have different scopes with equal first halves.
bool of_one_communicator(const Uuid& a, const Uuid& b) {
  return std::equal(a.begin(), a.begin() + a.size() / 2, b.begin());
}

// An operation in which ranks have waited for long.
struct LongWait {
  const Waits::Operation* operation;
  RankSet waiting, awaited{};
  const LongWait* before = nullptr;  // the operation whose ranks await ranks of this one
};

std::string rank_text(const RankSet& ranks) { return "rank " + std::to_string(ranks.lowest()); }

// The text for a circle that begins with `first`, and of which `last` is the last operation.
std::string circle_text(const LongWait& first, const LongWait& last) {
  std::vector<const LongWait*> all;
  for (const LongWait* each = &last; each != &first; each = each->before) all.push_back(each);
  all.push_back(&first);
  std::ranges::reverse(all);
  std::string text;
  for (std::size_t i = 0; i < std::min(all.size(), kCalls); ++i) {
    const LongWait& here = *all[i];
    const LongWait& next = *all[(i + 1) % all.size()];
    const LongWait& previous = *all[(i + all.size() - 1) % all.size()];
    text += (i == 0 ? "" : ", ") + rank_text(here.waiting & previous.awaited) + " waits for " +
            rank_text(here.awaited & next.waiting) + " in " + here.operation->call;
  }
  return text + (all.size() > kCalls ? ", …" : "");
}

const Waits::Report& report_of(const Waits::Operation& operation, std::uint32_t rank) {
  return *std::ranges::find_if(operation.reports,
                               [rank](const auto& each) { return each.waiting.contains(rank); });
}

}  // namespace

void put(ByteWriter& out, const Wait& wait) {
  out.put(wait.scope).put(wait.number).put(wait.digest);
  out.put_text(std::string_view(wait.call).substr(0, kTextCap));
  put(out, wait.waiting);
  put(out, wait.awaited);
}

std::optional<Wait> get_wait(ByteReader& in, std::uint32_t size) {
  Wait wait{in.get<Uuid>(), in.get<std::uint64_t>(), in.get<Uuid>(), in.get_text(kTextCap), {}, {}};
  auto waiting = get_ranks(in, size), awaited = get_ranks(in, size);
  if (!waiting || !awaited || waiting->empty()) return std::nullopt;
  wait.waiting = std::move(*waiting);
  wait.awaited = std::move(*awaited);
  return wait;
}

RankSet Waits::Operation::waiting() const {
  RankSet all;
  for (const Report& each : reports) all |= each.waiting;
  return all;
}

RankSet Waits::Operation::awaited() const {
  RankSet all;
  for (const Report& each : reports) all |= each.awaited;
  return all - waiting();
}

Status Waits::add(const Wait& wait, Time now) {
  // Forgets reports of old communicators; ranks that still wait report again.
  if (scopes_.size() >= kScopesCap && scopes_.count(wait.scope) == 0) scopes_.clear();
  auto& operations = scopes_[wait.scope];
  // The ranks, by the times of their first and of their previous report.
  std::map<std::pair<Time, Time>, RankSet> times;
  RankSet& first = times[{now, Time::min()}] = wait.waiting;
  for (const Report& old : operations[wait.number].reports) {
    const RankSet again = old.waiting & wait.waiting;
    if (!again.empty()) times[{old.since, old.reported}] |= again;
    first -= again;
  }
  for (auto& [number, operation] : operations) {
    for (Report& old : operation.reports) old.waiting -= wait.waiting;
    std::erase_if(operation.reports, [](const Report& old) { return old.waiting.empty(); });
  }
  std::erase_if(operations, [](const auto& each) { return each.second.reports.empty(); });
  Operation& operation = operations[wait.number];
  if (!operation.reports.empty() && operation.digest != wait.digest) {
    const Status why(Code::kPara, "EI0005: the ranks' calls differ: rank " +
                                      std::to_string(wait.waiting.lowest()) + " called " +
                                      wait.call + ", rank " +
                                      std::to_string(operation.waiting().lowest()) + " called " +
                                      operation.call + " (world ranks)");
    forget(wait.scope);
    return why;
  }
  operation.digest = wait.digest;
  operation.call = wait.call;
  for (const auto& [time, ranks] : times) {
    if (ranks.empty()) continue;
    operation.reports.push_back({ranks, wait.awaited, time.first, time.second, now});
  }
  return {};
}

const Waits::Place* Waits::of(const Uuid& scope, std::uint32_t rank) const {
  const auto operations = scopes_.find(scope);
  if (operations == scopes_.end()) return nullptr;
  const auto its = std::ranges::find_if(
      operations->second, [&](const auto& each) { return each.second.waiting().contains(rank); });
  return its == operations->second.end() ? nullptr : &*its;
}

const Waits::Operation* Waits::at(const Uuid& scope, std::uint64_t number) const {
  const auto operations = scopes_.find(scope);
  if (operations == scopes_.end()) return nullptr;
  const auto its = operations->second.find(number);
  return its == operations->second.end() ? nullptr : &its->second;
}

RankSet Waits::missing(const Uuid& scope, std::uint32_t witness) const {
  const Place* here = of(scope, witness);
  return here == nullptr ? RankSet() : here->second.awaited();
}

std::string Waits::elsewhere(const Uuid& scope, std::uint32_t witness, std::uint32_t rank,
                             Time now) const {
  const Place *here = of(scope, witness), *there = of(scope, rank);
  const auto is_new = [&](const Place& place) {
    return now - report_of(place.second, rank).reported < kReportIsNew;
  };
  if (here == nullptr) return {};
  if (there != nullptr) {
    return there->first > here->first || is_new(*there) ? there->second.call : std::string();
  }
  for (const auto& [other, operations] : scopes_) {
    if (!of_one_communicator(scope, other)) continue;
    const Place* const place = of(other, rank);
    if (place != nullptr && is_new(*place)) return place->second.call;
  }
  return {};
}

std::optional<std::string> Waits::circle(const Uuid& scope, std::uint64_t number, Time now,
                                         std::chrono::nanoseconds patience) const {
  const auto long_wait = [&](const Operation& operation) {
    LongWait all{&operation, {}};
    for (const Report& each : operation.reports) {
      if (now - each.since < patience || now - each.reported >= kReportIsNew) continue;
      all.waiting |= each.waiting;
      all.awaited |= each.awaited;
    }
    all.awaited -= operation.waiting();
    return all;
  };
  const Operation* const mine = at(scope, number);
  if (mine == nullptr) return std::nullopt;
  std::vector<LongWait> all{long_wait(*mine)};
  if (all.front().waiting.empty()) return std::nullopt;
  for (const auto& [other, operations] : scopes_) {
    if (!of_one_communicator(scope, other)) continue;
    for (const auto& [its, operation] : operations) {
      if (&operation != mine) all.push_back(long_wait(operation));
    }
  }
  std::vector<const LongWait*> reached{&all.front()};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (LongWait& each : all) {
      const bool known = &each == &all.front() || each.before != nullptr;
      if (known || (reached[i]->awaited & each.waiting).empty()) continue;
      each.before = reached[i];
      reached.push_back(&each);
      if (!(each.awaited & all.front().waiting).empty()) return circle_text(all.front(), each);
    }
  }
  return std::nullopt;
}

}  // namespace hccl::control
