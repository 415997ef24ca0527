// Processes join in any order, die, come again, come late, or make forbidden claims. A seed decides
// everything:
//   seek_simulation_test --seeds 100000    more worlds
//   seek_simulation_test --seed 17         one world, with every event
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>

#include "tests/control/seek_world.h"

namespace hccl::control {
namespace {

std::uint64_t g_seeds = 500;
std::optional<std::uint64_t> g_seed;

/// The faults of a world; a seed makes one of them.
enum Worlds {
  kCalm,
  kBreaks,
  kRankless,
  kRestarts,
  kDeaths,
  kRootDies,
  kSizes,
  kDoubled,
  kLate,
  kLeftOver,
  kMixed
};

struct Counts {
  std::map<std::string, std::uint64_t> events;
  double to_root = 0, from_root = 0;  // frames a process at most, in worlds without faults
  double faulty_to_root = 0;          // with faults, each moved process counts again
};

class Simulation : public JoiningWorld {
 public:
  Simulation(std::uint64_t seed, bool trace, Counts& counts)
      : JoiningWorld(seed, trace), kind_(static_cast<int>(seed % 11)), counts_(counts) {
    plan_processes();
    plan_faults();
  }
  void run() {
    run_until(seconds(12));
    const auto state = processes_[0].seek->state();
    for (std::uint32_t number = 0; number < processes_.size(); ++number) {
      if (processes_[number].died == kNever) check(number, state);
    }
    if (processes_[0].died == kNever && state == Seek::State::kIn) check_tree();
    check_load();
    const bool whole =
        kind_ <= kRestarts || kind_ == kSizes || kind_ == kDoubled || kind_ == kLeftOver;
    if (whole && !bad_) require(state == Seek::State::kIn, "all came in time, but are not in");
    if (bad_ && kind_ == kSizes) require(state == Seek::State::kOver, "a wrong size is not heard");
  }

 private:
  void plan_processes() {
    const std::uint32_t count = 1 + random_.below(random_.percent(50) ? 64 : 12);
    std::vector<RankSet> ranks(count);
    std::vector<std::uint32_t> owner;
    for (std::uint32_t number = 0; number < count; ++number) {
      const bool none =
          number == 0 ? random_.percent(30) : kind_ == kRankless && random_.percent(40);
      for (std::uint32_t i = none ? 0 : 1 + random_.below(4); i > 0; --i) owner.push_back(number);
    }
    if (owner.empty()) owner.push_back(0);
    for (std::size_t i = owner.size(); i > 1; --i) std::swap(owner[i - 1], owner[random_.below(i)]);
    for (std::uint32_t rank = 0; rank < owner.size(); ++rank) ranks[owner[rank]] |= {rank};
    size_ = static_cast<std::uint32_t>(owner.size());
    const nanoseconds spread = random_.percent(50) ? milliseconds(5) : milliseconds(800);
    for (std::uint32_t number = 0; number < count; ++number) {
      const bool unknown = number == 0 && ranks[0].empty() && random_.percent(50);
      add(ranks[number], unknown ? 0 : size_, random_.up_to(spread));
    }
    if (random_.percent(70)) return;  // in the other worlds the root starts first
    processes_[0].starts = nanoseconds(0);
  }
  std::uint32_t other_than_root() { return 1 + random_.below(processes_.size() - 1); }
  void later_dies(std::uint32_t number) {
    const nanoseconds when = processes_[number].starts + random_.up_to(milliseconds(600));
    schedule(when, [this, number] {
      if (!runs(number)) return;
      ++counts_.events["deaths"];
      ++faults_;
      die(number);
      if (kind_ != kRestarts || processes_[number].decided != kNever) return;
      add(processes_[number].own.nodes[0].ranks, size_, now_ + milliseconds(400));
    });
  }
  void plan_faults() {
    const auto count = static_cast<std::uint32_t>(processes_.size());
    const auto is = [this](int kind) {
      return kind_ == kind || (kind_ == kMixed && random_.percent(20));
    };
    if (is(kRootDies)) later_dies(0);
    if (is(kBreaks)) {
      for (std::uint32_t i = random_.below(8); i > 0; --i) {
        schedule(random_.up_to(milliseconds(900)), [this] {
          ++counts_.events["broken lines"];
          ++faults_;
          break_some_line();
        });
      }
    }
    for (std::uint32_t number = 1; number < count; ++number) {
      const bool none = processes_[number].own.nodes[0].ranks.empty();
      const unsigned chance = kind_ == kRankless ? (none ? 60 : 0)
                              : kind_ == kRestarts || kind_ == kDeaths || kind_ == kMixed ? 8
                                                                                          : 0;
      if (random_.percent(chance)) later_dies(number);
    }
    if (count < 2) return;
    if (is(kSizes)) {
      bad_ = true;
      ++counts_.events["wrong sizes"];
      auto& process = processes_[other_than_root()];
      random_.percent(50) ? process.size += 1 + random_.below(3) : 0;
      if (process.size == size_) process.agreement = "differs";
      // The root must know the right values: the processes that know them may never reach the root.
      if (count == 2 || kind_ == kMixed) processes_[0].size = size_;
    }
    if (is(kDoubled)) {
      bad_ = true;
      ++counts_.events["doubled ranks"];
      const RankSet& all = processes_[random_.below(count)].own.nodes[0].ranks;
      auto& process = processes_[other_than_root()].own.nodes[0];
      const RankSet more =
          all.empty() || (all & process.ranks).empty() == false
              ? RankSet{(process.ranks.empty() ? 0 : process.ranks.lowest() + 1) % size_}
              : RankSet{all.lowest()};
      bad_ = !process.ranks.contains(more);
      process.ranks |= more;
    }
    if (kind_ == kLeftOver) plan_left_over();
    if (is(kLate) && random_.percent(50)) {
      ++counts_.events["processes too many"];
      add(RankSet{random_.below(size_)}, size_, seconds(2) + random_.up_to(seconds(2)));
    } else if (is(kLate)) {
      ++counts_.events["late processes"];
      add_last(kConnectTimeout + milliseconds(1000) + random_.up_to(seconds(2)));
    }
  }

  // Adds a process that the world needs to be complete.
  void add_last(nanoseconds starts) {
    const std::uint32_t last = add(RankSet{size_}, size_ + 1, starts);
    for (std::uint32_t number = 0; number < last; ++number) {
      if (processes_[number].size != 0) ++processes_[number].size;
    }
    ++size_;
  }
  // Processes of an earlier job on the root's machine claim ranks of others, and some come first.
  // They are older by more than a second, or of an earlier attempt.
  void plan_left_over() {
    const auto count = static_cast<std::uint32_t>(processes_.size());
    const std::string machine = processes_[0].own.hosts[0].machine;
    const bool attempts = random_.percent(50);
    add_last(seconds(2));
    for (auto& each : processes_) {
      each.own.nodes[0].started = 5000 + random_.below(90);
      each.own.nodes[0].attempt = {attempts ? 7u : 0u, 1};
    }
    // Without attempts only one process: two would look like another job.
    for (std::uint32_t i = attempts ? 1 + random_.below(4) : 1; i > 0; --i) {
      auto& right = processes_[1 + random_.below(count - 1)];
      if (right.own.nodes[0].ranks.empty()) continue;
      ++counts_.events["processes that are left over"];
      right.own.hosts[0].machine = machine;
      const std::uint32_t old =
          add({right.own.nodes[0].ranks.lowest()}, size_, random_.up_to(milliseconds(800)));
      processes_[old].own.hosts[0].machine = machine;
      if (attempts) processes_[old].own.nodes[0].attempt = {7, 0};
      if (!attempts) processes_[old].own.nodes[0].started = 4000;
      left_over_.insert(old);
    }
  }

  // ---- rules for a living process ----

  void check(std::uint32_t number, Seek::State root_state) {
    const Process& process = processes_[number];
    const Process& root = processes_[0];
    const Seek& seek = *process.seek;
    // A root that has no ranks and knows no size waits for the first process without a time limit.
    if (number == 0 && process.size == 0 && to_root_ == 0) return;
    require(process.decided != kNever, name(number) + " waits for ever");
    const nanoseconds since = process.reached == kNever ? process.starts : process.reached;
    const nanoseconds from = number == 0 ? nanoseconds(milliseconds(1000)) : since;
    require(process.decided <= from + kConnectTimeout + seconds(1), name(number) + " decides late");
    if (left_over_.count(number) != 0) return check_left_over(number);
    if (seek.state() == Seek::State::kIn) {
      ++counts_.events["in"];
      require(root_state == Seek::State::kIn, name(number) + " is in, but the root is not");
      require(bytes_of(*seek.roster()) == bytes_of(*root.seek->roster()), "rosters differ");
      return check_roster(number, *seek.roster());
    }
    const std::string& why = seek.why().message();
    const std::string reason = why.substr(0, why.find_first_of(":;"));
    const auto has = [&why](const std::string& text) {
      return why.find(text) != std::string::npos;
    };
    // The root may die after it has sent this refusal.
    if (has("came when joining was over")) {
      ++counts_.events["came when joining was over"];
      return require(root_state == Seek::State::kIn && !is_in(number), why);
    }
    if (root.died != kNever) {
      const bool died = why == "the root of the job died while joining";
      const bool unknown = has("EI0006") && process.reached == kNever;
      if (died) ++counts_.events["heard of the root's death"];
      if (died || unknown) return;
      require(root_state == Seek::State::kOver, name(number) + " hears " + why);
    }
    require(root_state == Seek::State::kOver && why == root.seek->why().message(),
            name(number) + " hears " + why);
    ++counts_.events["heard " + reason];
    if (number == 0 || root.died != kNever) check_reason(why);
  }
  void check_left_over(std::uint32_t number) {
    const std::string& why = processes_[number].seek->why().message();
    const auto has = [&why](const std::string& text) {
      return why.find(text) != std::string::npos;
    };
    const bool told = has("two processes claim rank") || has("is left over from an earlier");
    const bool wrong = !told || !has("EI0016") || !has(names(processes_[number]));
    require(!wrong && !is_in(number), name(number) + " is left over, and hears " + why);
  }
  void check_roster(std::uint32_t number, const Roster& roster) const {
    const Roster::Node& node = roster.nodes.at(processes_[number].seek->node());
    require(node.pid == 500 + number && node.ranks == processes_[number].own.nodes[0].ranks,
            name(number) + " is another node");
    RankSet all;
    std::size_t count = 0;
    for (const auto& each : roster.nodes) {
      require(each.ranks == processes_.at(each.pid - 500).own.nodes[0].ranks, "ranks differ");
      all |= each.ranks;
      count += each.ranks.count();
    }
    require(all == RankSet::range(0, size_) && count == size_, "a rank is not there once");
  }
  bool is_in(std::uint32_t number) const {
    const auto& nodes = processes_[0].seek->roster()->nodes;
    return std::ranges::any_of(nodes, [&](const auto& each) { return each.pid == 500 + number; });
  }
  void check_reason(const std::string& why) const {
    const auto has = [&why](const std::string& text) {
      return why.find(text) != std::string::npos;
    };
    if (has("EI0015")) {
      // A process that has just come or died may count or not.
      const nanoseconds decided = processes_[0].decided;
      RankSet surely, maybe;
      for (const Process& each : processes_) {
        const RankSet& ranks = each.own.nodes[0].ranks;
        if (each.starts < decided && each.died > decided - seconds(1)) maybe |= ranks;
        if (each.starts < decided - seconds(1) && each.died > decided) surely |= ranks;
      }
      const auto says = [&](const RankSet& here) {
        const RankSet absent = RankSet::range(0, size_) - here;
        const bool named = (why + ";").find("absent: " + absent.text() + ";") != std::string::npos;
        return !absent.empty() && named;
      };
      require(says(surely) || says(maybe),
              why + "; really here: " + surely.text() + " and perhaps " + maybe.text());
      return;
    }
    require(has("EI0016"), "no reason is allowed for: " + why);
    if (!has("claim rank")) {
      const bool wrong = std::ranges::any_of(processes_, [&](const Process& each) {
        return (each.size != size_ || each.agreement != "same") && has(names(each));
      });
      return require(wrong, why + " names nobody that differs");
    }
    int named = 0;
    for (const Process& each : processes_) {
      for (const std::uint32_t rank : each.own.nodes[0].ranks.ranks()) {
        named += has("rank " + std::to_string(rank) + ":") && has(names(each));
      }
    }
    require(named == 2, why + " names " + std::to_string(named) + " that claim it");
  }
  static std::string names(const Process& process) {
    return "pid " + std::to_string(process.own.nodes[0].pid);
  }
  static std::string bytes_of(const Roster& roster) {
    ByteWriter out;
    put(out, roster);
    return out.take();
  }

  // ---- rules for all processes ----

  // Each process goes on as a relay, and both ends of each line know the same.
  void check_tree() {
    const Roster& roster = *processes_[0].seek->roster();
    std::size_t lines = 0;
    RankSet below;
    for (std::uint32_t number = 0; number < processes_.size(); ++number) {
      if (!runs(number) || processes_[number].seek->state() != Seek::State::kIn) continue;
      const Seek& seek = *processes_[number].seek;
      Relay relay(seek.roster(), seek.node(), kPeerTimeout, time());
      std::set<std::uint32_t> ends;
      for (const auto& [id, node] : seek.lines()) {
        const std::uint32_t other = other_end(number, id);
        require(roster.nodes[node].pid == 500 + other, "a line goes to another node");
        require(
            roster.nodes[node].parent == seek.node() || roster.nodes[seek.node()].parent == node,
            "a line is not of the tree");
        require(ends.insert(node).second, "two lines go to one node");
        if (runs(other) && is_open(id)) {
          const auto& theirs = processes_[other].seek->lines();
          require(std::ranges::find(theirs, std::pair{id, seek.node()}) != theirs.end(),
                  "one end only knows a line");
          ++lines;
        }
        static_cast<void>(relay.seated(id, node, time()));
      }
      require(ends.size() <= kFanOut + 1, "too many children");
      if (seek.node() == 0) below = relay.below();
      if (faults_ != 0) continue;
      const bool root = seek.node() == 0;
      require(relay.state() == (root ? Relay::State::kRoot : Relay::State::kIn), "an orphan");
    }
    if (faults_ != 0) return;
    require(lines == 2 * (roster.nodes.size() - 1), "lines of the tree are missing");
    require(below.count() == roster.nodes.size(), "the root lacks nodes below it");
  }
  void check_load() {
    const auto count = static_cast<double>(processes_.size());
    if (faults_ == 0) {
      counts_.to_root = std::max(counts_.to_root, static_cast<double>(to_root_) / count);
      counts_.from_root = std::max(counts_.from_root, static_cast<double>(from_root_) / count);
      require(static_cast<double>(to_root_) <= 2 * count, "too many frames to the root");
      require(static_cast<double>(from_root_) <= 2 * count, "too many frames from the root");
    }
    counts_.faulty_to_root =
        std::max(counts_.faulty_to_root, static_cast<double>(to_root_) / (count + 8 * faults_));
    require(static_cast<double>(to_root_) <= 3 * (count + 8 * faults_),
            "too many frames to the root after faults");
  }

  int kind_;
  Counts& counts_;
  std::uint32_t size_ = 0;
  double faults_ = 0;
  bool bad_ = false;
  std::set<std::uint32_t> left_over_;
};

TEST(Seek, AllComeInOrHearWhyNot) {
  Counts counts;
  const std::uint64_t first = g_seed.value_or(1), last = g_seed.value_or(g_seeds);
  std::uint64_t failed = 0;
  for (std::uint64_t seed = first; seed <= last && failed < 20; ++seed) {
    try {
      Simulation(seed, g_seed.has_value(), counts).run();
    } catch (const Violation& violation) {
      ++failed;
      ADD_FAILURE() << "seed " << seed << ": " << violation.what();
    }
  }
  for (const auto& [event, count] : counts.events) {
    std::cout << count << " " << event << "\n";
    if (g_seed || g_seeds < 100) continue;
    EXPECT_GT(count, 15u) << "too few " << event;
  }
  std::cout << "frames at the root for each process: " << counts.to_root << " in, "
            << counts.from_root << " out; with faults " << counts.faulty_to_root << " in\n";
}

}  // namespace
}  // namespace hccl::control

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--seeds") hccl::control::g_seeds = value;
    if (option == "--seed") hccl::control::g_seed = value;
  }
  return RUN_ALL_TESTS();
}
