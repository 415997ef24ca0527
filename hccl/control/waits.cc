#include "hccl/control/waits.h"

#include <algorithm>

#include "hccl/control/wire.h"

namespace hccl::control {
namespace {

// A waiting rank reports more often than this.
constexpr std::chrono::seconds kReportIsNew{1};

// The most calls in the text of a circle.
constexpr std::size_t kCalls = 6;

bool of_one_communicator(const Uuid& a, const Uuid& b) {
  return communicator_of(a) == communicator_of(b);
}

// An operation in which ranks have waited for long.
struct LongWait {
  const Waits::Operation* operation;
  RankSet waiting, awaited;
  std::vector<std::size_t> next;  // the operations in which awaited ranks wait
  std::size_t tried = 0;          // the number of entries of `next` that have been searched
  enum { kNew, kOnPath, kDone } state = kNew;
};

std::string rank_text(const RankSet& ranks) { return "rank " + std::to_string(ranks.lowest()); }

std::string circle_text(const std::vector<const LongWait*>& circle) {
  std::string text;
  for (std::size_t i = 0; i < std::min(circle.size(), kCalls); ++i) {
    const LongWait& here = *circle[i];
    const LongWait& next = *circle[(i + 1) % circle.size()];
    const LongWait& previous = *circle[(i + circle.size() - 1) % circle.size()];
    text += (i == 0 ? "" : ", ") + rank_text(here.waiting & previous.awaited) + " waits for " +
            rank_text(here.awaited & next.waiting) + " in " + here.operation->call;
  }
  return text + (circle.size() > kCalls ? ", …" : "");
}

bool is_long(const Waits::Report& report, Time now, std::chrono::nanoseconds patience) {
  return now - report.since >= patience && now - report.reported < kReportIsNew;
}

const Waits::Report& report_of(const Waits::Operation& operation, std::uint32_t rank) {
  return *std::ranges::find_if(operation.reports,
                               [rank](const auto& each) { return each.waiting.contains(rank); });
}

}  // namespace

Uuid communicator_of(const Uuid& scope) {
  Uuid first = scope;
  std::fill(first.begin() + first.size() / 2, first.end(), 0);
  return first;
}

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

bool Waits::is_long(const Wait& wait, Time now, std::chrono::nanoseconds patience) const {
  const Operation* const operation = at(wait.scope, wait.number);
  return operation != nullptr && std::ranges::any_of(operation->reports, [&](const Report& each) {
           return control::is_long(each, now, patience);
         });
}

std::optional<std::string> Waits::circle(const Uuid& scope, Time now,
                                         std::chrono::nanoseconds patience) const {
  std::vector<LongWait> all;
  std::map<std::uint32_t, std::vector<std::size_t>> in;  // by waiting rank: its operations
  for (auto its = scopes_.lower_bound(communicator_of(scope));
       its != scopes_.end() && of_one_communicator(its->first, scope); ++its) {
    for (const auto& [number, operation] : its->second) {
      LongWait here{&operation, {}, {}, {}};
      for (const Report& each : operation.reports) {
        if (!control::is_long(each, now, patience)) continue;
        here.waiting |= each.waiting;
        here.awaited |= each.awaited;
      }
      if (here.waiting.empty()) continue;
      here.awaited -= operation.waiting();
      for (const std::uint32_t rank : here.waiting.ranks()) in[rank].push_back(all.size());
      all.push_back(std::move(here));
    }
  }
  for (LongWait& each : all) {
    for (const std::uint32_t rank : each.awaited.ranks()) {
      const auto known = in.find(rank);
      if (known == in.end()) continue;
      each.next.insert(each.next.end(), known->second.begin(), known->second.end());
    }
  }
  for (LongWait& start : all) {
    std::vector<LongWait*> path{&start};
    while (!path.empty()) {
      LongWait& here = *path.back();
      if (here.state == LongWait::kNew) here.state = LongWait::kOnPath;
      if (here.state == LongWait::kDone || here.tried == here.next.size()) {
        here.state = LongWait::kDone;
        path.pop_back();
        continue;
      }
      LongWait& next = all[here.next[here.tried++]];
      if (next.state == LongWait::kOnPath) {
        return circle_text({std::ranges::find(path, &next), path.end()});
      }
      if (next.state == LongWait::kNew) path.push_back(&next);
    }
  }
  return std::nullopt;
}

}  // namespace hccl::control
