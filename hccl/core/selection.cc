#include "hccl/core/selection.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "hccl/base/pages.h"
#include "hccl/exec/chunk_layout.h"
#include "hccl/local/blocks.h"
#include "hccl/select/algorithms.h"
#include "hccl/select/presets.h"
#include "hccl/select/probe.h"
#include "hccl/select/remote_selector.h"

namespace hccl::core {
namespace {

constexpr std::chrono::milliseconds kLocalBudget{50};
/// The time limit for measuring messages for HCCL_TUNE_FILE, once for a machine. The measurement,
/// with joining and the last operation, takes less than a second.
constexpr std::chrono::milliseconds kMessagesBudget{600};

/// Returns the first sequence number of a probe's trials. Hosts make different numbers of trials,
/// so each scope has a separate range of numbers. For a probe inside a host, `scope` is the host's
/// index. For a probe between hosts, `scope` is the number of ranks, which is no host's index.
std::uint64_t trials_of(int scope) { return kTrials + (static_cast<std::uint64_t>(scope) << 32); }

std::uint32_t mark_of(const schedule::Choice& choice) {
  return static_cast<std::uint32_t>(choice.algorithm - schedule::algorithms().data() + 1) |
         static_cast<std::uint32_t>(choice.depth) << 8 |
         static_cast<std::uint32_t>(choice.lanes) << 24;
}

// Device memory for trials; null if there is none.
std::shared_ptr<std::byte> device_memory(memory::Heap* heap, std::size_t bytes) {
  if (heap == nullptr) return nullptr;
  const auto memory = heap->allocate(bytes);
  if (!memory.ok()) return nullptr;
  return {static_cast<std::byte*>(*memory),
          [heap](std::byte* at) { static_cast<void>(heap->free(at)); }};
}

Result<select::LocalCosts> probe(exec::LocalEngine& engine, memory::Heap* heap,
                                 std::uint64_t trial) {
  HCCL_ASSIGN_OR_RETURN(const Pages ordinary, map_pages(2 * select::kProbeBytes));
  const auto shared = device_memory(heap, 2 * select::kProbeBytes);
  select::ProbeRuns runs;
  runs.barrier = "inline";
  runs.allreduce = "slots";
  runs.run = [&](const Call& call, std::string_view name) {
    return engine.run(call, envelope(call, ++trial, 0), local::find(call.op, name));
  };
  select::LocalProbe where;
  where.topology = engine.topology();
  where.ordinary = ordinary.get();
  // All ranks must measure the same cases. So shared memory is measured only if every rank has
  // device memory.
  const float mine = shared != nullptr ? 1 : 0;
  float all = 0;
  HCCL_RETURN_IF_ERROR(runs.run({Op::kAllReduce, &mine, &all, 1}, runs.allreduce));
  where.shared = all == static_cast<float>(where.topology.ranks) ? shared.get() : nullptr;
  where.set_tuning = [&](const local::Tuning& tuning) {
    select::LocalCosts costs = select::local_preset(where.topology, false);
    costs.tuning = tuning;
    engine.set_selector(select::LocalSelector(where.topology, std::move(costs)));
  };
  return select::probe_local(runs, where, kLocalBudget);
}

}  // namespace

Selection::Selection(const Membership& is, const Selection* parent) : is_(is) {
  if (parent == nullptr) return;
  known_ = parent->known_;
  inherited_ = parent->is_.is_world() ? parent->measured_ : parent->inherited_;
}

Status Selection::accept(std::string_view offer) {
  HCCL_ASSIGN_OR_RETURN(known_, KnownCosts::accept(offer));
  return {};
}

Status Selection::open(const Engines& engines, const Waiter& limits) {
  if (known_ == nullptr) known_ = std::make_shared<KnownCosts>();
  const bool alone = engines.local != nullptr && engines.two_level == nullptr;
  // The key uses kernel_copies only if there is one host, because the ranks of different hosts may
  // have different values.
  const select::CostKey key =
      known_->key(is_.placement.hosts, engines.transport, is_.placement.any_shared_cores,
                  alone && engines.local->topology().kernel_copies);
  if (engines.local != nullptr) HCCL_RETURN_IF_ERROR(open_local(engines, key));
  if (is_.size() > 1 && is_.is_world() && known_->wants(key, alone)) {
    const Status status = measure(engines, key, limits);
    if (!status.ok()) return status.with_context("measuring for HCCL_TUNE_FILE");
  }
  KnownCosts::Use use = known_->use(key);
  source_ = std::move(use.source);
  if (alone && known_->find(key) == nullptr) source_ += ", fitted to these ranks";
  if (use.messages != nullptr) messages_ = *use.messages;
  if (const auto* const usual = select::message_preset(key)) usual_messages_ = *usual;
  if (engines.two_level != nullptr) engines.two_level->set_costs(messages_);
  for (std::size_t op = 0; op < select::kOps; ++op) {
    local_ops_[op] = alone && is_.config.algorithm_for(to_string(static_cast<Op>(op))).empty();
  }
  return {};
}

Status Selection::open_local(const Engines& engines, const select::CostKey& key) {
  exec::LocalEngine& engine = *engines.local;
  HCCL_ASSIGN_OR_RETURN(select::LocalCosts costs, local_costs(engines, key));
  set_local(engine, costs);
  measured_ = Local{engine.topology(), std::move(costs)};
  return {};
}

bool Selection::lost_kernel_copies(exec::LocalEngine& engine) {
  if (local()->topology().kernel_copies == engine.topology().kernel_copies) return false;
  set_local(engine, measured_->costs);
  return true;
}

void Selection::set_local(exec::LocalEngine& engine, const select::LocalCosts& costs) {
  auto made = std::make_shared<const select::LocalSelector>(engine.topology(), costs,
                                                            select::wanted_locally(is_.config));
  engine.set_selector(*made);
  const MutexLock lock(mutex_);
  local_ = std::move(made);
}

// Groups use their world's costs, because other ranks may compute while a group opens. A world
// without shared memory has no costs.
Result<select::LocalCosts> Selection::local_costs(const Engines& engines,
                                                  const select::CostKey& key) {
  exec::LocalEngine& engine = *engines.local;
  const local::Topology& topology = engine.topology();
  const select::CostEntry* const entry = engines.two_level == nullptr ? known_->find(key) : nullptr;
  if (entry != nullptr && entry->local) return *entry->local;
  if (inherited_) {
    const bool far = inherited_->costs.far();
    return select::fit(select::local_preset(topology, far),
                       select::local_preset(inherited_->topology, far), inherited_->costs.curves);
  }
  // If many ranks share a core, a probe takes long and measures only how the kernel schedules the
  // ranks.
  const bool wanted = is_.is_world() && known_->wants(key, engines.two_level == nullptr);
  if (topology.ranks == 1 || (is_.placement.crowded && !wanted)) {
    return select::local_preset(topology, false);
  }
  HCCL_ASSIGN_OR_RETURN(select::LocalCosts costs,
                        probe(engine, engines.heap,
                              trials_of(is_.placement.hosts[static_cast<std::size_t>(is_.rank)])));
  is_.log->info(
      "communicator {}: the cores of these ranks are {} each other; the kernel {} copy "
      "between their memory",
      is_.name, costs.far() ? "far from" : "near", topology.kernel_copies ? "may" : "does not");
  return costs;
}

Status Selection::measure(const Engines& engines, const select::CostKey& key,
                          const Waiter& limits) {
  select::CostEntry entry;
  entry.key = key;
  if (engines.local != nullptr && engines.two_level == nullptr) {
    entry.local = measured_->costs;
  } else {
    std::uint64_t trial = trials_of(is_.size());
    select::ProbeRuns runs;
    runs.barrier = "dissemination";
    runs.allreduce = "bruck";
    runs.run = [&](const Call& call, std::string_view name) {
      schedule::Choice choice;
      choice.algorithm = schedule::find(call.op, name);
      return engines.executor.run(call, choice, ++trial, limits);
    };
    HCCL_ASSIGN_OR_RETURN(entry.messages,
                          select::probe_messages(runs, is_.size(), kMessagesBudget));
  }
  known_->add(entry, is_.rank == 0, is_.log);
  return {};
}

// ---- choosing ----

schedule::Choice Selection::choose_remote(Op op, std::uint64_t bytes, std::string_view wanted,
                                          bool round_once) const {
  const bool one_a_host =
      *std::max_element(is_.placement.hosts.begin(), is_.placement.hosts.end()) == is_.size() - 1;
  return select::choose_remote(op, is_.size(), bytes, wanted, is_.placement.even_hosts,
                               messages_ ? &*messages_ : nullptr, is_.placement.policy.shared_cores,
                               round_once && one_a_host);
}

const schedule::Choice& Selection::choose(const Call& call, bool strict) {
  const auto blocks = static_cast<std::uint64_t>(exec::blocks_of(call.op, is_.size()));
  const std::uint64_t bytes =
      call.op == Op::kBarrier ? 0 : call.count * size_of(call.type) * blocks;
  // The product's upper bits spread sizes that are multiples of one another.
  Chosen& chosen = chosen_[index(call.op)][(bytes * 0x9E3779B97F4A7C15u) >> 61 & (kRemembered - 1)];
  schedule::Choice& choice = chosen.choice;
  const bool rounds = select::rounds(call);
  if (chosen.bytes != bytes || chosen.strict != strict || chosen.rounds != rounds) {
    // Strict mode needs all contributions folded at once and in rank order. All local algorithms
    // fold in this way; of the remote algorithms only "direct" does.
    choice = choose_remote(
        call.op, bytes, strict ? "direct" : is_.config.algorithm_for(to_string(call.op)), rounds);
    if (strict) choice.reason = "HCCL_DETERMINISTIC is strict";
    chosen.bytes = bytes;
    chosen.strict = strict;
    chosen.rounds = rounds;
    if (is_news(told_[index(call.op)], bytes, mark_of(choice))) {
      is_.log->info("{} of {} bytes by {} (depth {}, lanes {}): {}; {}", to_string(call.op), bytes,
                    choice.algorithm->name, choice.depth, choice.lanes, choice.reason, source_);
    }
  }
  last_[index(call.op)].store(choice.algorithm->name.data(), std::memory_order_relaxed);
  return choice;
}

void Selection::ran(const Call& call, std::uint64_t sequence, const select::LocalChoice& choice) {
  std::atomic<const char*>& last = last_[index(call.op)];
  const std::string_view name = choice.algorithm->name;
  if (last.load(std::memory_order_relaxed) != name.data()) {
    last.store(name.data(), std::memory_order_relaxed);
  }
  if (!is_.log->writes(LogLevel::kInfo)) return;
  const std::uint64_t bytes =
      has_blocks(call.op) ? 0
                          : local::Blocks(call, is_.rank, is_.size()).input() * size_of(call.type);
  const auto mark = static_cast<std::uint32_t>(std::hash<std::string_view>()(name) | 1);
  if (!is_news(told_[index(call.op)], bytes, mark)) return;
  is_.log->info("{} by {} in the host's memory: {}; {}", to_string(envelope(call, sequence, 0)),
                name, choice.reason, source_);
}

void Selection::ran_between(const Call& call, const schedule::Choice& choice) {
  if (!is_.log->writes(LogLevel::kInfo)) return;
  const std::uint64_t bytes = call.count * size_of(call.type);
  if (!is_news(told_between_, bytes, mark_of(choice))) return;
  is_.log->info("{} of {} bytes between hosts by {} (depth {}): {}; {}", to_string(call.op), bytes,
                choice.algorithm->name, choice.depth, choice.reason, source_);
}

// Returns whether this choice differs from the choice that was last logged for similar sizes.
// Records this choice as logged.
bool Selection::is_news(std::array<std::uint32_t, 65>& told, std::uint64_t bytes,
                        std::uint32_t mark) {
  return std::exchange(told[static_cast<std::size_t>(std::bit_width(bytes))], mark) != mark;
}

std::string Selection::algorithm(Op op) const {
  if (const char* const last = last_[index(op)].load(std::memory_order_relaxed)) return last;
  return has_blocks(op) && !is_local(op) ? "direct" : "";
}

// ---- predictions and descriptions ----

// For an allgather the vector consists of all inputs. For other operations the vector is as long as
// the longest input.
std::uint64_t Selection::vector_bytes(Op op, std::uint64_t input) const {
  return op == Op::kAllGather ? input * static_cast<std::uint64_t>(is_.size()) : input;
}

double Selection::predict_ns(Op op, std::uint64_t bytes, bool reachable) const {
  if (is_local(op)) {
    const local::Case c{op, DataType::kFp32, bytes, reachable, reachable};
    const Selector selector = local();
    const select::LocalChoice choice = selector->choose(c);
    return choice.algorithm == nullptr ? 0 : selector->predict_ns(*choice.algorithm, c);
  }
  const select::MessageCosts& costs = messages_ ? *messages_ : usual_messages_;
  if (costs.steps.empty() || has_blocks(op)) return 0;
  const std::uint64_t vector = vector_bytes(op, bytes);
  return select::predict_ns(choose_remote(op, vector, is_.config.algorithm_for(to_string(op))),
                            is_.size(), vector, costs);
}

std::vector<Selection::Described> Selection::describe(Op op, std::uint64_t bytes,
                                                      bool reachable) const {
  std::vector<Described> found;
  const auto add = [&](std::string_view name, bool local, const std::string& refusal, bool chosen,
                       double ns, const std::string& reason) {
    const bool eligible = refusal.empty();
    found.push_back({name, local, eligible, eligible && chosen, eligible ? ns : 0,
                     eligible && chosen ? reason : refusal});
  };
  const local::Case c{op, DataType::kFp32, bytes, reachable, reachable};
  const Selector selector = local();
  const select::LocalChoice choice = is_local(op) ? selector->choose(c) : select::LocalChoice();
  for (const local::Algorithm& each : local::algorithms()) {
    if (!each.operations.contains(op)) continue;
    add(each.name, true,
        selector == nullptr                        ? "the ranks share no memory"
        : selector->topology().ranks != is_.size() ? "the ranks are on several hosts"
                                                   : each.refuse(c, selector->topology()),
        choice.algorithm == &each, selector == nullptr ? 0 : selector->predict_ns(each, c),
        choice.reason);
  }
  const std::uint64_t vector = vector_bytes(op, bytes);
  const select::MessageCosts& costs = messages_ ? *messages_ : usual_messages_;
  for (const schedule::Algorithm& each : schedule::algorithms()) {
    if (each.op != op) continue;
    const schedule::Choice own = choose_remote(op, vector, is_.config.algorithm_for(to_string(op)));
    const std::string refusal = each.refuse(is_.size());
    double ns = 0;
    if (refusal.empty() && !costs.steps.empty()) {
      ns = select::predict_ns(choose_remote(op, vector, each.name), is_.size(), vector, costs);
    }
    add(each.name, false, refusal, !is_local(op) && own.algorithm == &each, ns, own.reason);
  }
  return found;
}

}  // namespace hccl::core
