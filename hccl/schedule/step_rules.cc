#include "hccl/schedule/step_rules.h"

#include <cstdlib>
#include <utility>

namespace hccl::schedule {
namespace {

std::string wrong_peer(const Setting& setting, int rank, int peer) {
  if (peer < 0 || peer >= setting.size) return "names rank " + std::to_string(peer);
  return peer == rank ? "exchanges a message with itself" : "";
}

std::string wrong_slice(const Setting& setting, const Memory& memory, const Slice& slice) {
  if (setting.op != Op::kBarrier) return memory.inside(slice);
  return slice.count == 0 ? "" : "moves data in a barrier";
}

std::string wrong_target(const Setting& setting, const Memory& memory, const Slice& into) {
  std::string wrong = wrong_slice(setting, memory, into);
  return wrong.empty() ? memory.may_write(into) : wrong;
}

// An operand must have the chunks of `into`. If both lie in slots, the slots must be the same or
// disjoint.
std::string wrong_operand(const Setting& setting, const Memory& memory, const Slice& into,
                          const Slice& from) {
  if (std::string wrong = wrong_slice(setting, memory, from); !wrong.empty()) return wrong;
  if (into.chunk != from.chunk || into.count != from.count) {
    return "folds " + describe(from) + " into " + describe(into);
  }
  const bool slots = into.buffer == Buffer::kScratch && from.buffer == Buffer::kScratch;
  if (slots && from.slot != into.slot && std::abs(from.slot - into.slot) < from.count) {
    return "folds " + describe(from) + " from slots that overlap those it folds into";
  }
  return {};
}

}  // namespace

std::string StepRules::broken(const Setting& setting, int rank, const Memory& memory,
                              const Step& step) {
  std::string wrong;
  const auto is = [&wrong](std::string found) { return !(wrong = std::move(found)).empty(); };
  for (const Send& send : step.sends) {
    if (is(wrong_peer(setting, rank, send.peer)) || is(wrong_slice(setting, memory, send.from))) {
      return wrong;
    }
  }
  for (const Recv& recv : step.recvs) {
    if (is(wrong_peer(setting, rank, recv.peer)) || is(wrong_target(setting, memory, recv.into))) {
      return wrong;
    }
    if (recv.reduce_with && is(wrong_operand(setting, memory, recv.into, *recv.reduce_with))) {
      return wrong;
    }
  }
  for (const Fold& fold : step.folds) {
    if (fold.inputs.empty()) return "folds nothing into " + describe(fold.into);
    if (is(wrong_target(setting, memory, fold.into))) return wrong;
    for (const Slice& input : fold.inputs) {
      if (is(wrong_operand(setting, memory, fold.into, input))) return wrong;
    }
  }
  if (setting.op == Op::kBarrier) return {};
  return hazards(setting.in_place, memory, step);
}

// The messages of a step run in any order, so no message may write data that another message reads
// or writes.
std::string StepRules::hazards(bool in_place, const Memory& cells, const Step& step) {
  if (writer_.size() < cells.places()) writer_.resize(cells.places(), -1);
  std::string wrong;
  const std::string same_place = in_place ? " (kIn and kOut are the same memory)" : "";
  for (std::size_t i = 0; i < step.recvs.size(); ++i) {
    const Slice& into = step.recvs[i].into;
    for (int c = 0; c < into.count; ++c) {
      int& writer = writer_[cells.place(into, c)];
      if (writer >= 0) wrong = "receives twice into the same place, " + describe(into);
      writer = static_cast<int>(i);
    }
  }
  for (const Send& send : step.sends) {
    for (int c = 0; c < send.from.count; ++c) {
      if (const int writer = writer_[cells.place(send.from, c)]; writer >= 0) {
        wrong = "receives into " + describe(step.recvs[static_cast<std::size_t>(writer)].into) +
                " while it sends " + describe(send.from) + " from there" + same_place;
      }
    }
  }
  for (std::size_t i = 0; i < step.recvs.size(); ++i) {
    if (!step.recvs[i].reduce_with) continue;
    const Slice& with = *step.recvs[i].reduce_with;
    for (int c = 0; c < with.count; ++c) {
      const std::size_t place = cells.place(with, c);
      const int writer = writer_[place];
      if (writer < 0) continue;
      if (writer != static_cast<int>(i) || place != cells.place(step.recvs[i].into, c)) {
        wrong = "receives into " + describe(step.recvs[static_cast<std::size_t>(writer)].into) +
                " while it folds " + describe(with) + " from there" + same_place;
      }
    }
  }
  for (const Recv& recv : step.recvs) {
    for (int c = 0; c < recv.into.count; ++c) writer_[cells.place(recv.into, c)] = -1;
  }
  return wrong;
}

}  // namespace hccl::schedule
