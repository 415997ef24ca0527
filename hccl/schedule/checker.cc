#include "hccl/schedule/checker.h"

#include <utility>
#include <vector>

#include "hccl/base/call.h"
#include "hccl/schedule/step_rules.h"
#include "hccl/schedule/symbolic.h"

namespace hccl::schedule {
namespace {

std::string text(int number) { return std::to_string(number); }

// Runs the schedules of all ranks together. A rank starts all messages of its current step at once.
// The oldest unmatched send and receive of an ordered pair of ranks match as soon as both have
// started. Data moves only then (a rendezvous: no send is ever buffered). A rank whose messages
// have all matched does its folds and continues. Messages that never match are a deadlock.
class Execution {
 public:
  /// `schedules` has one schedule for each rank and must outlive the execution.
  Execution(const Setting& setting, const std::vector<Schedule>& schedules)
      : setting_(setting), ranks_(schedules.size()), pairs_(schedules.size() * schedules.size()) {
    for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
      ranks_[rank].schedule = &schedules[rank];
    }
  }

  /// Returns the error ("rank 2 step 3 …"), or an empty text.
  std::string run();

 private:
  static constexpr int kNone = -1;

  // A message of a rank's current step: whether it has matched, and the number of the next message
  // between the same two ranks.
  struct PostedMessage {
    bool met = false;
    int next = kNone;
  };
  // The oldest unmatched send and the oldest unmatched receive among the started messages from one
  // rank to another.
  struct Pair {
    int send = kNone;
    int recv = kNone;
  };
  struct Rank {
    const Schedule* schedule = nullptr;
    std::vector<PostedMessage> sends, recvs;  // of the current step
    std::size_t step = 0;
    std::size_t open = 0;  // messages of the current step that have not matched
    RankSet heard;         // barrier: the ranks known to have arrived when the step began
    RankSet hearing;       // barrier: `heard`, and the ranks that this step adds
  };

  std::string load();
  std::string post(int rank);
  std::string meet_all(int from, int to);
  std::string meet(int from, std::size_t send, int to, std::size_t recv);
  std::string move_data(int from, const Send& send, int to, const Recv& recv);
  std::string fold(int rank, const Fold& fold);
  std::string finish_step(int rank);
  std::string deadlock() const;
  std::string waits_for(int rank) const;
  std::string results() const;

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  Pair& pair_of(int from, int to) {
    return pairs_[static_cast<std::size_t>(from) * ranks_.size() + static_cast<std::size_t>(to)];
  }
  Memory& memory(int rank) { return memories_[static_cast<std::size_t>(rank)]; }
  const Memory& memory(int rank) const { return memories_[static_cast<std::size_t>(rank)]; }
  bool done(int rank) const { return at(rank).step == at(rank).schedule->steps.size(); }
  const Step& current(int rank) const { return at(rank).schedule->steps[at(rank).step]; }
  std::string here(int rank) const {
    return "rank " + text(rank) + " step " + text(static_cast<int>(at(rank).step)) + " ";
  }
  std::string located(int rank, const std::string& wrong) const {
    return wrong.empty() ? wrong : here(rank) + wrong;
  }

  Setting setting_;
  std::vector<Rank> ranks_;
  std::vector<Pair> pairs_;  // of every ordered pair of ranks
  std::vector<Memory> memories_;
  StepRules rules_;
  std::vector<int> ready_;       // ranks whose current step has no open messages
  std::vector<Value> operands_;  // kept between folds to save allocations
  Value value_;
};

std::string Execution::load() {
  setting_.chunks = at(0).schedule->chunks;
  for (int rank = 0; rank < setting_.size; ++rank) {
    const Schedule& schedule = *at(rank).schedule;
    if (schedule.chunks != setting_.chunks) {
      return "rank " + text(rank) + " cuts the vector into " + text(schedule.chunks) +
             " chunks and rank 0 into " + text(setting_.chunks);
    }
    if (schedule.scratch_slots < 0) return "rank " + text(rank) + " asks for negative slots";
  }
  const bool barrier = setting_.op == Op::kBarrier;
  if (barrier ? setting_.chunks != 0 : setting_.chunks < 1) {
    return "the vector has " + text(setting_.chunks) + " chunks";
  }
  const bool blocks = setting_.op == Op::kReduceScatter || setting_.op == Op::kAllGather ||
                      setting_.op == Op::kScatter || setting_.op == Op::kAllToAll;
  if (blocks && setting_.chunks % setting_.size != 0) {
    return text(setting_.chunks) + " chunks cannot be " + text(setting_.size) + " equal blocks";
  }
  for (int rank = 0; rank < setting_.size; ++rank) {
    memories_.emplace_back(setting_, rank, at(rank).schedule->scratch_slots);
    at(rank).heard.assign((ranks_.size() + 63) / 64, 0);
    insert(at(rank).heard, rank);
  }
  return {};
}

std::string Execution::move_data(int from, const Send& send, int to, const Recv& recv) {
  if (send.from.count != recv.into.count ||
      (send.from.chunk != recv.into.chunk && setting_.op != Op::kAllToAll)) {
    return here(from) + "sends " + describe(send.from) + " to rank " + text(to) + ", whose step " +
           text(static_cast<int>(at(to).step)) + " expects " + describe(recv.into);
  }
  operands_.resize(recv.reduce_with ? 2 : 1);
  for (int i = 0; i < send.from.count; ++i) {
    std::string wrong = located(from, memory(from).read(send.from, i, operands_.back()));
    if (wrong.empty() && recv.reduce_with) {
      wrong = located(to, memory(to).read(*recv.reduce_with, i, operands_.front()));
    }
    if (wrong.empty()) wrong = located(to, memory(to).fold(operands_, value_));
    if (!wrong.empty()) return wrong;
    memory(to).write(recv.into, i, value_);
  }
  return {};
}

std::string Execution::meet(int from, std::size_t send, int to, std::size_t recv) {
  Rank& sender = at(from);
  Rank& receiver = at(to);
  sender.sends[send].met = true;
  receiver.recvs[recv].met = true;
  if (setting_.op == Op::kBarrier) {
    for (std::size_t word = 0; word < sender.heard.size(); ++word) {
      receiver.hearing[word] |= sender.heard[word];
    }
  } else if (std::string wrong =
                 move_data(from, current(from).sends[send], to, current(to).recvs[recv]);
             !wrong.empty()) {
    return wrong;
  }
  if (--sender.open == 0) ready_.push_back(from);
  if (--receiver.open == 0) ready_.push_back(to);
  return {};
}

std::string Execution::meet_all(int from, int to) {
  Pair& pair = pair_of(from, to);
  while (pair.send != kNone && pair.recv != kNone) {
    const auto send = static_cast<std::size_t>(pair.send);
    const auto recv = static_cast<std::size_t>(pair.recv);
    pair.send = at(from).sends[send].next;
    pair.recv = at(to).recvs[recv].next;
    if (std::string wrong = meet(from, send, to, recv); !wrong.empty()) return wrong;
  }
  return {};
}

std::string Execution::post(int rank) {
  Rank& self = at(rank);
  const Step& step = current(rank);
  if (std::string wrong = located(rank, rules_.broken(setting_, rank, memory(rank), step));
      !wrong.empty()) {
    return wrong;
  }
  self.hearing = self.heard;
  self.sends.assign(step.sends.size(), {});
  self.recvs.assign(step.recvs.size(), {});
  self.open = step.sends.size() + step.recvs.size();
  if (self.open == 0) ready_.push_back(rank);
  // Goes from the last message to the first, so that the oldest message heads each pair's list.
  for (std::size_t i = step.sends.size(); i-- > 0;) {
    Pair& pair = pair_of(rank, step.sends[i].peer);
    self.sends[i].next = std::exchange(pair.send, static_cast<int>(i));
  }
  for (std::size_t i = step.recvs.size(); i-- > 0;) {
    Pair& pair = pair_of(step.recvs[i].peer, rank);
    self.recvs[i].next = std::exchange(pair.recv, static_cast<int>(i));
  }
  for (const Send& send : step.sends) {
    if (std::string wrong = meet_all(rank, send.peer); !wrong.empty()) return wrong;
  }
  for (const Recv& recv : step.recvs) {
    if (std::string wrong = meet_all(recv.peer, rank); !wrong.empty()) return wrong;
  }
  return {};
}

std::string Execution::fold(int rank, const Fold& fold) {
  operands_.resize(fold.inputs.size());
  for (int i = 0; i < fold.into.count; ++i) {
    for (std::size_t input = 0; input < fold.inputs.size(); ++input) {
      std::string wrong = memory(rank).read(fold.inputs[input], i, operands_[input]);
      if (!wrong.empty()) return wrong;
    }
    if (std::string wrong = memory(rank).fold(operands_, value_); !wrong.empty()) return wrong;
    memory(rank).write(fold.into, i, value_);
  }
  return {};
}

std::string Execution::finish_step(int rank) {
  for (const Fold& next : current(rank).folds) {
    if (std::string wrong = located(rank, fold(rank, next)); !wrong.empty()) return wrong;
  }
  Rank& self = at(rank);
  self.heard = self.hearing;
  ++self.step;
  return done(rank) ? std::string{} : post(rank);
}

std::string Execution::waits_for(int rank) const {
  const auto is = [&](int peer) {
    return done(peer) ? ", which has finished"
                      : ", which is in step " + text(static_cast<int>(at(peer).step));
  };
  const Step& step = current(rank);
  for (std::size_t i = 0; i < step.sends.size(); ++i) {
    if (at(rank).sends[i].met) continue;
    const Send& send = step.sends[i];
    return here(rank) + "waits to send " + describe(send.from) + " to rank " + text(send.peer) +
           is(send.peer);
  }
  for (std::size_t i = 0; i < step.recvs.size(); ++i) {
    if (at(rank).recvs[i].met) continue;
    const Recv& recv = step.recvs[i];
    return here(rank) + "waits for " + describe(recv.into) + " from rank " + text(recv.peer) +
           is(recv.peer);
  }
  return here(rank) + "waits";
}

std::string Execution::deadlock() const {
  std::string stuck;
  int told = 0;
  for (int rank = 0; rank < setting_.size && told < 4; ++rank) {
    if (done(rank)) continue;
    stuck += (told++ == 0 ? "deadlock: " : "; ") + waits_for(rank);
  }
  return stuck;
}

std::string Execution::results() const {
  for (int rank = 0; rank < setting_.size; ++rank) {
    if (setting_.op == Op::kBarrier) {
      for (int other = 0; other < setting_.size; ++other) {
        if (!contains(at(rank).heard, other)) {
          return "rank " + text(rank) + " leaves without having heard of rank " + text(other);
        }
      }
      continue;
    }
    if (std::string wrong = memory(rank).result(); !wrong.empty()) {
      return "rank " + text(rank) + " ends wrong: " + wrong;
    }
    for (int chunk = 0; setting_.op == Op::kAllReduce && chunk < setting_.chunks; ++chunk) {
      if (memory(rank).order_of_result(chunk) != memory(0).order_of_result(chunk)) {
        return "rank " + text(rank) + " and rank 0 fold chunk " + text(chunk) +
               " in different orders, so their bits may differ";
      }
    }
  }
  return {};
}

std::string Execution::run() {
  if (std::string wrong = load(); !wrong.empty()) return wrong;
  for (int rank = 0; rank < setting_.size; ++rank) {
    if (done(rank)) continue;
    if (std::string wrong = post(rank); !wrong.empty()) return wrong;
  }
  while (!ready_.empty()) {
    const int rank = ready_.back();
    ready_.pop_back();
    if (std::string wrong = finish_step(rank); !wrong.empty()) return wrong;
  }
  if (std::string wrong = deadlock(); !wrong.empty()) return wrong;
  return results();
}

bool has_in_place(Op op) {
  return op == Op::kAllReduce || op == Op::kReduce || op == Op::kAllGather ||
         op == Op::kReduceScatter || op == Op::kScatter;
}

std::string headline(Op op, int size, int root, int depth, bool in_place,
                     const std::function<Schedule(const Shape&)>& build) {
  std::string line{to_string(op)};
  if (const auto* builder = build.target<Schedule (*)(const Shape&)>()) {
    for (const Algorithm& algorithm : algorithms()) {
      if (algorithm.build == *builder) line += " " + std::string(algorithm.name);
    }
  }
  line += ", " + text(size) + (size == 1 ? " rank" : " ranks");
  if (rooted(op)) line += ", root " + text(root);
  if (depth != 1) line += ", depth " + text(depth);
  if (in_place) line += ", in place";
  return line + ": ";
}

}  // namespace

Status check(Op op, int size, int root, int depth,
             const std::function<Schedule(const Shape&)>& build) {
  if (size < 1 || root < 0 || root >= size || depth < 1 || !build) {
    return Status(Code::kPara, "cannot check a schedule of " + text(size) + " ranks, root " +
                                   text(root) + ", depth " + text(depth));
  }
  std::vector<Schedule> schedules;
  schedules.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) schedules.push_back(build({rank, size, root, depth}));
  for (const bool in_place : {false, true}) {
    if (in_place && !has_in_place(op)) break;
    Setting setting;
    setting.op = op;
    setting.size = size;
    setting.root = root;
    setting.in_place = in_place;
    if (std::string wrong = Execution(setting, schedules).run(); !wrong.empty()) {
      return Status(Code::kInternal, headline(op, size, root, depth, in_place, build) + wrong);
    }
  }
  return {};
}

}  // namespace hccl::schedule
