// Processes that join a control tree, on virtual time and over a virtual network.
#pragma once

#include <optional>

#include "hccl/control/seek.h"
#include "tests/control/virtual_world.h"

namespace hccl::control {

inline constexpr seconds kConnectTimeout{3};

/// Used by one thread. Process 0 is the root.
class JoiningWorld {
 public:
  JoiningWorld(std::uint64_t seed, bool trace) : random_(seed), trace_(trace) {
    delay_ = random_.percent(50) ? milliseconds(1) : milliseconds(20);
  }
  virtual ~JoiningWorld() = default;

 protected:
  struct Process {
    Roster own;
    std::uint32_t size = 0;
    std::string agreement{};
    Claimants claimants{};  // used by the root
    nanoseconds starts{}, died = kNever, decided = kNever, reached = kNever;
    std::unique_ptr<Seek> seek{};
    std::uint64_t ticks = 0;
  };
  /// Called just before a process gets a frame.
  virtual void comes(std::uint32_t, LineId, const std::string&) {}

  std::uint32_t add(RankSet ranks, std::uint32_t size, nanoseconds starts) {
    const auto number = static_cast<std::uint32_t>(processes_.size());
    const std::string host = "10.0.0." + std::to_string(number / 3);
    Process process;
    process.own.hosts.push_back({"machine " + host, "", host});
    process.own.nodes.push_back(
        {0, 0, 500 + number, static_cast<std::uint16_t>(1000 + number), 0, std::move(ranks)});
    process.size = size;
    process.agreement = "same";
    process.starts = starts;
    processes_.push_back(std::move(process));
    schedule(starts - now_, [this, number] { start(number); });
    return number;
  }
  /// A rank joins in the root's process.
  void bring(std::uint32_t rank, std::uint32_t size, nanoseconds when) {
    schedule(when - now_,
             [=, this] { take(0, processes_[0].seek->bring(rank, size, "same", time())); });
  }
  void die(std::uint32_t number) {
    if (!runs(number)) return;
    say(name(number) + " dies");
    processes_[number].died = now_;
    for (const auto& [id, ends] : lines_) {
      if (ends.of[0] == number || ends.of[1] == number) hang_up(number, id);
    }
  }
  /// Breaks a line between two running processes, at both ends.
  void break_some_line() {
    std::vector<LineId> open;
    for (const auto& [id, ends] : lines_) {
      if (is_open(id) && runs(ends.of[0]) && runs(ends.of[1])) open.push_back(id);
    }
    if (open.empty()) return;
    const LineId id = open[random_.below(open.size())];
    say("a line of " + name(lines_.at(id).of[0]) + " breaks");
    for (const int to : {0, 1}) {
      const std::uint32_t end = lines_.at(id).of[to];
      ended_.insert({end, id});
      schedule(std::max(latency(), lines_.at(id).last[to] - now_), [=, this] {
        if (runs(end)) take(end, processes_[end].seek->closed(id, time()));
      });
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
  bool runs(std::uint32_t number) const {
    return processes_[number].seek != nullptr && processes_[number].died == kNever;
  }
  bool is_open(LineId id) const {
    const auto& ends = lines_.at(id);
    return ended_.count({ends.of[0], id}) + ended_.count({ends.of[1], id}) == 0;
  }
  std::uint32_t other_end(std::uint32_t number, LineId id) const {
    return lines_.at(id).of[0] + lines_.at(id).of[1] - number;
  }
  void schedule(nanoseconds wait, std::function<void()> event) {
    events_.emplace(std::pair{now_ + wait, ++events_made_}, std::move(event));
  }
  Time time() const { return Time(now_); }
  void say(const std::string& what) const {
    if (trace_) std::cout << static_cast<double>(now_.count()) / 1e9 << " s: " << what << "\n";
  }
  static std::string name(std::uint32_t number) { return "process " + std::to_string(number); }

  Random random_;
  nanoseconds now_{0}, delay_{};
  std::vector<Process> processes_;
  std::uint64_t to_root_ = 0, from_root_ = 0;  // numbers of frames

 private:
  struct Ends {
    std::uint32_t of[2] = {0, 0};
    nanoseconds last[2]{};  // when the last bytes to each end arrive: bytes do not overtake
  };

  void start(std::uint32_t number) {
    Process& process = processes_[number];
    std::optional<Seek::Place> root;
    if (number != 0) root = {processes_[0].own.hosts[0].address, 1000};
    say(name(number) + " starts with ranks " + process.own.nodes[0].ranks.text());
    process.seek = std::make_unique<Seek>(process.own, process.size, process.agreement, root,
                                          kConnectTimeout, time(), process.claimants);
    take(number, process.seek->tick(time()));
  }
  void take(std::uint32_t number, Seek::Step step) {
    Process& process = processes_[number];
    for (const auto& out : step.outs) {
      require(lines_.count(out.line) != 0, name(number) + " writes to no line");
      if (!out.frame.empty()) send(number, out.line, out.frame);
      if (out.close) hang_up(number, out.line);
    }
    if (step.dial) dial(number, *step.dial);
    const auto state = process.seek->state();
    if (state == Seek::State::kIn || state == Seek::State::kOver) {
      if (process.decided != kNever) return;
      process.decided = now_;
      say(name(number) +
          (state == Seek::State::kIn ? " is in" : ": " + process.seek->why().message()));
      return;
    }
    const std::uint64_t tick = ++process.ticks;
    const nanoseconds next = process.seek->next().time_since_epoch();
    if (process.seek->next() == Time::max()) return;
    require(next > now_, name(number) + " does not leave what is due");
    schedule(next - now_, [this, number, tick] {
      if (!runs(number) || tick != processes_[number].ticks) return;
      take(number, processes_[number].seek->tick(time()));
    });
  }
  nanoseconds latency() { return delay_ / 10 + random_.up_to(delay_); }
  void carry(std::uint32_t from, LineId id, std::function<void(std::uint32_t)> arrived) {
    Ends& ends = lines_.at(id);
    const int to = ends.of[0] == from ? 1 : 0;
    ends.last[to] = std::max(ends.last[to], now_ + latency());
    schedule(ends.last[to] - now_, [this, node = ends.of[to], arrived] {
      if (runs(node)) arrived(node);
    });
  }
  void hang_up(std::uint32_t number, LineId id) {
    if (!ended_.insert({number, id}).second) return;
    carry(number, id, [this, id](std::uint32_t other) {
      say("  " + name(other) + " hears the end of the line to " + name(other_end(other, id)));
      if (ended_.insert({other, id}).second) {
        take(other, processes_[other].seek->closed(id, time()));
      }
    });
  }
  void send(std::uint32_t number, LineId id, const std::string& frame) {
    if (ended_.count({number, id}) != 0) return;  // the process does not know yet
    from_root_ += number == 0;
    carry(number, id, [this, id, frame](std::uint32_t other) {
      if (ended_.count({other, id}) != 0) return;
      to_root_ += other == 0;
      say("  " + name(other) + " gets frame " + std::to_string(frame[0]) + " from " +
          name(other_end(other, id)));
      comes(other, id, frame);
      take(other, processes_[other].seek->frame(id, frame, time()));
    });
  }
  void dial(std::uint32_t from, const Seek::Place& place) {
    const std::uint32_t to = place.port - 1000u;
    require(to < processes_.size() && to != from &&
                processes_[to].own.hosts[0].address == place.address,
            name(from) + " dials a wrong place");
    schedule(latency(), [this, from, to] {
      const bool fails = !runs(to);
      const nanoseconds back = latency();
      if (!fails) lines_[++last_line_] = {{from, to}, {now_ + back, {}}};
      schedule(back, [this, from, to, fails, id = last_line_] {
        if (!runs(from)) return fails ? void() : hang_up_dead(from, id);
        Process& process = processes_[from];
        say("  " + name(from) + (fails ? " does not reach " : " opens a line to ") + name(to));
        if (!fails && to == 0) process.reached = std::min(process.reached, now_);
        take(from, fails ? process.seek->failed(true, "refused", time())
                         : process.seek->opened(id, time()));
      });
    });
  }
  void hang_up_dead(std::uint32_t from, LineId id) { hang_up(from, id); }

  bool trace_;
  std::map<std::pair<nanoseconds, std::uint64_t>, std::function<void()>> events_;
  std::uint64_t events_made_ = 0;
  std::map<LineId, Ends> lines_;
  LineId last_line_ = 0;
  std::set<std::pair<std::uint32_t, LineId>> ended_;
};

/// Process 0, the root, starts first. All lines take 1 ms or 20 ms.
class Seeking : public JoiningWorld {
 public:
  explicit Seeking(std::uint64_t seed = 1) : JoiningWorld(seed, false) {}
  using JoiningWorld::add;
  using JoiningWorld::bring;
  using JoiningWorld::die;
  using JoiningWorld::is_open;
  using JoiningWorld::processes_;
  using JoiningWorld::run_until;
  using JoiningWorld::schedule;

  /// Adds processes with one rank each, one after the other.
  void add_many(std::uint32_t count, std::uint32_t size) {
    for (std::uint32_t rank = 0; rank < count; ++rank) add({rank}, size, milliseconds(90 * rank));
  }
  const Seek& of(std::uint32_t number) const { return *processes_[number].seek; }
  /// Adds a process on the root's machine.
  std::uint32_t add_at_root(RankSet ranks, std::uint32_t size, nanoseconds starts,
                            std::uint64_t started, Attempt attempt = {}) {
    const std::uint32_t number = add(std::move(ranks), size, starts);
    processes_[number].own.hosts[0].machine = processes_[0].own.hosts[0].machine;
    processes_[number].own.nodes[0].started = started;
    processes_[number].own.nodes[0].attempt = attempt;
    return number;
  }
  bool is_in(std::uint32_t number) const { return of(number).state() == Seek::State::kIn; }
  std::string hears(std::uint32_t number) const { return of(number).why().message(); }
};

}  // namespace hccl::control
