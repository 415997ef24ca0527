#include "hccl/control/refusals.h"

#include <algorithm>
#include <ranges>
#include <string_view>

#include "hccl/control/wire.h"

namespace hccl::control {
namespace {

// Groups the ranks by their numbers; a rank without a number has 0.
std::map<std::int64_t, RankSet> split(const RankSet& ranks, const auto& numbers) {
  std::map<std::int64_t, RankSet> all;
  RankSet rest = ranks;
  for (const auto& [number, its] : std::views::reverse(numbers)) {
    const RankSet found = rest & its;
    if (!found.empty()) all[number] = found;
    rest -= found;
  }
  if (!rest.empty()) all[0] |= rest;
  return all;
}

std::int64_t number(std::uint32_t rank, const auto& numbers) {
  return split({rank}, numbers).begin()->first;
}

void set(std::map<std::int64_t, RankSet>& numbers, std::int64_t number, const RankSet& ranks) {
  for (auto& [old, its] : numbers) its -= ranks;
  if (number != 0) numbers[number] |= ranks;
  std::erase_if(numbers, [](const auto& each) { return each.second.empty(); });
}

// The ranks that have refused fewer calls for groups than refusal.rank since both last made a group
// together (refusal.met). `refused`: other ranks, by the number of calls that they have refused.
RankSet fewer(const Refusal& refusal, const std::map<std::int64_t, RankSet>& refused) {
  RankSet all;
  for (const auto& [times, ranks] : refused) {
    for (const auto& [past, its] : split(ranks, refusal.met)) {
      if (refusal.times - times - past > 0) all |= its;
    }
  }
  return all;
}

}  // namespace

void put(ByteWriter& out, const Refusal& refusal) {
  out.put(refusal.scope).put(refusal.rank).put(refusal.version).put(refusal.number);
  out.put(refusal.times).put_text(std::string_view(refusal.text).substr(0, kTextCap));
  out.put(static_cast<std::uint32_t>(refusal.met.size()));
  for (const auto& [number, ranks] : refusal.met) put(out.put(number), ranks);
}

std::optional<Refusal> get_refusal(ByteReader& in, std::uint32_t size) {
  Refusal refusal{in.get<Uuid>(),
                  in.get<std::uint32_t>(),
                  in.get<std::uint64_t>(),
                  in.get<std::uint64_t>(),
                  in.get<std::uint32_t>(),
                  in.get_text(kTextCap),
                  {}};
  for (auto sets = in.get<std::uint32_t>(); sets > 0; --sets) {
    const auto number = in.get<std::int64_t>();
    auto ranks = get_ranks(in, size);
    if (!ranks || ranks->empty() || number > kRefusedCap || -number > kRefusedCap) return {};
    refusal.met[number] |= *ranks;
  }
  const bool sane = in.ok() && refusal.rank < size && refusal.times <= kRefusedCap;
  return sane ? std::optional(std::move(refusal)) : std::nullopt;
}

Refusal Refusals::refuse(std::uint32_t rank, const Uuid& scope, std::uint64_t number,
                         std::string text) {
  const auto old = all_.find({scope, rank});
  Refusal refusal{scope, rank, 0, number, 0, {}, {}};
  if (old != all_.end()) refusal = old->second.refusal;
  if (refusal.number != number && scope != kEverything) refusal.times = 0;
  refusal.version = ++versions_;
  refusal.number = number;
  refusal.times = std::min(refusal.times + 1, kRefusedCap);
  refusal.text = std::move(text);
  return refusal;
}

bool Refusals::heard(const Refusal& refusal, Time now) {
  const Key key{refusal.scope, refusal.rank};
  const auto old = all_.find(key);
  if (old != all_.end() && old->second.refusal.version >= refusal.version) return false;
  const auto ordered = [](const auto& each) { return each.first.first != kEverything; };
  if (old == all_.end() && ordered(std::pair{key, 0}) &&
      std::ranges::count_if(all_, ordered) >= kRefusalsCap) {
    std::erase_if(all_, ordered);
  }
  const bool again = old != all_.end() && old->second.refusal.times == refusal.times &&
                     refusal.scope == kEverything;
  all_[key] = {refusal, again ? all_.at(key).at : now};
  return true;
}

void Refusals::forget(const News& news) {
  std::erase_if(all_, [&news](const auto& each) {
    return news.verdicts.count({each.first.first, Status::kNobody}) != 0;
  });
}

std::map<std::uint32_t, RankSet> Refusals::numbers(const RankSet& ranks) const {
  std::map<std::uint32_t, std::vector<std::uint32_t>> found;
  for (const auto& [key, known] : all_) {
    if (key.first != kEverything) break;  // kEverything is the lowest scope
    const std::uint32_t times = known.refusal.times;
    if (times != 0 && ranks.contains(key.second)) found[times].push_back(key.second);
  }
  std::map<std::uint32_t, RankSet> numbers;
  for (auto& [times, its] : found) numbers.emplace(times, RankSet(std::move(its)));
  return numbers;
}

// The nodes of two ranks of a new group store the same difference, with opposite signs. Calls that
// a rank refused while it waited for the group no longer count.
std::vector<Refusal> Refusals::over(const Gatherings::Answer& answer, const RankSet& own) {
  const auto& [key, sum, why] = answer;
  const auto culprit = static_cast<std::uint32_t>(why.culprit());
  const RankSet named = sum.named();
  const bool told = why.code() == Code::kPara && sum.awaited().contains(culprit);
  std::vector<Refusal> changed;
  if ((sum.flags & kMakesGroup) == 0 || !(why.ok() || told)) return changed;
  for (const std::uint32_t rank : (named & own).ranks()) {
    const auto old = all_.find({kEverything, rank});
    Refusal refusal{kEverything, rank, 0, 0, 0, {}, {}};
    if (old != all_.end()) refusal = old->second.refusal;
    auto met = refusal.met;
    const std::int64_t times = refusal.times, past = number(culprit, refusal.met);
    if (why.ok()) {
      for (const auto& [its, ranks] : split(named, sum.refused)) set(met, times - its, ranks);
    } else if (rank != culprit) {
      if (number(culprit, sum.refused) - times + past > 0) set(met, past - 1, {culprit});
    } else {
      const auto others = split(named - RankSet{rank}, sum.refused);
      for (const auto& [its, ranks] : split(fewer(refusal, others), refusal.met)) {
        set(met, its + 1, ranks);
      }
    }
    if (met == refusal.met) continue;
    refusal.met = std::move(met);
    refusal.version = ++versions_;
    changed.push_back(std::move(refusal));
  }
  return changed;
}

std::optional<Status> Refusals::find(const Gathering& sum, Time until, const RankSet& gone) const {
  const bool none = all_.empty() || all_.begin()->first.first != kEverything;
  if (none || (sum.flags & kMakesGroup) == 0) return std::nullopt;
  const RankSet awaited = sum.awaits_all() ? sum.awaited() : sum.awaited() - gone;
  std::map<std::int64_t, RankSet> refused;  // by the arrived ranks
  for (const auto& [key, known] : all_) {
    if (key.first != kEverything) break;
    const Refusal& refusal = known.refusal;
    if (!awaited.contains(refusal.rank) || known.at > until) continue;
    if (refused.empty()) {
      auto all = sum.refused;  // also the calls refused since the ranks sent their parts
      for (const auto& [times, ranks] : numbers(sum.arrived)) all[times] |= ranks;
      refused = split(sum.arrived, all);
    }
    const RankSet witnesses = fewer(refusal, refused);
    if (witnesses.empty()) continue;
    const std::string rank = "rank " + std::to_string(refusal.rank);
    return Status(Code::kPara,
                  "EI0005: the ranks' calls differ: rank " + std::to_string(witnesses.lowest()) +
                      " called for a group with " + rank + ", but a call of " + rank +
                      " was refused: " + refusal.text + " (world ranks)",
                  static_cast<int>(refusal.rank));
  }
  return std::nullopt;
}

}  // namespace hccl::control
