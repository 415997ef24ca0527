#include "hccl/exec/host/ways_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace hccl::exec::host {
namespace {

/// What it costs a whole input to go through the ring only after the ranks have met (as a
/// logarithm): samples are of rings that begin at once.
constexpr double kMeetingFirst = 0.15;
/// Another number than the default must gain so much (as a logarithm, over all samples) …
constexpr double kWorthLeavingDefault = 0.1;
/// … and another chunk so much of the time.
constexpr double kWorthAnotherChunk = 0.95;

using Case = std::pair<bool, std::uint64_t>;  // reachable, bytes

// What the ways cost beyond the best one, in each case that was measured; as logarithms.
class Regret {
 public:
  Regret(std::span<const WaySample> samples, std::size_t chunk) {
    std::map<Case, std::map<Way, double>> cases;
    // Staging with another chunk tells something only where this one was not measured.
    for (const bool other_chunk : {false, true}) {
      for (const WaySample& each : samples) {
        if ((each.way == Way::kStage && each.chunk != chunk) != other_chunk) continue;
        const double time = std::log(static_cast<double>(std::max<std::uint64_t>(1, each.ns)));
        cases[{each.reachable, each.bytes}].emplace(each.way, time);
      }
    }
    std::map<bool, std::set<Way>> compared;
    for (const auto& [at, times] : cases) {
      // Where time ran out between the ways, there is no comparison.
      std::set<Way>& those = compared[at.first];
      if (std::any_of(those.begin(), those.end(), [&](Way way) { return !times.contains(way); })) {
        continue;
      }
      for (const Way way : {Way::kStage, Way::kChain, Way::kCma, Way::kPull, Way::kPush}) {
        if (times.contains(way)) those.insert(way);
      }
      const double best = std::min_element(times.begin(), times.end(), [](auto& a, auto& b) {
                            return a.second < b.second;
                          })->second;
      // A way that was not measured here is no improvement on what was.
      Row row{at, {}};
      row.beyond.fill(kUnknown);
      for (const auto& [way, time] : times) row.beyond[static_cast<std::size_t>(way)] = time - best;
      rows_.push_back(row);
    }
  }

  std::set<std::uint64_t> sizes() const {
    std::set<std::uint64_t> sizes;
    for (const Row& row : rows_) sizes.insert(row.at.second);
    return sizes;
  }

  // Over the cases of memory that others reach, or of that which they do not.
  double of(const Ways& ways, bool reachable) const {
    double sum = 0;
    for (const Row& row : rows_) {
      if (row.at.first != reachable) continue;
      const std::uint64_t bytes = row.at.second;
      const Way way = way_of(ways, reachable, bytes);
      sum += row.beyond[static_cast<std::size_t>(way)];
      if (way == Way::kRing && bytes > ways.ring_most) sum += kMeetingFirst;
    }
    return sum;
  }

 private:
  static constexpr double kUnknown = 10;
  struct Row {
    Case at;
    std::array<double, kWays> beyond;
  };
  std::vector<Row> rows_;
};

// Between two sizes that were measured the way may change in the middle.
std::vector<std::size_t> limits(const std::set<std::uint64_t>& sizes, std::size_t usual,
                                std::size_t most) {
  std::set<std::size_t> values = {usual, 0};
  for (auto at = sizes.begin(); at != sizes.end(); ++at) {
    const auto next = std::next(at);
    const double middle = next == sizes.end()
                              ? 2.0 * static_cast<double>(*at)
                              : std::sqrt(static_cast<double>(*at) * static_cast<double>(*next));
    values.insert(std::min(most, static_cast<std::size_t>(middle)));
  }
  return {values.begin(), values.end()};
}

struct Number {
  std::size_t Ways::*member;
  std::vector<std::size_t> values;
};
struct Found {
  Ways ways;
  double cost;
};

// The best of all combinations of these numbers. cost(ways) may settle others on the way. A number
// that differs from what it was must be worth it.
template <class Cost>
Found search(const Ways& usual, std::span<const Number> numbers, Cost&& cost) {
  Ways ways = usual;
  Found best = {usual, 0};
  best.cost = cost(best.ways);
  const auto try_all = [&](auto&& self, std::size_t number, double changes) -> void {
    if (number == numbers.size()) {
      Ways these = ways;
      const double here = changes + cost(these);
      if (here < best.cost - 1e-9) best = {these, here};
      return;
    }
    const Number& each = numbers[number];
    for (const std::size_t value : each.values) {
      ways.*each.member = value;
      const bool same = value == usual.*each.member;
      self(self, number + 1, changes + (same ? 0 : kWorthLeavingDefault));
    }
    ways.*each.member = usual.*each.member;
  };
  try_all(try_all, 0, 0);
  return best;
}

std::size_t best_chunk(std::size_t usual, std::span<const WaySample> samples) {
  // Each chunk's times in the cases where all of them were measured.
  std::map<Case, std::map<std::uint64_t, double>> cases;
  std::set<std::uint64_t> chunks;
  for (const WaySample& each : samples) {
    if (each.way != Way::kStage) continue;
    cases[{each.reachable, each.bytes}][each.chunk] = static_cast<double>(each.ns);
    chunks.insert(each.chunk);
  }
  std::map<std::uint64_t, double> sums;
  int common = 0;
  for (const auto& [at, times] : cases) {
    if (times.size() != chunks.size()) continue;
    ++common;
    for (const auto& [chunk, ns] : times) sums[chunk] += std::log(std::max(1.0, ns));
  }
  const auto usual_sum = sums.find(usual);
  if (usual_sum == sums.end()) return usual;
  const auto best = std::min_element(
      sums.begin(), sums.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return best->second < usual_sum->second + common * std::log(kWorthAnotherChunk) ? best->first
                                                                                  : usual;
}

}  // namespace

Way way_of(const Ways& ways, bool reachable, std::uint64_t bytes) {
  if (bytes <= kMostInLine) return Way::kPost;
  if (bytes <= ways.ring_most) return Way::kRing;
  if (!reachable && ways.takes_cma(true, bytes)) return Way::kCma;
  if (!reachable || bytes <= ways.stage_most) {
    if (bytes <= ways.whole_most) return Way::kRing;
    const bool chained = !reachable && ways.chain_from != 0 && bytes >= ways.chain_from;
    return chained ? Way::kChain : Way::kStage;
  }
  return bytes <= ways.pull_most ? Way::kPull : Way::kPush;
}

Ways fit(const Ways& defaults, std::span<const WaySample> samples) {
  Ways ways = defaults;
  if (samples.empty()) return ways;
  ways.chunk = best_chunk(defaults.chunk, samples);
  const Regret regret(samples, ways.chunk);
  const std::set<std::uint64_t> sizes = regret.sizes();
  constexpr std::size_t kAny = std::size_t{1} << 40;
  const auto number = [&](std::size_t Ways::*member, std::size_t most) {
    return Number{member, limits(sizes, defaults.*member, most)};
  };
  const std::array all_memory = {number(&Ways::ring_most, Ways::kMostInRing),
                                 number(&Ways::whole_most, Ways::kMostInRing)};
  const std::array private_memory = {number(&Ways::chain_from, kAny),
                                     number(&Ways::cma_folds_from, kAny),
                                     number(&Ways::cma_folds_most, kAny)};
  const std::array reachable_memory = {number(&Ways::stage_most, kAny),
                                       number(&Ways::pull_most, kAny)};
  // Everything is tried: some hundred thousand combinations, as what holds for one kind of memory
  // does not matter to the other.
  return search(ways, all_memory,
                [&](Ways& these) {
                  double cost = 0;
                  for (const bool reachable : {false, true}) {
                    const std::span<const Number> numbers =
                        reachable ? std::span<const Number>(reachable_memory) : private_memory;
                    const Found found = search(these, numbers, [&](const Ways& those) {
                      return regret.of(those, reachable);
                    });
                    these = found.ways;
                    cost += found.cost;
                  }
                  return cost;
                })
      .ways;
}

}  // namespace hccl::exec::host
