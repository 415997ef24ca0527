// The root's verdicts on random events, compared with those of an oracle that stores every event
// and applies each rule to all of them.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <set>
#include <tuple>

#include "tests/control/verdicts_parts.h"

namespace hccl::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Scope, code, culprit and text of each verdict.
using Told = std::multiset<std::tuple<Uuid, Code, int, std::string>>;

std::string rank_of(std::uint32_t rank) { return "rank " + std::to_string(rank); }
std::string name_of(std::uint32_t rank) {
  return rank_of(rank) + " (10.0.0.1 pid " + std::to_string(100 + rank) + ")";
}

class EventsOracle {
 public:
  struct Event {
    enum What { kWait, kRefusal, kBroken } what;
    std::uint32_t rank;
    Time at;
    std::uint64_t number;             // number of the operation
    std::string text;                 // the call, or the refusal's text
    std::set<std::uint32_t> awaited;  // ranks that a wait awaits
    Status why;                       // error of a broken connection
  };
  Told told;

  void ends(std::uint32_t rank, const std::string& last, Time now) {
    ends_[rank] = last;
    gone_.emplace(rank, now);
  }
  void leaves(std::uint32_t rank, Time now) {
    gone_.emplace(rank, now);
    absent_.insert(rank);
  }
  void dies(std::uint32_t rank) {
    absent_.insert(rank);
    const std::string how = ends_.count(rank) != 0 ? how_it_left(rank) : " died or was cut off";
    told.emplace(kEverything, Code::kRemote, static_cast<int>(rank), name_of(rank) + how);
  }
  void refuses(const Uuid& scope, Event event) { events_[scope].push_back(std::move(event)); }

  // Applies the rules in their order: a different call, a refused call, a rank that is gone.
  void waits(const Uuid& scope, const Event& event) {
    if (over_.count(scope) != 0) return;
    events_[scope].push_back(event);
    const std::string called = rank_of(event.rank) + " called " + event.text;
    const auto waiting = those_in(scope, event.number);
    for (const auto& [rank, its] : waiting) {
      if (its.text == event.text) continue;
      return tell(
          scope, {Code::kPara, "EI0005: the ranks' calls differ: " + called + ", " + rank_of(rank) +
                                   " called " + its.text + " (world ranks)"});
    }
    for (const std::uint32_t rank : awaited_in(scope, event.number)) {
      const auto its = refusals(scope, rank, event.number);
      if (its.size() <= refusals(scope, event.rank, event.number).size()) continue;
      const int culprit = static_cast<int>(rank);
      if (its.back().text.empty()) return tell(scope, went(rank, called));
      return tell(scope, {Code::kPara,
                          "EI0005: the ranks' calls differ: " + called + ", but a call of " +
                              rank_of(rank) + " was refused: " + its.back().text + " (world ranks)",
                          culprit});
    }
    const auto mine = of(scope, event.rank, Event::kWait);
    if (mine.size() < 2 || mine[mine.size() - 2].number != event.number) return;
    for (const std::uint32_t rank : awaited_in(scope, event.number)) {
      if (gone_.count(rank) == 0 || mine[mine.size() - 2].at <= gone_.at(rank)) continue;
      return tell(scope, went(rank, called));
    }
  }

  void reports(const Uuid& scope, const Event& event) {
    const auto suspect = static_cast<std::uint32_t>(event.why.culprit());
    if (event.why.code() == Code::kTimeout) return tell(scope, with_absent(scope, event));
    const bool decided = event.why.code() != Code::kRemote || suspect == event.rank;
    if (decided || absent_.count(suspect) != 0) return tell(scope, event.why);
    events_[scope].push_back(event);
    const auto its = of(scope, suspect, Event::kBroken);
    if (!its.empty() && its[0].why.culprit() == static_cast<int>(event.rank)) judge(scope);
  }
  void tick(Time now) {
    for (const auto& [scope, all] : events_) {
      const auto first = std::ranges::find(all, Event::kBroken, &Event::what);
      if (first != all.end() && now >= first->at + seconds(2)) judge(scope);
    }
  }

 private:
  void tell(const Uuid& scope, const Status& why) {
    if (!over_.insert(scope).second) return;
    told.emplace(scope, why.code(), why.culprit(), why.message());
  }
  std::string how_it_left(std::uint32_t rank) const {
    return ends_.count(rank) == 0
               ? " has destroyed its communicator"
               : " has left: its program ended without HcclCommDestroy, after " + ends_.at(rank);
  }
  Status went(std::uint32_t rank, const std::string& called) const {
    return {Code::kRemote, name_of(rank) + how_it_left(rank) + "; " + called + " (world ranks)",
            static_cast<int>(rank)};
  }
  std::vector<Event> of(const Uuid& scope, std::uint32_t rank, Event::What what) {
    std::vector<Event> all;
    for (const Event& each : events_[scope]) {
      if (each.rank == rank && each.what == what) all.push_back(each);
    }
    return all;
  }
  // By rank: its last wait, if that is in this operation.
  std::map<std::uint32_t, Event> those_in(const Uuid& scope, std::uint64_t number) {
    std::map<std::uint32_t, Event> last;
    for (const Event& each : events_[scope]) {
      if (each.what == Event::kWait) last.insert_or_assign(each.rank, each);
    }
    std::erase_if(last, [&](const auto& each) { return each.second.number != number; });
    return last;
  }
  std::set<std::uint32_t> awaited_in(const Uuid& scope, std::uint64_t number) {
    const auto waiting = those_in(scope, number);
    std::set<std::uint32_t> all;
    for (const auto& [rank, its] : waiting) all.insert(its.awaited.begin(), its.awaited.end());
    std::erase_if(all, [&](std::uint32_t rank) { return waiting.count(rank) != 0; });
    return all;
  }
  // The rank's refusals in this operation; none if it has since refused a call in another
  // operation.
  std::vector<Event> refusals(const Uuid& scope, std::uint32_t rank, std::uint64_t number) {
    std::vector<Event> all;
    for (const Event& each : of(scope, rank, Event::kRefusal)) {
      if (!all.empty() && all.back().number != each.number) all.clear();
      all.push_back(each);
    }
    return all.empty() || all.back().number != number ? std::vector<Event>() : all;
  }
  Status with_absent(const Uuid& scope, const Event& event) {
    const auto mine = of(scope, event.rank, Event::kWait);
    if (mine.empty()) return event.why;
    std::string text = event.why.message();
    std::vector<std::uint32_t> absent;
    for (const std::uint32_t rank : awaited_in(scope, mine.back().number)) {
      const auto its = of(scope, rank, Event::kWait);
      const bool there = !its.empty() && (its.back().number > mine.back().number ||
                                          event.at - its.back().at < seconds(1));
      if (there) text += "; " + rank_of(rank) + " is in " + its.back().text;
      if (!there) absent.push_back(rank);
    }
    if (!absent.empty()) {
      text += "; these did not call it (world ranks): " + RankSet(absent).text();
    }
    const bool one = absent.size() == 1;
    return {Code::kTimeout, text, one ? static_cast<int>(absent[0]) : event.why.culprit()};
  }
  // Follows the reports from the first one to two ranks that name each other, or to a rank without
  // a report. If the reports form a circle, the first one decides.
  void judge(const Uuid& scope) {
    std::map<std::uint32_t, Status> by;
    std::optional<std::uint32_t> first;
    for (const Event& each : events_[scope]) {
      if (each.what != Event::kBroken) continue;
      by.emplace(each.rank, each.why);
      if (!first) first = each.rank;
    }
    const auto suspect = [&](std::uint32_t rank) {
      return static_cast<std::uint32_t>(by.at(rank).culprit());
    };
    const auto mutual = [&](std::uint32_t rank) {
      return by.count(suspect(rank)) != 0 && suspect(suspect(rank)) == rank;
    };
    std::uint32_t witness = *first;
    for (std::set<std::uint32_t> seen; by.count(suspect(witness)) != 0 && !mutual(witness);) {
      if (!seen.insert(witness).second) {
        witness = *first;
        break;
      }
      witness = suspect(witness);
    }
    const bool closed = has(by.at(witness), " closed its connection to rank ");
    if (mutual(witness) && closed) witness = suspect(witness);
    tell(scope,
         {Code::kRemote,
          by.at(witness).message() + "; the connection between " + name_of(witness) + " and " +
              name_of(suspect(witness)) + " ended, and neither of them has died (world ranks)",
          by.at(witness).culprit()});
  }

  std::map<Uuid, std::vector<Event>> events_;
  std::map<std::uint32_t, Time> gone_;
  std::map<std::uint32_t, std::string> ends_;
  std::set<std::uint32_t> absent_;
  std::set<Uuid> over_;
};

// One world in which the oracle and the library decide.
class Twins {
 public:
  explicit Twins(std::uint64_t seed)
      : random_(seed),
        size_(static_cast<std::uint32_t>(4 + random_() % 4)),
        verdicts_(roster_of(size_), 1) {
    for (std::uint32_t rank = 0; rank < size_; ++rank) here_.push_back(rank);
  }

  // Returns the verdicts of both after random events, the oracle's first.
  std::pair<Told, Told> run() {
    for (int events = 0; events < 60; ++events) {
      now_ += milliseconds(random_() % 700);
      oracle_.tick(now_);
      hear(verdicts_.tick(now_));
      happen();
    }
    return {oracle_.told, told_};
  }

 private:
  void hear(const News& news) {
    for (const Verdict& each : list(news)) {
      told_.emplace(each.scope, each.why.code(), each.why.culprit(), each.why.message());
    }
  }
  void happen() {
    const std::uint32_t rank = here_[random_() % here_.size()];
    const Uuid scope = scope_of(1 + random_() % 6);
    const auto other = static_cast<std::uint32_t>(random_() % size_);
    switch (random_() % 16) {
      case 0:
        return go(rank, random_() % 2 == 0);
      case 1:
        oracle_.ends(rank, "allreduce #7", now_);
        return verdicts_.ends(rank, "allreduce #7", now_);
      case 2:
      case 3:
        return refuse(rank, scope);
      case 4:
      case 5:
      case 6:
        return report(rank, scope, other);
      default:
        return wait(rank, scope, other);
    }
  }
  void go(std::uint32_t rank, bool dies) {
    if (here_.size() < 4) return;
    std::erase(here_, rank);
    if (dies) {
      oracle_.dies(rank);
      hear(verdicts_.died({rank}));
    } else {
      oracle_.leaves(rank, now_);
      verdicts_.left({rank}, now_);
    }
  }
  void refuse(std::uint32_t rank, const Uuid& scope) {
    const std::uint64_t number = 1 + random_() % 2;
    const std::string text = random_() % 3 == 0 ? "" : "a count is negative";
    oracle_.refuses(scope, {EventsOracle::Event::kRefusal, rank, now_, number, text, {}, {}});
    const Refusal refusal = refusals_.refuse(rank, scope, number, text);
    EXPECT_TRUE(refusals_.heard(refusal, now_));
    verdicts_.refused(refusal);
  }
  void report(std::uint32_t rank, const Uuid& scope, std::uint32_t other) {
    const std::string words = random_() % 2 == 0 ? " closed its connection to rank " : " is late";
    const Code codes[] = {Code::kRemote, Code::kRemote, Code::kRemote, Code::kTimeout,
                          Code::kMemory};
    const Status why(codes[random_() % 5], rank_of(other) + words, static_cast<int>(other));
    oracle_.reports(scope, {EventsOracle::Event::kBroken, rank, now_, 0, {}, {}, why});
    hear(verdicts_.report(rank, scope, why, now_));
  }
  void wait(std::uint32_t rank, const Uuid& scope, std::uint32_t other) {
    const std::uint64_t number = 1 + random_() % 2;
    const std::string call = random_() % 20 == 0 ? "reduce" : "allreduce";
    const auto third = static_cast<std::uint32_t>(random_() % size_);
    oracle_.waits(scope,
                  {EventsOracle::Event::kWait, rank, now_, number, call, {other, third}, {}});
    hear(verdicts_.waits(wait_of(scope, number, call, {rank}, {other, third}), now_));
  }

  std::mt19937_64 random_;
  std::uint32_t size_;
  Verdicts verdicts_;
  Refusals refusals_;
  EventsOracle oracle_;
  Time now_{};
  std::vector<std::uint32_t> here_;
  Told told_;
};

TEST(RandomVerdicts, AreThoseOfTheOracleOnRandomEvents) {
  std::map<std::string, int> kinds;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    const auto [expected, told] = Twins(seed).run();
    ASSERT_EQ(told, expected) << "seed " << seed;
    for (const auto& [scope, code, culprit, text] : told) {
      for (const char* words :
           {"neither of them has died", "calls differ", "was refused", "has destroyed",
            "program ended", " is in ", "did not call it", "died or was cut off"}) {
        if (text.find(words) != std::string::npos) ++kinds[words];
      }
    }
  }
  EXPECT_EQ(kinds.size(), 8u) << "every kind of verdict occurs";
  for (const auto& [words, times] : kinds) EXPECT_GT(times, 30) << words;
}

}  // namespace
}  // namespace hccl::control
