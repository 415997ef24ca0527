// The part of a Seek that handles ranks: this process brings its ranks, and all processes must name
// the same size and agreement.
#include "hccl/control/seek.h"

namespace hccl::control {

std::string Seek::rank_of(const Roster& process) {
  const RankSet& ranks = process.nodes[0].ranks;
  return ranks.empty() ? "a process" : "rank " + std::to_string(ranks.lowest());
}

std::string Seek::name_of(const Roster& process) {
  return rank_of(process) + " (" + process.name(0) + ")";
}

Status Seek::impossible(const Roster& process, std::uint32_t size) {
  return {Code::kPara, rank_of(process) + " of " + std::to_string(size) + " ranks is impossible"};
}

Status Seek::differs(const std::string& name, std::uint32_t size, const std::string& agreement) {
  if (size_ == 0 && size > 0 && size <= kRanksCap) {
    size_ = size;
    agreement_ = agreement;
    first_ = name;
    deadline_ = now_ + patience_;
  }
  if (size != 0 && size == size_ && agreement == agreement_) return {};
  const auto says = [&](std::uint32_t number, const std::string& text) {
    const std::string count = " says " + std::to_string(number) + " ranks";
    return size != size_ || size == 0 ? count : " has \"" + text + "\"";
  };
  return {Code::kPara,
          "EI0016: " + name + says(size, agreement) + ", " + first_ + says(size_, agreement_)};
}

Seek::Step Seek::bring(std::uint32_t rank, std::uint32_t size, const std::string& agreement,
                       Time now, const Attempt& attempt) {
  return step(now, [&] {
    if (!joining()) return;
    Roster newcomer = own_;
    newcomer.nodes[0].ranks = {rank};
    newcomer.nodes[0].attempt = attempt;
    Status why = differs(name_of(newcomer), size, agreement);
    if (why.ok() && own_.nodes[0].ranks.contains(rank)) {
      why = {Code::kPara, "EI0016: two threads of one process join as " + name_of(newcomer)};
    }
    if (!why.ok() && root_ && above_ == kNoLine) return void(to_tell_ = why);
    if (!why.ok()) {
      if (above_ != kNoLine) step_.outs.push_back({above_, cannot(why), false});
      return end(why);
    }
    newcomer.nodes[0].ranks |= own_.nodes[0].ranks;
    own_ = std::move(newcomer);
    note_grown(own_);
  });
}

}  // namespace hccl::control
