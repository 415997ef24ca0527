#include "hccl/join/control_node.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "hccl/base/process.h"
#include "hccl/join/host.h"

namespace hccl::join {

using control::Relay;
using control::Seek;
using Clock = std::chrono::steady_clock;

control::Roster own_part(const std::string& address, std::uint16_t port, control::RankSet ranks,
                         const std::string& boot, const control::Attempt& attempt) {
  control::Roster own;
  own.hosts.push_back({host_identity(boot), core_mask(), address});
  own.nodes.push_back({0, 0, static_cast<std::uint32_t>(::getpid()), port, start_of(::getpid()),
                       std::move(ranks), attempt});
  return own;
}

ControlNode::ControlNode(Args args, std::unique_ptr<Lines> lines, Owner& owner)
    : peer_timeout_(args.peer_timeout),
      lines_(std::move(lines)),
      owner_(&owner),
      root_(!args.root),
      seek_(std::move(args.own), args.size, std::move(args.agreement), std::move(args.root),
            args.patience, Clock::now(), std::move(args.claimants)),
      to_root_(std::move(args.to_root)) {}

void ControlNode::turn() {
  if (over_) return;
  const Time now = Clock::now();
  for (const Lines::Event& event : lines_->turn(now)) handle(event, now);
  if (const Status lacks = lines_->lacks(now); !lacks.ok() && !relay_) {
    give_up(lacks.with_context(std::string(root_ ? "the root, " : "") + "pid " +
                               std::to_string(::getpid()) + ", cannot take in more ranks"));
  }
  if (now >= seek_.next()) apply(seek_.tick(now), now);
  if (relay_ && now >= relay_->next()) apply(relay_->tick(now));
  settle();
}

void ControlNode::handle(const Lines::Event& event, Time now) {
  if (event.what == Lines::What::kFrame) return take(event, now);
  if (event.what == Lines::What::kClosed) {
    apply(seek_.closed(event.line, now), now);
    if (relay_) apply(relay_->closed(event.line, now));
    return;
  }
  const auto dial = dials_.extract(event.line);
  if (dial.empty()) return;
  const bool opened = event.what == Lines::What::kOpened;
  if (const auto node = dial.mapped()) {
    apply(opened ? relay_->opened(event.line, *node, now) : relay_->failed(*node, event.gone, now));
  } else {
    apply(opened ? seek_.opened(event.line, now) : seek_.failed(event.gone, event.text, now), now);
  }
}

// The first byte shows whether a frame is of a Seek or of a Relay. While this node joins, its Seek
// closes a line on which a Relay's frame arrives, and the sender dials again.
void ControlNode::take(const Lines::Event& frame, Time now) {
  const auto kind = static_cast<std::uint8_t>(frame.text.front());
  if (kind >= control::kFirstJoinKind || !relay_) {
    apply(seek_.frame(frame.line, frame.text, now), now);
  } else {
    apply(relay_->frame(frame.line, frame.text, now));
  }
}

void ControlNode::send(const std::vector<Relay::Out>& outs) {
  for (const auto& out : outs) {
    if (!out.frame.empty()) lines_->send(out.line, out.frame);
    if (out.close) lines_->close(out.line);
  }
}

void ControlNode::apply(const Seek::Step& step, Time now) {
  send(step.outs);
  if (step.dial && to_root_) {
    const auto line = lines_->add(std::move(*to_root_));
    to_root_.reset();
    return apply(seek_.opened(line, now), now);
  }
  if (step.dial) dials_[lines_->dial(step.dial->address, step.dial->port, now)] = std::nullopt;
  if (seek_.state() != Seek::State::kIn || relay_) return;
  relay_ = std::make_unique<Relay>(seek_.roster(), seek_.node(), peer_timeout_, now);
  for (const auto& [line, node] : seek_.lines()) apply(relay_->seated(line, node, now));
  owner_->joined(seek_.roster(), seek_.node());
}

void ControlNode::apply(const Relay::Step& step) {
  send(step.outs);
  for (const std::uint32_t node : step.dials) {
    const control::Roster& all = *seek_.roster();
    const auto& its = all.nodes[node];
    dials_[lines_->dial(all.hosts[its.host].address, its.port, Clock::now())] = node;
  }
  if (!step.heard.empty()) owner_->heard(step.heard);
  for (const auto& answer : step.answers) owner_->answered(answer);
  for (const auto& late : step.late) owner_->late(late);
}

// The end of the Seek does not end the node: a root that has refused all ranks also refuses ranks
// that come later.
void ControlNode::settle() {
  if (seek_.state() == Seek::State::kOver && !std::exchange(told_, true)) {
    owner_->failed(seek_.why());
  }
  if (over_ || !relay_ || relay_->state() != Relay::State::kOver || lines_->unsent()) return;
  over_ = told_ = true;
  lines_->close_all();
  owner_->over();
}

ControlNode::Time ControlNode::next() const {
  if (over_) return Time::max();
  const Time mine = std::min(lines_->next(), seek_.next());
  return relay_ ? std::min(mine, relay_->next()) : mine;
}

void ControlNode::say(const std::function<Relay::Step(Relay&, Time)>& what) {
  if (!is_in()) return;
  const Time now = Clock::now();
  apply(what(*relay_, now));
  settle();
}

void ControlNode::bring(const Owner* its, std::uint32_t rank, std::uint32_t size,
                        const std::string& agreement, const control::Attempt& attempt) {
  if (told_ || relay_) return owner_->refused(its, relay_ ? Status() : seek_.why());
  owner_->brought(its);
  const Time now = Clock::now();
  apply(seek_.bring(rank, size, agreement, now, attempt), now);
  settle();
}

// Processes that connect get the reason, one after the other, over the spare descriptor.
void ControlNode::give_up(const Status& why) {
  const Time now = Clock::now();
  lines_->use_spare();
  apply(seek_.give_up(why, now), now);
  settle();
}

void ControlNode::fail(const Status& why) noexcept {
  over_ = true;
  lines_->close_all();
  if (!std::exchange(told_, true)) owner_->failed(why);
}

bool ControlNode::is_heeded() const {
  return over_ || (!lines_->unsent() && (!is_in() || relay_->is_heeded()));
}

}  // namespace hccl::join
