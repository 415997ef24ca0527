// The library's templates in every execution within the bounds, also with each memory order
// weakened in turn.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string_view>

#include "tests/models/cases.h"

namespace hccl::model {

std::byte* shared_memory(std::size_t bytes, std::size_t zeroes) {
  constexpr std::size_t kMost = std::size_t{8} << 20;
  static auto* const memory = static_cast<std::byte*>(
      mmap(nullptr, kMost, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (bytes > kMost) std::abort();
  std::memset(memory, 0, std::min(zeroes, bytes));
  return memory;
}

namespace {

bool long_form() {
  const char* const form = std::getenv("HCCL_TEST_MODELS");
  return form != nullptr && std::string_view(form) == "long";
}

Outcome explored(const Case& each, const Bounds& bounds) {
  Outcome outcome = explore(each.scenario, bounds);
  const std::string detours =
      bounds.detours < Bounds().detours ? ", " + std::to_string(bounds.detours) + " detours" : "";
  std::printf("%-40s %9llu executions%s, %d preemptions%s, %d older stores read\n",
              each.name.c_str(), static_cast<unsigned long long>(outcome.executions),
              outcome.complete ? "" : " (not all)", bounds.preemptions, detours.c_str(),
              bounds.stale);
  std::fflush(stdout);
  EXPECT_TRUE(outcome.ok()) << each.name << ": " << outcome.failure << "\n" << outcome.trace;
  return outcome;
}

/// Operations of the library, and the cases that run them, the shortest first.
using Sites = std::map<Site, std::vector<const Case*>>;

Sites explore_all(const std::vector<Case>& cases) {
  std::vector<std::pair<Outcome, const Case*>> runs;
  for (const Case& each : cases) {
    runs.emplace_back(explored(each, each.bounds), &each);
    if (!long_form()) continue;
    Bounds wider = each.bounds;
    ++wider.preemptions;
    EXPECT_TRUE(explored(each, wider).complete);
  }
  std::sort(runs.begin(), runs.end(),
            [](const auto& a, const auto& b) { return a.first.executions < b.first.executions; });
  Sites sites;
  for (const auto& [outcome, which] : runs) {
    for (const Site& site : outcome.sites) {
      const bool of_library = site.file.find("/hccl/") != std::string::npos ||
                              site.file.find("/transport/") != std::string::npos;
      if (of_library) sites[site].push_back(which);
    }
  }
  return sites;
}

// ---- mutants: each operation of the library with weaker orders, and left out ----

struct Mutant {
  std::string name;  ///< an order, or "nothing" where the operation is left out
  Mutation mutation;
};

/// Returns the mutants, the weakest one last.
std::vector<Mutant> mutants_of(const Site& site) {
  const bool reads = site.what != "store", writes = site.what != "load";
  std::vector<Mutant> all;
  const auto weaker = [&](Order order) { all.push_back({name(order), {site, order}}); };
  if (site.order == Order::seq_cst && reads && writes) weaker(Order::acq_rel);
  if (site.order == Order::seq_cst || site.order == Order::acq_rel) {
    if (reads) weaker(Order::acquire);
    if (writes) weaker(Order::release);
  }
  if (site.order != Order::relaxed && site.what != "fence") weaker(Order::relaxed);
  if (site.what != "load") all.push_back({"nothing", {site, site.order, true}});
  return all;
}

/// By operation: the names of the mutants that are as right as the original.
using Equivalents = std::map<std::string, std::string_view>;

bool contains(std::string_view words, const std::string& word) {
  return (" " + std::string(words) + " ").find(" " + word + " ") != std::string::npos;
}

bool caught(const Mutation& mutation, const std::vector<const Case*>& cases) {
  return std::any_of(cases.begin(), cases.end(), [&](const Case* each) {
    return !explore(each->scenario, each->bounds, &mutation).ok();
  });
}

// Expects that all mutants fail, except the equivalents. The short form tries only the weakest
// mutant of each operation that is no equivalent.
void check_group(const std::vector<Case>& cases, const Equivalents& equivalents) {
  int found = 0;
  std::map<std::string, int> seen;
  std::set<std::string> keys;
  for (const auto& [site, runs] : explore_all(cases)) {
    std::string key = site.text();
    key.erase(key.find(':'), key.find(' ') - key.find(':'));  // without the line number
    if (const int number = ++seen[key]; number > 1) key += " #" + std::to_string(number);
    keys.insert(key);
    const auto known = equivalents.find(key);
    std::vector<Mutant> mutants = mutants_of(site);
    const auto equivalent = [&](const Mutant& each) {
      return known != equivalents.end() && contains(known->second, each.name);
    };
    if (!long_form()) {
      std::erase_if(mutants, equivalent);
      if (!mutants.empty()) mutants = {mutants.back()};
    }
    for (const Mutant& each : mutants) {
      const bool wrong = caught(each.mutation, runs);
      found += wrong ? 1 : 0;
      EXPECT_EQ(wrong, !equivalent(each)) << site.text() << " -> " << each.name;
    }
  }
  for (const auto& [key, orders] : equivalents) EXPECT_TRUE(keys.contains(key)) << key;
  std::printf("%d mutants found\n", found);
}

// README.md gives the reason for each equivalent.
const Equivalents kOfEveryBell = {
    {"abort_flag.h raise store release", "relaxed"},
    {"abort_flag.h raised load acquire", "relaxed"},
    {"doorbell.h awake change seq_cst", "acq_rel acquire release relaxed nothing"},
    {"doorbell.h prepare change seq_cst", "acq_rel acquire release relaxed"},
    {"doorbell.h prepare load seq_cst", "acquire"},
    {"doorbell.h wake change seq_cst", "acq_rel release"},
};

TEST(Library, Doorbell) {
  Equivalents equivalents = kOfEveryBell;
  equivalents["doorbell.h join store seq_cst"] = "release relaxed";
  check_group(doorbell_cases(), equivalents);
}

TEST(Library, Region) {
  Equivalents equivalents = kOfEveryBell;
  equivalents["doorbell.h fence fence seq_cst"] = "acq_rel acquire release nothing";
  equivalents["region.h withdraw store release"] = "relaxed";
  check_group(region_cases(2), equivalents);
}

TEST(Library, Link) {
  check_group(link_cases(2),
              {{"link.cc has_credit load seq_cst", "acquire relaxed"},
               {"link.cc push store relaxed", "nothing"},
               {"link.cc recv store seq_cst #2", "release relaxed nothing"},
               {"link.cc release store seq_cst", "release relaxed nothing"},
               {"link.cc wake change seq_cst", "acq_rel acquire release relaxed nothing"},
               {"sleeper.h awake store seq_cst", "release relaxed nothing"}});
}

// With three ranks, too many orders are possible after waits: the long form tries at most one
// detour.
TEST(Library, OfThreeRanks) {
  for (const Case& each : link_cases(3)) EXPECT_TRUE(explored(each, each.bounds).complete);
  for (const Case& each : region_cases(3)) {
    const int detours = long_form() ? 1 : 0;
    const Bounds bounds{.preemptions = 1, .detours = detours, .stale = detours};
    EXPECT_TRUE(explored(each, bounds).complete);
  }
}

}  // namespace
}  // namespace hccl::model
