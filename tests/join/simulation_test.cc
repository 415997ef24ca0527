// The coordinator's decisions in whole lives of worlds: ranks that join, exchange, report, leave,
// die, stop, are cut off or come twice, on virtual time and over a virtual network. A seed decides
// everything, so that a seed that fails replays:
//   simulation_test --seeds 100000      more worlds
//   simulation_test --seed 17           one world, with every event
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hccl/join/membership.h"

namespace hccl::join {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using wire::Kind;

std::uint64_t g_seeds = 2000;
std::optional<std::uint64_t> g_seed;

constexpr milliseconds kTick{100};  // how often the coordinator looks at the clock, at least
constexpr Uuid kEverything{};

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void require(bool holds, const std::string& what) {
  if (!holds) throw Violation(what);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : bits_(seed * 0x9E3779B97F4A7C15u + 1) {}
  std::uint64_t below(std::uint64_t end) { return bits_() % end; }
  bool percent(unsigned chance) { return below(100) < chance; }
  nanoseconds up_to(nanoseconds most) {
    return nanoseconds(
        static_cast<std::int64_t>(below(static_cast<std::uint64_t>(most.count()) + 1)));
  }

 private:
  std::mt19937_64 bits_;
};

// A rank's process as the coordinator can tell: what it said, and what it should hear.
struct Process {
  enum class State { kAway, kJoining, kIn, kLeaving, kGone };
  std::uint32_t rank = 0;
  State state = State::kAway;
  bool duplicate = false;
  bool faulty = false;  // died, was stopped for ever, or cut off
  bool stopped = false;
  bool told_to_go = false;                        // it was expelled, and knows
  nanoseconds until_known{};                      // when the others know of the fault at the latest
  std::vector<std::function<void()>> inbox = {};  // while it is stopped
  std::set<std::uint32_t> deaths = {}, leaves = {};  // heard
  std::map<Uuid, Status> failures = {};              // heard or reported, by communicator
  std::map<Uuid, nanoseconds> waiting = {};          // exchanges, and when each must have ended
  nanoseconds leave_by = nanoseconds::max();
};

struct SimulatedLine {
  std::size_t process = 0;
  bool open_here = true;   // the coordinator's end
  bool open_there = true;  // the process's end
  bool cut = false;
  bool admitted = false;
  nanoseconds up{}, down{};  // when the last bytes arrive: bytes do not overtake each other
};

class Simulation {
 public:
  Simulation(std::uint64_t seed, bool trace)
      : random_(seed),
        trace_(trace),
        size_(static_cast<std::uint32_t>(1 + random_.below(random_.percent(5) ? 40 : 6))),
        patience_(seconds(5 + random_.below(20))),
        peer_timeout_(seconds(2 + random_.below(10))),
        delay_(milliseconds(1 + random_.below(random_.percent(20) ? 400 : 40))),
        membership_("host", 100, patience_, peer_timeout_) {}

  void run() {
    start_processes();
    schedule(kTick, [this] { tick(); });
    if (random_.percent(15)) {
      pause_ = random_.up_to(2 * peer_timeout_);
      schedule(random_.up_to(seconds(40)), [this] { pause_coordinator(); });
    }
    while (!events_.empty()) {
      const auto next = events_.begin();
      now_ = next->first.first;
      const auto event = std::move(next->second);
      events_.erase(next);
      event();
      check();
      require(now_ < seconds(600), "the world never ends");
    }
    check_end();
  }
  nanoseconds now() const { return now_; }

 private:
  using State = Process::State;

  // ---- time and the network ----

  void schedule(nanoseconds wait, std::function<void()> event) {
    events_.emplace(std::pair{now_ + wait, ++events_made_}, std::move(event));
  }
  Membership::Time time() const { return Membership::Time(now_); }
  void say(const std::string& what) const {
    if (trace_) std::cout << static_cast<double>(now_.count()) / 1e9 << " s: " << what << "\n";
  }
  static std::string name(const Process& process) {
    return std::string(process.duplicate ? "the second rank " : "rank ") +
           std::to_string(process.rank);
  }
  // How long anything may take that happens at once: there and back, and one look at the clock.
  nanoseconds soon() const { return 2 * delay_ + 2 * kTick + pause_; }

  void at_coordinator(std::function<void()> event) {
    if (paused_) {
      backlog_.push_back(std::move(event));
    } else {
      event();
    }
  }
  void at_process(std::size_t index, std::function<void()> event) {
    if (processes_[index].stopped) {
      processes_[index].inbox.push_back(std::move(event));
    } else {
      event();
    }
  }

  void send(int number, const std::string& frame) {
    SimulatedLine& line = lines_.at(number);
    if (line.cut || !line.open_there) return;
    line.up = std::max(line.up, now_ + random_.up_to(delay_));
    schedule(line.up - now_, [this, number, frame] {
      at_coordinator([this, number, frame] {
        if (!lines_.at(number).open_here) return;
        deliver(membership_.frame(number, frame, time()));
      });
    });
  }
  void hang_up(int number) {
    SimulatedLine& line = lines_.at(number);
    if (!line.open_there) return;
    line.open_there = false;
    if (line.cut) return;
    line.up = std::max(line.up, now_ + random_.up_to(delay_));
    schedule(line.up - now_, [this, number] {
      at_coordinator([this, number] {
        if (!lines_.at(number).open_here) return;
        lines_.at(number).open_here = false;
        deliver(membership_.closed(number));
      });
    });
  }
  void deliver(const Membership::Outs& outs) {
    for (const auto& out : outs) {
      require(lines_.count(out.connection) != 0, "a frame to a connection that never was");
      SimulatedLine& line = lines_.at(out.connection);
      require(line.open_here,
              "a frame to " + name(processes_[line.process]) + ", whose connection has ended");
      if (!out.frame.empty()) arrive(out.connection, std::string(out.frame));
      if (!out.close) continue;
      line.open_here = false;
      arrive(out.connection, {});
      deliver(membership_.closed(out.connection));
    }
  }
  // An empty frame is the end of the connection.
  void arrive(int number, const std::string& frame) {
    SimulatedLine& line = lines_.at(number);
    if (line.cut) return;
    line.down = std::max(line.down, now_ + random_.up_to(delay_));
    schedule(line.down - now_, [this, number, frame] {
      at_process(lines_.at(number).process, [this, number, frame] { hear(number, frame); });
    });
  }

  // ---- the coordinator ----

  void tick() {
    if (!paused_) deliver(membership_.tick(time()));
    const bool over = !paused_ && membership_.finished();
    if (over) say("the coordinator has finished");
    over_ = over_ || over;
    if (now_ < seconds(300) && !over) schedule(kTick, [this] { tick(); });
  }
  // It may look at the clock before it has read what arrived meanwhile: with many connections, its
  // thread reads some of them at a time.
  void pause_coordinator() {
    say("the coordinator stops for a while");
    paused_ = true;
    schedule(pause_, [this] {
      say("the coordinator runs again");
      paused_ = false;
      if (random_.percent(50)) deliver(membership_.tick(time()));
      for (const auto& event : std::exchange(backlog_, {})) event();
    });
  }

  // ---- processes ----

  void start_processes() {
    const bool one_stays_away = size_ > 1 && random_.percent(10);
    const bool one_is_late = size_ > 1 && random_.percent(10);
    processes_.reserve(2 * size_);
    for (std::uint32_t rank = 0; rank < size_; ++rank) processes_.push_back({.rank = rank});
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
      if (rank == 0 && one_stays_away) continue;
      const nanoseconds when = rank == 0 && one_is_late ? patience_ + random_.up_to(seconds(5))
                                                        : random_.up_to(seconds(2));
      start(rank, when);
      if (random_.percent(20)) plan_fault(rank, random_.up_to(seconds(15)));
      if (random_.percent(5)) start_duplicate(rank);
    }
    orderly_ = !one_stays_away && !one_is_late;
  }
  void start_duplicate(std::uint32_t rank) {
    processes_.push_back({.rank = rank, .duplicate = true});
    start(processes_.size() - 1, random_.up_to(seconds(10)));
  }
  void start(std::size_t index, nanoseconds wait) {
    schedule(wait, [this, index] {
      Process& process = processes_[index];
      if (process.faulty || over_) return;
      const int number = ++last_line_;
      lines_[number] = {.process = index};
      line_of_[index] = number;
      process.state = State::kJoining;
      say(name(process) + " joins");
      ByteWriter out;
      out.put(Kind::kHello).put(wire::kVersion).put(size_).put_text("same");
      wire::put(out, wire::Member{.rank = process.rank,
                                  .pid = static_cast<std::uint32_t>(100 + index),
                                  .cores = "\1",
                                  .host = "host",
                                  .address = "10.0.0.1"});
      send(number, out.bytes());
    });
  }
  void plan_fault(std::size_t index, nanoseconds when) {
    schedule(when, [this, index] {
      Process& process = processes_[index];
      if (process.state == State::kAway || process.state == State::kGone) return;
      SimulatedLine& line = lines_.at(line_of_.at(index));
      switch (random_.below(4)) {
        case 0:
          say(name(process) + " dies");
          mark_faulty(process, nanoseconds(0));
          process.state = State::kGone;
          hang_up(line_of_.at(index));
          return;
        case 1:
          say(name(process) + " is cut off");
          mark_faulty(process, peer_timeout_);
          line.cut = true;
          return;
        case 2:
          say(name(process) + " is stopped");
          mark_faulty(process, peer_timeout_);
          process.stopped = true;
          return;
        default:  // shorter than what makes it suspect
          say(name(process) + " is stopped for a moment");
          process.stopped = true;
          slack_ = std::max<nanoseconds>(slack_, peer_timeout_ / 4);
          schedule(random_.up_to(peer_timeout_ / 4), [this, index] { resume(index); });
      }
    });
  }
  void mark_faulty(Process& process, nanoseconds silence) {
    process.faulty = true;
    process.until_known = now_ + silence + soon();
  }
  void resume(std::size_t index) {
    Process& process = processes_[index];
    if (process.faulty) return;
    say(name(process) + " runs again");
    process.stopped = false;
    for (const auto& event : std::exchange(process.inbox, {})) event();
  }

  bool runs(const Process& process) const {
    return !process.faulty && (process.state == State::kIn || process.state == State::kLeaving);
  }
  void beat(std::size_t index) {
    if (!runs(processes_[index])) return;
    at_process(index, [this, index] {
      if (runs(processes_[index])) send(line_of_.at(index), ByteWriter().put(Kind::kBeat).take());
    });
    schedule(wire::beat_interval(peer_timeout_), [this, index] { beat(index); });
  }
  void act(std::size_t index, int left) {
    at_process(index, [this, index, left] {
      Process& process = processes_[index];
      if (process.state != State::kIn || process.faulty) return;
      if (left == 0) return leave(index);
      switch (random_.below(3)) {
        case 0:
          exchange(index, random_.percent(80) ? left : 100 + static_cast<int>(index));
          break;
        case 1:
          report(index);
          break;
        default:
          send(line_of_.at(index), ByteWriter().put(Kind::kSummons).put(scope(9)).take());
      }
      schedule(random_.up_to(seconds(4)), [this, index, left] { act(index, left - 1); });
    });
  }
  static Uuid scope(int number) {
    Uuid id{};
    id[0] = static_cast<std::uint8_t>(number);
    id[1] = 1;
    return id;
  }
  static std::string part(const Uuid& key, std::uint32_t rank) {
    return std::to_string(key[0]) + "/" + std::to_string(rank);
  }
  void exchange(std::size_t index, int which) {
    Process& process = processes_[index];
    const Uuid key = scope(which);
    if (!exchanged_.insert({index, key}).second) return;
    const seconds patience(3);
    ByteWriter out;
    out.put(Kind::kExchange).put(key).put(size_).put(process.rank);
    out.put(static_cast<std::uint64_t>(nanoseconds(patience).count()));
    out.put_text(part(key, process.rank)).put_text({}).put(std::uint8_t{0});
    send(line_of_.at(index), out.bytes());
    process.waiting[key] = now_ + patience + soon();
  }
  void report(std::size_t index) {
    Process& process = processes_[index];
    const Uuid which = scope(200 + static_cast<int>(random_.below(3)));
    if (process.failures.count(which) != 0) return;
    const auto culprit = static_cast<int>(random_.below(size_));
    // Of a connection that ended, the coordinator's word counts; it comes when deaths are known.
    const bool ended = random_.percent(50);
    const Status why(ended ? Code::kRemote : Code::kInternal,
                     "seen by " + std::to_string(process.rank), culprit);
    if (!ended) process.failures[which] = why;
    reported_.insert({which, why.message()});
    ByteWriter out;
    out.put(Kind::kFailure).put(which);
    wire::put(out, why);
    send(line_of_.at(index), out.bytes());
    const nanoseconds by = now_ + soon() + (ended ? seconds(2) : seconds(0));
    for (std::size_t other = 0; other < processes_.size(); ++other) {
      if (processes_[other].state == State::kIn && !processes_[other].duplicate) {
        failure_known_[{other, which}] = by;
      }
    }
  }
  void leave(std::size_t index) {
    Process& process = processes_[index];
    say(name(process) + " leaves");
    process.state = State::kLeaving;
    process.waiting.clear();
    send(line_of_.at(index), ByteWriter().put(Kind::kLeave).take());
    process.leave_by = now_ + soon();
    go_if_alone(index);
  }
  // A rank that leaves stays until the others have left or died.
  void go_if_alone(std::size_t index) {
    Process& process = processes_[index];
    if (process.state != State::kLeaving || process.leaves.count(process.rank) == 0) return;
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
      if (process.leaves.count(rank) == 0 && process.deaths.count(rank) == 0) return;
    }
    say(name(process) + " goes");
    process.state = State::kGone;
    hang_up(line_of_.at(index));
  }

  // ---- what a process hears ----

  void hear(int number, const std::string& frame) {
    const std::size_t index = lines_.at(number).process;
    Process& process = processes_[index];
    if (process.state == State::kGone) return;
    if (frame.empty()) {
      require(
          process.state == State::kJoining || process.told_to_go || process.faulty,
          "the coordinator closed the connection of " + name(process) +
              (process.state == State::kLeaving ? ", which waits for the others to leave" : ""));
      process.state = State::kGone;
      hang_up(number);
      return;
    }
    ByteReader in(frame);
    const auto kind = in.get<Kind>();
    if (kind == Kind::kTable) return hear_table(index);
    if (kind == Kind::kRefused) return hear_refusal(process, wire::get_status(in));
    if (kind == Kind::kFailure) return hear_failure(index, in);
    if (kind == Kind::kLeave) {
      const auto rank = in.get<std::uint32_t>();
      const Process& gone = process_of(rank);
      require(gone.state >= State::kLeaving || gone.faulty,
              "rank " + std::to_string(rank) + " is said to have left");
      process.leaves.insert(rank);
      if (rank == process.rank) process.leave_by = nanoseconds::max();
      go_if_alone(index);
    }
    if (kind == Kind::kExchange) hear_exchange(process, in);
  }
  void hear_table(std::size_t index) {
    Process& process = processes_[index];
    require(process.state == State::kJoining, "a second table");
    process.state = State::kIn;
    lines_.at(line_of_.at(index)).admitted = true;
    admitted_by_rank_[process.rank] = index;
    require(membership_.complete(), "a table of a world that is not complete");
    beat(index);
    const int actions = static_cast<int>(random_.below(6));
    schedule(random_.up_to(seconds(4)), [this, index, actions] { act(index, actions); });
  }
  void hear_refusal(Process& process, const Status& why) {
    say(name(process) + " is refused: " + why.message());
    require(process.state == State::kJoining, name(process) + ", a member, is refused");
    if (why.code() != Code::kTimeout) {
      require(any_doubled() || !orderly_ || any_fault(),
              name(process) + " is refused in an orderly world: " + why.message());
    }
    process.told_to_go = true;
  }
  void hear_failure(std::size_t index, ByteReader& in) {
    Process& process = processes_[index];
    const auto which = in.get<Uuid>();
    const Status why = wire::get_status(in);
    if (which != kEverything) {
      const bool reported = std::any_of(reported_.begin(), reported_.end(), [&](const auto& it) {
        return it.first == which && why.message().starts_with(it.second);
      });
      require(reported, "a failure that nobody reported");
      process.failures.emplace(which, why);
      return;
    }
    const auto culprit = static_cast<std::uint32_t>(why.culprit());
    say(name(process) + " hears: " + why.message());
    require(culprit < size_, "a death without a culprit");
    if (culprit == process.rank) {
      process.told_to_go = true;
      require(process.faulty, name(process) + " was expelled, and did nothing wrong");
      return;
    }
    require(process_of(culprit).faulty,
            "rank " + std::to_string(culprit) + " lives and is called dead: " + why.message());
    require(process.deaths.insert(culprit).second, "a death is told twice");
    go_if_alone(index);
  }
  void hear_exchange(Process& process, ByteReader& in) {
    const auto key = in.get<Uuid>();
    const auto absent = in.get<std::uint32_t>();
    process.waiting.erase(key);
    if (absent == 0) {
      const auto number = in.get<std::uint32_t>();
      require(number == size_, "an exchange of another size");
      for (std::uint32_t rank = 0; rank < number; ++rank) {
        require(in.get_text(100) == part(key, rank), "an exchange with wrong parts");
      }
    }
    for (std::uint32_t i = 0; i < absent; ++i) {
      const auto rank = in.get<std::uint32_t>();
      require(rank < size_ && rank != process.rank, "an exchange names its own rank as absent");
    }
    require(in.finished(), "an exchange of a wrong length");
  }

  // ---- what must hold ----

  Process& process_of(std::uint32_t rank) {
    const auto at = admitted_by_rank_.find(rank);
    return processes_[at == admitted_by_rank_.end() ? rank : at->second];
  }
  /// Two claims of one rank may end the world for all ranks.
  bool any_doubled() const {
    return std::any_of(processes_.begin(), processes_.end(),
                       [](const Process& p) { return p.duplicate; });
  }
  bool any_fault() const {
    return std::any_of(processes_.begin(), processes_.end(),
                       [](const auto& p) { return p.faulty; });
  }
  void check() {
    for (std::size_t index = 0; index < processes_.size(); ++index) {
      const Process& process = processes_[index];
      if (process.faulty || process.stopped) continue;
      if (process.state != State::kIn && process.state != State::kLeaving) continue;
      require(now_ <= process.leave_by || slack_ > nanoseconds(0),
              name(process) + " left and was not told so");
      for (const auto& [key, by] : process.waiting) {
        require(now_ <= by + slack_, name(process) + " waits too long in an exchange");
      }
      for (const Process& other : processes_) {
        const auto admitted = admitted_by_rank_.find(other.rank);
        if (!other.faulty || admitted == admitted_by_rank_.end() ||
            &processes_[admitted->second] != &other || other.leaves.count(other.rank) != 0) {
          continue;
        }
        const bool known = process.deaths.count(other.rank) + process.leaves.count(other.rank) != 0;
        require(known || now_ <= other.until_known + slack_ + kJoinedLate,
                name(process) + " does not hear of the end of " + name(other));
      }
    }
    for (const auto& [who, by] : failure_known_) {
      const Process& process = processes_[who.first];
      if (process.state != State::kIn || process.faulty || process.stopped) continue;
      require(now_ <= by + slack_ || process.failures.count(who.second) != 0,
              name(process) + " does not hear of a failure that was reported");
    }
  }
  void check_end() {
    bool hangs = false;
    for (const Process& process : processes_) {
      if (process.state == State::kAway || process.state == State::kGone || process.faulty)
        continue;
      require(false, name(process) + " waits for ever");
    }
    for (const Process& process : processes_) hangs = hangs || process.stopped;
    require(over_ || hangs || last_line_ == 0, "the coordinator never finishes");
  }

  // A death before the table is seen by the world that is complete a moment later.
  static constexpr seconds kJoinedLate{3};

  Random random_;
  bool trace_;
  std::uint32_t size_;
  nanoseconds patience_, peer_timeout_, delay_;
  Membership membership_;
  std::map<std::pair<nanoseconds, std::uint64_t>, std::function<void()>> events_;
  std::uint64_t events_made_ = 0;
  nanoseconds now_{1};
  nanoseconds pause_{0};  // of the coordinator
  nanoseconds slack_{0};  // of ranks that are stopped for a moment
  bool paused_ = false;
  bool over_ = false;
  bool orderly_ = false;
  std::vector<std::function<void()>> backlog_;
  std::vector<Process> processes_;
  std::map<int, SimulatedLine> lines_;
  std::map<std::size_t, int> line_of_;
  std::map<std::uint32_t, std::size_t> admitted_by_rank_;
  std::set<std::pair<std::size_t, Uuid>> exchanged_;
  std::set<std::pair<Uuid, std::string>> reported_;
  std::map<std::pair<std::size_t, Uuid>, nanoseconds> failure_known_;
  int last_line_ = 0;
};

TEST(Simulation, HoldsForEverySeed) {
  const std::uint64_t first = g_seed.value_or(1);
  const std::uint64_t last = g_seed ? *g_seed : g_seeds;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    Simulation simulation(seed, g_seed.has_value());
    try {
      simulation.run();
    } catch (const Violation& what) {
      FAIL() << "seed " << seed << ", at " << static_cast<double>(simulation.now().count()) / 1e9
             << " s: " << what.what() << "\nto replay: simulation_test --seed " << seed;
    }
  }
}

}  // namespace
}  // namespace hccl::join

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::uint64_t number = std::strtoull(argv[i + 1], nullptr, 10);
    if (flag == "--seeds") hccl::join::g_seeds = number;
    if (flag == "--seed") hccl::join::g_seed = number;
  }
  return RUN_ALL_TESTS();
}
