// A process that joins the control tree, fed with frames of hostile processes above and below it,
// ends of lines, failed dials, and time. Its output may go only to open lines.
#include "hccl/control/seek.h"

#include <map>
#include <set>

#include "hccl/control/wire.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace hccl;
using namespace hccl::control;

constexpr std::uint32_t kSize = 3;
constexpr std::uint8_t kAsk = kFirstJoinKind, kSeat = kAsk + 1, kBelow = kAsk + 2, kAway = kAsk + 3,
                       kRoster = kAsk + 4, kRefused = kAsk + 5;

Roster process(std::uint32_t number, RankSet ranks) {
  Roster all;
  all.hosts.push_back({"here", "", "10.0.0.1"});
  all.nodes.push_back({0, 0, 100 + number, static_cast<std::uint16_t>(number), 0, ranks});
  return all;
}

class Harness {
 public:
  explicit Harness(fuzz::Input input)
      : input_(input), is_root_(input_.below(2) == 0), seek_(make(is_root_, input_.below(2))) {}

  void run() {
    deliver(seek_.tick(now_));
    for (int steps = 0; !input_.empty() && steps < 300; ++steps) step();
    const auto roster = seek_.roster();
    PROMISE((seek_.state() == Seek::State::kIn) == (roster != nullptr));
    if (!roster) return;
    PROMISE(roster->node_of.size() == kSize || is_root_);
    PROMISE(seek_.node() < roster->nodes.size());
    for (const auto& [id, node] : seek_.lines()) PROMISE(node < roster->nodes.size());
  }

 private:
  Seek make(bool root, bool knows) {
    Claimants claimants;
    claimants.find = [this](const std::vector<Claim>& came, const std::string&) {
      std::vector<Claim> all;
      if (input_.below(4) == 0) all.push_back({input_.below(8), 9, "here", "a", input_.byte(), {}});
      PROMISE(!came.empty());
      return all;
    };
    const std::uint32_t size = root && !knows ? 0 : kSize;
    std::optional<Seek::Place> place;
    if (!root) place = {"10.0.0.1", 1};
    return Seek(process(0, size == 0 ? RankSet() : RankSet{0}), size, "same", place,
                std::chrono::seconds(10), now_, claimants);
  }

  void step() {
    const std::uint8_t what = input_.byte();
    if (what < 16) {
      const LineId id = some_line();
      lines_.erase(id);
      deliver(seek_.closed(id, now_));
    } else if (what < 32) {
      now_ += std::chrono::milliseconds(10 * input_.byte());
      deliver(seek_.tick(now_));
    } else if (what < 56) {
      if (!dialing_) return;
      dialing_ = false;
      if (what < 36) return deliver(seek_.failed(what % 2 == 0, "refused", now_));
      deliver(seek_.opened(new_line(), now_));
    } else if (what < 60) {
      // Called once, as by Root, and never for a process that has ranks.
      if (!is_root_ || std::exchange(brought_, true)) return;
      deliver(seek_.bring(input_.below(kSize), kSize, "same", now_));
    } else if (what < 61) {
      if (input_.below(8) != 0) return;
      deliver(seek_.give_up({Code::kUnavail, "no descriptors"}, now_));
    } else {
      const LineId id = some_line();
      const std::string bytes = what < 80 ? joining(input_.bytes(input_.byte())) : frame();
      deliver(seek_.frame(id, bytes, now_));
    }
  }
  // ControlNode passes no other frames to a Seek.
  static std::string joining(std::string_view bytes) {
    std::string frame(bytes.empty() ? std::string_view("x") : bytes);
    frame[0] = static_cast<char>(static_cast<std::uint8_t>(frame[0]) | kFirstJoinKind);
    return frame;
  }

  /// A frame as processes make it, except that the fuzzer chooses some of its numbers.
  std::string frame() {
    const std::uint8_t kind = kAsk + static_cast<std::uint8_t>(input_.below(7));
    ByteWriter out;
    out.put(kind);
    if (kind == kAsk) {
      out.put(kJoinVersion + (input_.byte() % 64 == 0 ? 1 : 0));
      out.put(input_.byte() % 64 == 0 ? input_.get<std::uint32_t>() : kSize);
      out.put_text(input_.byte() % 64 == 0 ? "other" : "same");
    }
    if (kind == kBelow) out.put(static_cast<std::uint8_t>(input_.below(2)));
    if (kind == kAsk || kind == kBelow) put(out, below());
    if (kind == kSeat || kind == kRoster) out.put(static_cast<std::uint8_t>(input_.below(2)));
    if (kind == kSeat) out.put_text("10.0.0.1").put(std::uint16_t{input_.byte()});
    if (kind == kRoster) put(out, whole());
    if (kind == kAway) {
      out.put_text("here").put(100 + input_.below(8)).put(std::uint16_t{input_.byte()});
      out.put(std::uint64_t{0});
    }
    if (kind == kRefused) out.put(static_cast<std::uint8_t>(input_.below(2)));
    if (kind == kAway || kind == kRefused) put(out, Status(Code::kPara, "refused"));
    std::string bytes = out.take();
    const std::uint8_t how = input_.byte();
    if (how < 16) bytes.resize(std::max<std::size_t>(1, input_.byte() % bytes.size()));
    if (how >= 16 && how < 32) bytes += input_.bytes(1 + input_.below(9));
    if (how >= 32 && how < 64) bytes[input_.byte() % bytes.size()] ^= static_cast<char>(how);
    return joining(bytes);
  }
  /// The roster of a process and of some processes below it.
  Roster below() {
    Roster all = process(1 + input_.below(6), some());
    all.nodes[0].started = 200 * input_.below(3);
    if (input_.below(4) == 0) all.nodes[0].attempt = {1, input_.below(3)};
    for (auto more = input_.below(3); more > 0; --more) {
      const std::uint32_t number = 1 + input_.below(8);
      all.nodes.push_back(
          {0, input_.below(2), 100 + number, static_cast<std::uint16_t>(number), 0, some()});
    }
    return all;
  }
  Roster whole() {
    Roster all = process(7, {input_.below(2)});
    for (std::uint32_t rank = 1; rank < kSize; ++rank) {
      const std::uint32_t number = rank == 1 ? 0 : rank;
      all.nodes.push_back({0, input_.below(2), 100 + number, static_cast<std::uint16_t>(number), 0,
                           rank == 1 ? RankSet{0} : RankSet{rank}});
    }
    return all;
  }
  RankSet some() {
    if (input_.byte() % 16 != 0) return {1 + input_.below(kSize)};
    RankSet set;
    const std::uint8_t bits = input_.byte();
    for (std::uint32_t i = 0; i < 8; ++i) {
      if ((bits >> i & 1) != 0) set |= {i};
    }
    return set;
  }

  // Line numbers are used once, as by Control's sockets.
  LineId new_line() { return *lines_.insert(++last_).first; }
  LineId some_line() {
    const std::uint8_t which = input_.byte();
    if (lines_.empty() || which < 64) return new_line();
    return *std::next(lines_.begin(), which % static_cast<std::ptrdiff_t>(lines_.size()));
  }
  void deliver(const Seek::Step& step) {
    for (const auto& out : step.outs) {
      PROMISE(lines_.count(out.line) != 0);
      PROMISE(out.close || !out.frame.empty());
      PROMISE(out.frame.size() <= (1 << 20));
      if (out.close) lines_.erase(out.line);
    }
    PROMISE(!step.dial || !dialing_);
    dialing_ = dialing_ || step.dial.has_value();
    PROMISE(seek_.state() == Seek::State::kIn || seek_.state() == Seek::State::kOver ||
            seek_.next() > now_);
    PROMISE((seek_.state() == Seek::State::kOver) == !seek_.why().ok());
  }

  fuzz::Input input_;
  Time now_{};
  bool is_root_;
  Seek seek_;
  bool dialing_ = false, brought_ = false;
  LineId last_ = 0;
  std::set<LineId> lines_;  // open lines
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Harness(fuzz::Input(data, size)).run();
  return 0;
}
