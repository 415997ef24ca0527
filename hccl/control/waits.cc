#include "hccl/control/waits.h"

#include <algorithm>

#include "hccl/control/wire.h"

namespace hccl::control {
namespace {

// A waiting rank reports more often than this.
constexpr std::chrono::seconds kReportIsNew{1};

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
  std::map<Time, RankSet> before;  // the ranks, by the time of their previous report
  RankSet& first = before[Time::min()] = wait.waiting;
  for (const Report& old : operations[wait.number].reports) {
    const RankSet again = old.waiting & wait.waiting;
    if (!again.empty()) before[old.reported] |= again;
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
  for (const auto& [time, ranks] : before) {
    if (!ranks.empty()) operation.reports.push_back({ranks, wait.awaited, time, now});
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
  // The collectives of a communicator and its messages have different scopes with equal first
  // halves.
  for (const auto& [other, operations] : scopes_) {
    if (!std::equal(scope.begin(), scope.begin() + scope.size() / 2, other.begin())) continue;
    const Place* const place = of(other, rank);
    if (place != nullptr && is_new(*place)) return place->second.call;
  }
  return {};
}

}  // namespace hccl::control
