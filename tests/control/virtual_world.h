// Nodes of a control tree on virtual time and over a virtual network. Carries out the relays'
// steps, while processes die, stop, run again, leave, and lose the network between them.
#pragma once

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hccl/control/relay.h"

namespace hccl::control {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

inline constexpr nanoseconds kNever = nanoseconds::max();
inline constexpr seconds kPeerTimeout{6};

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};
inline void require(bool holds, const std::string& what) {
  if (!holds) throw Violation(what);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : bits_(seed * 0x9E3779B97F4A7C15u + 1) {}
  std::uint32_t below(std::uint64_t end) { return static_cast<std::uint32_t>(bits_() % end); }
  bool percent(unsigned chance) { return below(100) < chance; }
  nanoseconds up_to(nanoseconds most) {
    return nanoseconds(
        static_cast<std::int64_t>(bits_() % (static_cast<std::uint64_t>(most.count()) + 1)));
  }

 private:
  std::mt19937_64 bits_;
};

/// The times of a process's events; kNever if an event has not happened.
struct Life {
  nanoseconds died = kNever, leaves = kNever, left = kNever;  ///< leaves: it begins to leave
  std::vector<std::pair<nanoseconds, nanoseconds>> stops;
  /// Whether the process was stopped, had died or was leaving at some time in the interval.
  bool was_absent(nanoseconds from, nanoseconds to) const {
    return died <= to || leaves <= to || std::ranges::any_of(stops, [&](const auto& each) {
             return each.first <= to && each.second >= from;
           });
  }
  nanoseconds longest_stop() const {
    nanoseconds longest{0};
    for (const auto& [from, to] : stops) longest = std::max(longest, to - from);
    return longest;
  }
};

/// Used by one thread. A derived class gets the relays' messages to their ranks.
class World {
 public:
  World(std::uint64_t seed, bool trace) : random_(seed), trace_(trace) {
    delay_ = random_.percent(50) ? milliseconds(1) : milliseconds(20);
  }
  virtual ~World() = default;

 protected:
  virtual void hear(std::uint32_t node, const News& news) = 0;
  virtual void hear(std::uint32_t node, const Gatherings::Answer& answer) = 0;
  virtual void hear(std::uint32_t, const Gatherings::Late&) {}
  virtual void over(std::uint32_t node) = 0;
  /// Called just before the relay of a node gets a frame.
  virtual void comes(std::uint32_t, LineId, const std::string&) {}

  /// Makes the nodes, and opens the lines that they have after joining.
  void make(std::shared_ptr<const Roster> roster) {
    roster_ = std::move(roster);
    const auto size = static_cast<std::uint32_t>(roster_->nodes.size());
    processes_.resize(size);
    lives_.resize(size);
    depth_ = 1;
    for (std::uint32_t node = 0; node < size; ++node) {
      processes_[node].relay = std::make_unique<Relay>(roster_, node, kPeerTimeout, time());
      depth_ = std::max(depth_, 1 + static_cast<int>(roster_->ancestors(node).size()));
    }
    for (std::uint32_t node = 1; node < size; ++node) {
      const std::uint32_t parent = roster_->nodes[node].parent;
      const LineId id = connect(node, parent);
      take(node, relay(node).seated(id, parent, time()));
      take(parent, relay(parent).seated(id, node, time()));
    }
  }
  void run_until(nanoseconds end) {
    while (!events_.empty() && events_.begin()->first.first < end) {
      const auto next = events_.begin();
      now_ = next->first.first;
      const auto event = std::move(next->second);
      events_.erase(next);
      event();
    }
    now_ = end;
  }

  // ---- events of processes ----

  void die(std::uint32_t node) {
    if (!runs(node)) return;
    say(name(node) + " dies");
    lives_[node].died = now_;
    hang_up_all(node);
  }
  void leave(std::uint32_t node) {
    at(node, [this, node] {
      if (lives_[node].leaves != kNever) return;
      say(name(node) + " leaves");
      lives_[node].leaves = now_;
      take(node, relay(node).leave(time()));
    });
  }
  void stop(std::uint32_t node, nanoseconds how_long) {
    Process& process = processes_[node];
    if (!runs(node) || process.stopped) return;
    say(name(node) + " is stopped for " +
        (how_long == kNever ? "ever" : std::to_string(how_long.count() / 1000000) + " ms"));
    process.stopped = true;
    lives_[node].stops.emplace_back(now_, how_long == kNever ? kNever : now_ + how_long);
    if (how_long != kNever) schedule(how_long, [this, node] { resume(node); });
  }
  /// No bytes pass between the two sides for `how_long`. Bytes on the way arrive after that.
  void cut(const std::set<std::uint32_t>& side, nanoseconds how_long) {
    say("the network is cut around " + std::to_string(side.size()) + " nodes");
    side_ = side;
    cut_until_ = how_long == kNever ? kNever : now_ + how_long;
  }

  // ---- acts of ranks ----

  Relay& relay(std::uint32_t node) { return *processes_[node].relay; }
  const Relay& relay(std::uint32_t node) const { return *processes_[node].relay; }
  Time time() const { return Time(now_); }
  bool runs(std::uint32_t node) const {
    return lives_[node].died == kNever && relay(node).state() != Relay::State::kOver;
  }
  void schedule(nanoseconds wait, std::function<void()> event) {
    events_.emplace(std::pair{now_ + wait, ++events_made_}, std::move(event));
  }
  /// Runs the event in the process, at once or when the process runs again.
  void at(std::uint32_t node, std::function<void()> event) {
    if (!runs(node)) return;
    if (processes_[node].stopped) {
      processes_[node].inbox.push_back(std::move(event));
    } else {
      event();
    }
  }
  void take(std::uint32_t node, Relay::Step step) {
    Process& process = processes_[node];
    for (const auto& out : step.outs) {
      if (!out.frame.empty()) send(node, out.line, out.frame);
      if (out.close) hang_up(node, out.line);
    }
    for (const std::uint32_t to : step.dials) dial(node, to);
    hear(node, step.heard);
    for (const auto& answer : step.answers) hear(node, answer);
    for (const auto& late : step.late) hear(node, late);
    const Root root = process.relay->root();
    require(!process.root.is_later_than(root), name(node) + " obeys an earlier root again");
    if (!(root == process.root) && root.node == node) {
      ++successions_;
      say(name(node) + " is root " + std::to_string(root.epoch));
    }
    process.root = root;
    if (process.relay->state() == Relay::State::kOver) {
      say(name(node) + " is over");
      if (lives_[node].left == kNever) over(node);
      lives_[node].left = std::min(lives_[node].left, now_);
      return hang_up_all(node);
    }
    const nanoseconds next = process.relay->next().time_since_epoch();
    if (process.relay->next() == Time::max()) return;
    const std::uint64_t tick = ++process.ticks;
    schedule(std::max(nanoseconds(0), next - now_), [this, node, tick] {
      at(node, [this, node, tick] {
        if (tick == processes_[node].ticks) take(node, relay(node).tick(time()));
      });
    });
  }
  bool is_stopped(std::uint32_t node) const { return processes_[node].stopped; }
  void say(const std::string& what) const {
    if (trace_) std::cout << static_cast<double>(now_.count()) / 1e9 << " s: " << what << "\n";
  }
  static std::string name(std::uint32_t node) { return "node " + std::to_string(node); }
  /// The longest time that bytes take on one line.
  nanoseconds hop() const { return delay_ + delay_ / 10; }
  /// The longest time that a message takes from a node to the root, or back.
  nanoseconds reach() const { return depth_ * hop(); }
  /// The number of lines that are open at both ends, between processes that run and are not in
  /// `without`.
  std::size_t open_lines(const std::set<std::uint32_t>& without) const {
    return static_cast<std::size_t>(std::ranges::count_if(lines_, [&](const auto& each) {
      const auto& [id, ends] = each;
      const auto here = [&](std::uint32_t node) {
        return runs(node) && !is_stopped(node) && without.count(node) == 0;
      };
      return here(ends.node[0]) && here(ends.node[1]) && ended_.count({ends.node[0], id}) == 0 &&
             ended_.count({ends.node[1], id}) == 0;
    }));
  }

  Random random_;
  std::shared_ptr<const Roster> roster_;
  std::vector<Life> lives_;
  nanoseconds now_{0}, delay_{};
  std::map<Kind, std::uint64_t> frames_;  // frames that were sent
  std::uint64_t successions_ = 0;
  int depth_ = 1;  // depth of the tree, in nodes

 private:
  struct Process {
    std::unique_ptr<Relay> relay;
    bool stopped = false;
    std::vector<std::function<void()>> inbox;  // events that wait while the process is stopped
    std::uint64_t ticks = 0;                   // number of the last scheduled tick
    Root root;
  };
  struct Ends {
    std::uint32_t node[2] = {0, 0};
    nanoseconds last[2]{};  // when the last bytes to each end arrive: bytes do not overtake
  };

  void resume(std::uint32_t node) {
    Process& process = processes_[node];
    if (!runs(node)) return;
    say(name(node) + " runs again");
    process.stopped = false;
    if (random_.percent(50)) take(node, relay(node).tick(time()));
    for (const auto& event : std::exchange(process.inbox, {})) at(node, event);
  }
  LineId connect(std::uint32_t a, std::uint32_t b) {
    lines_[++last_line_] = {{a, b}, {}};
    return last_line_;
  }
  nanoseconds latency() { return delay_ / 10 + random_.up_to(delay_); }
  bool is_cut(std::uint32_t a, std::uint32_t b) const {
    return now_ < cut_until_ && side_.count(a) != side_.count(b);
  }
  /// Calls `arrived` at the other end of the line, after the arrival of all that was sent before.
  void carry(std::uint32_t from, LineId id, std::function<void(std::uint32_t)> arrived) {
    Ends& ends = lines_.at(id);
    const int to = ends.node[0] == from ? 1 : 0;
    const std::uint32_t node = ends.node[to];
    const bool waits = is_cut(from, node);
    if (waits && cut_until_ == kNever) return;
    ends.last[to] = std::max(ends.last[to], (waits ? cut_until_ : now_) + latency());
    schedule(ends.last[to] - now_,
             [this, node, arrived] { at(node, [node, arrived] { arrived(node); }); });
  }
  void hang_up(std::uint32_t node, LineId id) {
    if (!ended_.insert({node, id}).second) return;
    carry(node, id, [this, id](std::uint32_t other) {
      if (ended_.insert({other, id}).second) take(other, relay(other).closed(id, time()));
    });
  }
  void send(std::uint32_t node, LineId id, const std::string& frame) {
    require(ended_.count({node, id}) == 0, name(node) + " writes to a line that has ended");
    ++frames_[static_cast<Kind>(frame[0])];
    carry(node, id, [this, id, frame](std::uint32_t other) {
      if (ended_.count({other, id}) != 0) return;
      ByteReader in(frame);
      const auto kind = in.get<Kind>();
      if (kind > Kind::kBeat) {
        say("  " + name(other) + " gets " + word_of(kind) + " from " +
            name(lines_.at(id).node[0] + lines_.at(id).node[1] - other));
      }
      static_cast<void>(in.get<std::uint32_t>());
      const Root root{in.get<std::uint32_t>(), in.get<std::uint32_t>()};
      comes(other, id, frame);
      take(other, relay(other).frame(id, frame, time()));
      require(!root.is_later_than(relay(other).root()), name(other) + " obeys an earlier root");
    });
  }
  void dial(std::uint32_t from, std::uint32_t to) {
    schedule(latency(), [this, from, to] {
      // A stopped process does not prove who it is, so the dial ends after its time limit.
      const bool lost = is_cut(from, to) || (runs(to) && processes_[to].stopped);
      const bool fails = lost || !runs(to);
      const LineId id = fails ? 0 : connect(from, to);
      const nanoseconds back = lost ? nanoseconds(seconds(1)) : latency();
      if (!fails) lines_.at(id).last[0] = now_ + back;
      schedule(back, [this, from, to, lost, fails, id] {
        at(from, [this, from, to, lost, fails, id] {
          say("  " + name(from) + (fails ? " does not reach " : " opens a line to ") + name(to));
          take(from,
               fails ? relay(from).failed(to, !lost, time()) : relay(from).opened(id, to, time()));
        });
      });
    });
  }
  /// The kernel closes the lines that a process leaves open.
  void hang_up_all(std::uint32_t node) {
    for (const auto& [id, ends] : lines_) {
      if (ends.node[0] == node || ends.node[1] == node) hang_up(node, id);
    }
  }
  static std::string word_of(Kind kind) {
    static const char* const kWords[] = {"an acknowledgement",
                                         "a beat",
                                         "bye",
                                         "adopt me",
                                         "an offer",
                                         "welcome",
                                         "no",
                                         "news",
                                         "an answer",
                                         "who is awaited",
                                         "below",
                                         "a part",
                                         "a wait",
                                         "silent",
                                         "a refused call",
                                         "a report",
                                         "ends",
                                         "a rank leaves",
                                         "a rank dies",
                                         "leave"};
    return kWords[static_cast<int>(kind)];
  }

  bool trace_;
  std::vector<Process> processes_;
  std::map<std::pair<nanoseconds, std::uint64_t>, std::function<void()>> events_;
  std::uint64_t events_made_ = 0;
  std::map<LineId, Ends> lines_;
  LineId last_line_ = 0;
  std::set<std::pair<std::uint32_t, LineId>> ended_;
  std::set<std::uint32_t> side_;
  nanoseconds cut_until_{0};
};

}  // namespace hccl::control
