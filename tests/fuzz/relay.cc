// A node of the control tree, fed with frames of hostile neighbours, ends of lines, failed dials,
// and time. Its output may go only to open lines, and to nodes of the roster.
#include "hccl/control/relay.h"

#include <map>

#include "hccl/control/wire.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace hccl;
using namespace hccl::control;

constexpr std::uint32_t kNodes = 7;  // each has one rank

class Harness {
 public:
  explicit Harness(fuzz::Input input)
      : input_(input),
        own_(input_.below(kNodes)),
        relay_(roster(), own_, std::chrono::seconds(6), now_) {}

  void run() {
    for (std::uint32_t node = 0; node < kNodes; ++node) {
      const bool is_child = node != 0 && roster()->nodes[node].parent == own_;
      const bool is_parent = own_ != 0 && roster()->nodes[own_].parent == node;
      const LineId id = static_cast<LineId>(node);
      if ((is_child || is_parent) && open(id)) deliver(relay_.seated(id, node, now_));
    }
    for (int steps = 0; !input_.empty() && steps < 300; ++steps) step();
    PROMISE(relay_.news().verdicts.size() <= 400);
  }

 private:
  static std::shared_ptr<const Roster> roster() {
    static const auto kRoster = [] {
      Roster all;
      all.hosts.push_back({"here", "", "10.0.0.1"});
      for (std::uint32_t node = 0; node < kNodes; ++node) {
        all.nodes.push_back({0, node == 0 ? 0 : (node - 1) / 2, 100 + node, 0, 0, RankSet{node}});
        all.node_of.push_back(node);
      }
      return std::make_shared<const Roster>(std::move(all));
    }();
    return kRoster;
  }

  void step() {
    const std::uint8_t what = input_.byte();
    const auto id = static_cast<LineId>(input_.below(40));
    const std::uint32_t node = input_.below(kNodes);
    if (what < 16) {
      if (lines_.erase(id) != 0) deliver(relay_.closed(id, now_));
      closed_[id] = true;
    } else if (what < 40) {
      now_ += std::chrono::milliseconds(10 * input_.byte());
      deliver(relay_.tick(now_));
    } else if (what < 56) {
      if (dials_[node] == 0) return;
      --dials_[node];
      const bool fails = what < 48 || !open(id);
      deliver(fails ? relay_.failed(node, what % 2 == 0, now_) : relay_.opened(id, node, now_));
    } else if (what < 64) {
      own(what % 5);
    } else if (closed_.count(id) == 0) {
      open(id);
      deliver(relay_.frame(id, what < 80 ? std::string(input_.blob()) : frame(id), now_));
    }
  }
  void own(int what) {
    ByteReader none("");
    if (what == 0) deliver(relay_.report(own_, scope(), status(), now_));
    if (what == 1) deliver(relay_.gather({scope(), 1}, sum(), now_));
    if (what == 2) deliver(relay_.waits({scope(), 1, scope(), "call", {own_}, {0, 1}}, now_));
    if (what == 3) deliver(relay_.leave(now_));
    if (what == 4) deliver(relay_.refused(own_, scope(), 1, "bad", now_));
  }

  /// A frame as neighbours make it, except that the fuzzer chooses some of its numbers.
  std::string frame(LineId id) {
    const auto kind = static_cast<Kind>(input_.below(20));
    ByteWriter out;
    const std::uint32_t missed = input_.byte() % 16 == 0 ? input_.below(8) : 0;
    out.put(kind).put(lines_[id] - missed);
    const std::uint32_t epoch = input_.byte() % 32 == 0 ? input_.get<std::uint32_t>() : 1;
    out.put(epoch).put(epoch == 1 ? 0 : input_.below(8));
    body(kind, out);
    std::string bytes = out.take();
    const std::uint8_t how = input_.byte();
    if (how < 16) bytes.resize(std::min<std::size_t>(bytes.size(), input_.byte()));
    if (how >= 16 && how < 32) bytes += input_.blob();
    if (how >= 32 && how < 64) bytes[input_.byte() % bytes.size()] ^= static_cast<char>(how);
    return bytes;
  }
  void body(Kind kind, ByteWriter& out) {
    if (kind == Kind::kAdopt) out.put(input_.below(8)).put(input_.below(3));
    if (kind == Kind::kAdopt || kind == Kind::kBelow) put(out, some());
    if (kind == Kind::kOffer) out.put(input_.below(8)).put(input_.below(8));
    if (kind >= Kind::kAdopt && kind <= Kind::kNews) {
      put(out, some());
      News news{some(), some(), {}};
      for (auto number = input_.below(3); number > 0; --number) {
        news.merge(Verdict{scope(), input_.byte(), status()});
      }
      put(out, news);
    }
    if (kind == Kind::kAnswer || kind == Kind::kPart) {
      out.put(scope()).put(std::uint64_t{input_.byte()});
      if (kind == Kind::kAnswer) out.put(std::uint8_t{0});
      if (kind == Kind::kAnswer) put(out, status());
      put(out, sum());
    }
    if (kind == Kind::kAwaited) {
      out.put(scope()).put(std::uint64_t{1});
      put(out, some());
      put(out, some());
    }
    if (kind == Kind::kWait) put(out, Wait{scope(), 1, scope(), "call", some(), some()});
    if (kind == Kind::kRefusedCall) put(out, refusal());
    if (kind == Kind::kReport) put(out.put(scope()).put(input_.below(8)), status());
    if (kind == Kind::kEnds) out.put(input_.below(8)).put_text("the last");
    if (kind == Kind::kSilent || kind == Kind::kLeave) out.put(input_.below(8));
  }
  Refusal refusal() {
    return {scope(),         input_.below(8), input_.byte(), input_.below(3),
            input_.below(4), "bad",           {{1, some()}}};
  }
  Gathering sum() {
    Gathering all;
    all.arrived = some();
    all.members.add({input_.below(kNodes), some()});
    all.patience = std::chrono::nanoseconds(input_.get<std::int64_t>());
    all.refused[input_.below(4)] = some();
    all.waited = std::chrono::nanoseconds(input_.get<std::int64_t>());
    for (const std::uint32_t rank : all.arrived.ranks()) all.blobs[rank] = input_.bytes(3);
    return all;
  }
  Status status() {
    return {static_cast<Code>(1 + input_.below(8)), std::string(input_.bytes(4)),
            static_cast<int>(input_.below(8)) - 1};
  }
  RankSet some() {
    RankSet set;
    const std::uint8_t bits = input_.byte();
    for (std::uint32_t i = 0; i < kNodes; ++i) {
      if ((bits >> i & 1) != 0) set |= {i};
    }
    return set;
  }
  Uuid scope() { return {static_cast<std::uint8_t>(input_.below(4))}; }

  // Line numbers are used once, as by Control's sockets.
  bool open(LineId id) { return closed_.count(id) == 0 && lines_.try_emplace(id, 0).second; }
  void deliver(const Relay::Step& step) {
    for (const auto& late : step.late) PROMISE(late.arrived == RankSet{own_});
    PROMISE(step.outs.size() <= 8000);
    for (const auto& out : step.outs) {
      PROMISE(lines_.count(out.line) != 0);
      PROMISE(out.close || out.frame.size() >= Neighbours::kHeadBytes);
      PROMISE(out.frame.size() <= (1 << 20));
      if (!out.frame.empty() && static_cast<Kind>(out.frame[0]) != Kind::kAck) ++lines_[out.line];
      if (!out.close) continue;
      lines_.erase(out.line);
      closed_[out.line] = true;
    }
    for (const std::uint32_t node : step.dials) {
      PROMISE(node < kNodes && node != own_);
      ++dials_[node];
    }
    PROMISE(relay_.state() == Relay::State::kOver || relay_.next() > now_);
  }

  fuzz::Input input_;
  Time now_{};
  std::uint32_t own_;
  Relay relay_;
  std::map<LineId, std::uint32_t> lines_;  // open lines, and the number of frames that came on each
  std::map<LineId, bool> closed_;          // closed lines, whose numbers are not used again
  std::map<std::uint32_t, int> dials_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Harness(fuzz::Input(data, size)).run();
  return 0;
}
