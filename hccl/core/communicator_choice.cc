// How a communicator chooses what to run, and what HCCL_LOG=info says of it.
#include <array>
#include <bit>
#include <string_view>
#include <utility>

#include "hccl/core/communicator.h"
#include "hccl/local/blocks.h"
#include "hccl/exec/layout.h"

namespace hccl::core {
namespace {

std::uint32_t mark_of(const schedule::Choice& choice) {
  return static_cast<std::uint32_t>(choice.algorithm - schedule::algorithms().data() + 1) |
         static_cast<std::uint32_t>(choice.depth) << 8 |
         static_cast<std::uint32_t>(choice.lanes) << 24;
}

// Whether this is other than what was told last of sizes like this one; from now on it is told.
bool is_news(std::array<std::uint32_t, 65>& told, std::uint64_t bytes, std::uint32_t mark) {
  return std::exchange(told[static_cast<std::size_t>(std::bit_width(bytes))], mark) != mark;
}

}  // namespace

const schedule::Choice& Communicator::choose(const Call& call) {
  const auto blocks = static_cast<std::uint64_t>(exec::blocks_of(call.op, size()));
  const std::uint64_t bytes =
      call.op == Op::kBarrier ? 0 : call.count * size_of(call.type) * blocks;
  const bool strict = deterministic() == Deterministic::kStrict && reduces(call.op);
  const auto op = static_cast<std::size_t>(call.op);
  // The product's upper bits spread sizes that are multiples of one another.
  Chosen& chosen = chosen_[op][(bytes * 0x9E3779B97F4A7C15u) >> 61 & (kRemembered - 1)];
  const bool known = chosen.bytes == bytes && chosen.strict == strict;
  if (known && last_choice_[op] == &chosen.choice) return chosen.choice;
  const std::lock_guard lock(chosen_mutex_);
  last_choice_[op] = &chosen.choice;
  if (known) return chosen.choice;
  // Only direct exchange folds all contributions at once and in rank order, as the host path does.
  const std::string wanted = strict ? "direct" : config_.algorithm_for(hccl::words(call.op));
  chosen.choice = schedule::select(call.op, size(), bytes, wanted, placement_.even_hosts,
                                   tuned_.messages ? &*tuned_.messages : nullptr,
                                   placement_.policy.shared_cores);
  if (strict) chosen.choice.reason = "HCCL_DETERMINISTIC is strict";
  chosen.bytes = bytes;
  chosen.strict = strict;
  const schedule::Choice& choice = chosen.choice;
  if (is_news(told_[op], bytes, mark_of(choice))) {
    log_->info("{} of {} bytes by {} (depth {}, lanes {}): {}; {}", hccl::words(call.op), bytes,
               choice.algorithm->name, choice.depth, choice.lanes, choice.reason, tuned_.source);
  }
  return choice;
}

std::string Communicator::algorithm(Op op) const {
  if (const char* const way = ways_[static_cast<std::size_t>(op)].load()) return way;
  if (has_blocks(op)) return "direct";
  const std::lock_guard lock(chosen_mutex_);
  const schedule::Choice* const last = last_choice_[static_cast<std::size_t>(op)];
  return last == nullptr ? "" : std::string(last->algorithm->name);
}

void Communicator::tell_way(const Call& call, std::string_view way) {
  const bool blocks = has_blocks(call.op);
  const std::uint64_t bytes =
      blocks ? 0 : local::Blocks(call, rank_, size()).input() * size_of(call.type);
  const auto mark = static_cast<std::uint32_t>(std::hash<std::string_view>()(way) | 1);
  if (!is_news(told_[static_cast<std::size_t>(call.op)], bytes, mark)) return;
  log_->info("{} by {} in the host's memory: {}; {}", words(envelope(call, sequence_, 0)), way,
             local_->last_choice()->reason, tuned_.source);
}

void Communicator::tell_between(const Call& call) {
  const schedule::Choice& between = *two_level_->between();
  const std::uint64_t bytes = call.count * size_of(call.type);
  if (!is_news(told_between_, bytes, mark_of(between))) return;
  log_->info("{} of {} bytes between hosts by {} (depth {}): {}; {}", hccl::words(call.op), bytes,
             between.algorithm->name, between.depth, between.reason, tuned_.source);
}

}  // namespace hccl::core
