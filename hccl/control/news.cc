#include "hccl/control/news.h"

#include <algorithm>
#include <tuple>

#include "hccl/control/wire.h"

namespace hccl::control {

bool Verdict::counts_before(const Verdict& other) const {
  const auto order = [](const Verdict& each) {
    return std::tuple(each.epoch, each.number, each.why.code(), each.why.culprit());
  };
  return order(*this) != order(other) ? order(*this) < order(other)
                                      : why.message() < other.why.message();
}

bool News::merge(const Verdict& verdict) {
  if (verdicts.size() >= kVerdictsCap && verdicts.count(verdict.key()) == 0) {
    std::erase_if(verdicts, [](const auto& old) { return old.first.first != kEverything; });
  }
  const auto [at, added] = verdicts.try_emplace(verdict.key(), verdict);
  if (!added && !verdict.counts_before(at->second)) return false;
  at->second = verdict;
  return true;
}

News News::merge(const News& more) {
  News fresh{more.dead - dead,
             more.left - left,
             {},
             {},
             more.silent - silent,
             more.left_ranks - left_ranks};
  dead |= more.dead;
  left |= more.left;
  silent |= more.silent;
  left_ranks |= more.left_ranks;
  for (const auto& [key, verdict] : more.verdicts) {
    if (merge(verdict)) fresh.verdicts.emplace(key, verdict);
  }
  for (const Uuid& scope : more.summons) {
    if (summons.count(scope) != 0) continue;
    if (summons.size() >= kScopesCap) summons.clear();
    summons.insert(scope);
    fresh.summons.insert(scope);
  }
  return fresh;
}

RankSet News::dead_ranks() const {
  std::vector<std::uint32_t> ranks;
  for (const auto& [key, verdict] : verdicts) {
    if (key.first != kEverything) break;  // kEverything is the lowest scope
    ranks.push_back(static_cast<std::uint32_t>(key.second));
  }
  return RankSet(std::move(ranks));
}

std::vector<const Verdict*> News::in_order() const {
  std::vector<const Verdict*> all;
  all.reserve(verdicts.size());
  for (const auto& [key, verdict] : verdicts) all.push_back(&verdict);
  std::ranges::stable_sort(all, [](const auto* a, const auto* b) { return a->is_older(*b); });
  return all;
}

void put(ByteWriter& out, const News& news) {
  put(out, news.dead);
  put(out, news.left);
  put(out, news.silent);
  put(out, news.left_ranks);
  out.put(static_cast<std::uint32_t>(news.verdicts.size()));
  for (const auto& [key, verdict] : news.verdicts) {
    out.put(verdict.scope).put(verdict.epoch).put(verdict.number);
    put(out, verdict.why);
  }
  out.put(static_cast<std::uint32_t>(news.summons.size()));
  for (const Uuid& scope : news.summons) out.put(scope);
}

std::optional<News> get_news(ByteReader& in, std::uint32_t nodes) {
  auto dead = get_ranks(in, nodes), left = get_ranks(in, nodes), silent = get_ranks(in, nodes);
  auto left_ranks = get_ranks(in);
  if (!dead || !left || !silent || !left_ranks) return std::nullopt;
  News news{std::move(*dead), std::move(*left), {}, {}, std::move(*silent), std::move(*left_ranks)};
  const auto verdicts = in.get<std::uint32_t>();
  if (verdicts > kVerdictsCap) return std::nullopt;
  for (std::uint32_t i = 0; i < verdicts; ++i) {
    Verdict verdict{in.get<Uuid>(), in.get<std::uint32_t>(), {}, in.get<std::uint32_t>()};
    verdict.why = get_status(in);
    const auto culprit = static_cast<std::uint32_t>(verdict.why.culprit());
    if (!in.ok() || (verdict.scope == kEverything && culprit >= kRanksCap)) return std::nullopt;
    news.merge(verdict);
  }
  const auto summons = in.get<std::uint32_t>();
  if (summons > kScopesCap) return std::nullopt;
  for (std::uint32_t i = 0; i < summons && in.ok(); ++i) news.summons.insert(in.get<Uuid>());
  return in.ok() ? std::optional(std::move(news)) : std::nullopt;
}

}  // namespace hccl::control
