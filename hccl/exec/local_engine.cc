#include "hccl/exec/local_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "hccl/base/pages.h"
#include "hccl/local/kernel_copy.h"

namespace hccl::exec {

using local::Case;
using local::Descriptor;

LocalEngine::LocalEngine(const HostMemory& memory, std::shared_ptr<const memory::Heap> heap,
                         const kernels::StoreRule& streams, Waiter waiter, WaitPolicy background)
    : memory_(memory),
      heap_(std::move(heap)),
      streams_(streams),
      region_(memory, std::move(waiter), background),
      one_process_(std::all_of(memory.peers.begin(), memory.peers.end(),
                               [](const auto& peer) { return peer.same_process; })),
      selector_(local::Topology{region_.size(), region_.waits().policy().shared_cores, false}),
      peers_(memory.ranks.size()),
      inputs_(memory.ranks.size()),
      touched_(memory.ranks.size()) {
  topology_ = selector_.topology();
  tuning_ = selector_.tuning();
}

Status LocalEngine::open(bool kernel_copies) {
  const Call barrier;
  HCCL_RETURN_IF_ERROR(run(barrier, envelope(barrier, 0, 0)));
  region_.map_all();
  if (kernel_copies) {
    HCCL_ASSIGN_OR_RETURN(topology_.kernel_copies, local::attach(region_));
  }
  set_selector(select::LocalSelector(topology_));
  return {};
}

void LocalEngine::set_selector(select::LocalSelector selector) {
  selector_ = std::move(selector);
  tuning_ = selector_.tuning();
  expected_.forget();
  known_.forget();
}

bool LocalEngine::quick() const {
  constexpr std::size_t kShort = 1024;
  return op_->bytes <= kShort && !region_.waits().waited() &&
         !region_.waits().policy().shared_cores;
}

void LocalEngine::begin(const Call& call, const Envelope& envelope,
                        const local::Algorithm* forced) {
  region_.begin(envelope, call.background);
  local::Operation& op = op_.emplace(call, region_.local_rank(), region_.size());
  op.tuning = tuning_;
  op.inputs = inputs_;
  op.bytes = op.blocks.input() * op.element;
  forced_ = forced;
  choice_ = nullptr;
  choose_eager();
  if (choice_ == nullptr) {
    describe();
    region_.announce();
    return;
  }
  if (expectation_ != nullptr) put_memory_flags();
  choice_->algorithm->announce(region_, op);
}

// An eager algorithm sends data before a rank knows in which memory its peers' buffers lie. So the
// choice assumes the memory that the last operation of this kind and size used, which all ranks
// know. A wrong assumption costs time in one operation only.
void LocalEngine::choose_eager() {
  const Call& call = op_->call;
  expectation_ = nullptr;
  // If blocks differ in length, a rank knows the lengths only of its own blocks.
  if (!call.in_blocks.empty() || !call.out_blocks.empty()) return;
  Case here{call.op, call.type, op_->bytes, one_process_, one_process_};
  if (forced_ != nullptr && call.op != Op::kBarrier) {
    if (!forced_->eager() || !forced_->refuse(here, topology_).empty()) return;
    by_force_ = {forced_, "asked for"};
    choice_ = &by_force_;
    return;
  }
  Expectation& before = expected_.at(call.op, op_->bytes);
  if (before.of.op != here.op || before.of.type != here.type || before.of.bytes != here.bytes) {
    before.of = here;
    before.choice = selector_.choose(here);
    here.inputs_reachable = here.outputs_reachable = !one_process_;
    // A short input may fill the slot and leave no room for the memory flags. The slot is the
    // fastest way for such an input, whatever its memory.
    before.depends = !one_process_ && here.bytes > local::Slot::kPayload &&
                     selector_.choose(here).algorithm != before.choice.algorithm;
  }
  if (before.depends) expectation_ = &before;
  if (before.choice.algorithm->eager()) choice_ = &before.choice;
}

void LocalEngine::expect(bool inputs_reachable, bool outputs_reachable) {
  Case& of = expectation_->of;
  if (of.inputs_reachable == inputs_reachable && of.outputs_reachable == outputs_reachable) return;
  of.inputs_reachable = inputs_reachable;
  of.outputs_reachable = outputs_reachable;
  expectation_->choice = selector_.choose(of);
}

Status LocalEngine::finish() {
  if (choice_ == nullptr) return rendezvous();
  const local::Algorithm& algorithm = *choice_->algorithm;
  if (algorithm.prefetch != nullptr) {
    HCCL_RETURN_IF_ERROR(
        region_.await_announced([&](int peer) { algorithm.prefetch(region_, *op_, peer); }));
  } else {
    HCCL_RETURN_IF_ERROR(region_.await_announced());
  }
  if (expectation_ != nullptr) learn_memory();
  return algorithm.run(region_, *op_);
}

// Once this rank has announced the operation, peers may use its buffers. After a failure the caller
// may reuse the buffers. So the rank withdraws its announcement, which stops peers that arrive
// later, and waits, for a limited time, until the other peers no longer use its buffers. If calls
// differ, the announcement stays, so that all ranks can see the difference.
Status LocalEngine::rendezvous() {
  Status status;
  try {
    status = run_rendezvous();
  } catch (...) {  // for example, no memory
    region_.leave();
    region_.withdraw();
    region_.await_left();
    throw;
  }
  region_.leave();
  if (local::copies_refused(region_, status)) {
    topology_.kernel_copies = false;  // on all ranks
  } else if (!status.ok()) {
    if (status.code() != Code::kPara) region_.withdraw();
    region_.await_left();
  }
  return status;
}

Status LocalEngine::run_rendezvous() {
  HCCL_RETURN_IF_ERROR(region_.await_announced());
  local::Operation& op = *op_;
  const Case here = read_descriptors();
  HCCL_RETURN_IF_ERROR(check_pairs());
  if (expectation_ != nullptr) expect(here.inputs_reachable, here.outputs_reachable);
  map_peers();
  op.peers = peers_;
  op.store = streams_.store(
      (op.blocks.output_extent() + (op.in() == op.out() ? 0 : op.blocks.input_extent())) *
      op.element);
  if (forced_ != nullptr && !forced_->eager() && forced_->refuse(here, topology_).empty()) {
    by_force_ = {forced_, "asked for"};
    choice_ = &by_force_;
  } else {
    Remembered& before = known_.at(here.op, here.bytes);
    if (!(before.of == here)) before = {here, selector_.choose(here, false)};
    choice_ = &before.choice;
  }
  return choice_->algorithm->run(region_, op);
}

// ---- the memory of buffers ----

void LocalEngine::describe() {
  const local::Operation& op = *op_;
  const Call& call = op.call;
  Descriptor mine;
  mine.in = reinterpret_cast<std::uintptr_t>(call.in);
  mine.out = reinterpret_cast<std::uintptr_t>(call.out);
  mine.longest = op.blocks.longest();
  mine.in_bytes = op.blocks.input_extent() * op.element;
  mine.out_bytes = op.blocks.output_extent() * op.element;
  if (heap_ != nullptr) {
    if (const auto at = heap_->locate(call.in, mine.in_bytes)) mine.in_heap = *at;
    if (const auto at = heap_->locate(call.out, mine.out_bytes)) mine.out_heap = *at;
  }
  static_assert(sizeof mine <= local::Slot::kPayload);
  std::memcpy(region_.payload(), &mine, sizeof mine);
  if (call.op == Op::kAllToAllV) {
    std::copy(call.in_blocks.begin(), call.in_blocks.end(), region_.sends(region_.local_rank()));
    std::copy(call.out_blocks.begin(), call.out_blocks.end(),
              region_.receives(region_.local_rank()));
  }
}

// Stores the memory flags, one byte, in the slot, so that the peers get the flags with an eager
// announcement.
void LocalEngine::put_memory_flags() {
  const local::Operation& op = *op_;
  const auto private_memory = [&](const void* at, std::uint64_t elements, bool used) {
    return used && !(heap_ != nullptr && heap_->locate(at, elements * op.element));
  };
  const bool in =
      private_memory(op.in(), op.blocks.input_extent(), op.blocks.gives(region_.local_rank()));
  const bool out =
      private_memory(op.out(), op.blocks.output_extent(), op.blocks.takes(region_.local_rank()));
  region_.payload()[0] = static_cast<std::byte>((in ? 1 : 0) | (out ? 2 : 0));
}

void LocalEngine::learn_memory() {
  std::byte any{0};
  for (int local_rank = 0; local_rank < region_.size(); ++local_rank)
    any |= region_.payload(local_rank)[0];
  expect((any & std::byte{1}) == std::byte{0}, (any & std::byte{2}) == std::byte{0});
}

// Uses only data that all ranks announced, so the result is the same on all ranks.
Case LocalEngine::read_descriptors() {
  const local::Operation& op = *op_;
  Case here{op.call.op, op.call.type, 0, true, true};
  for (int local_rank = 0; local_rank < region_.size(); ++local_rank) {
    Descriptor& where = peers_[static_cast<std::size_t>(local_rank)].where;
    std::memcpy(&where, region_.payload(local_rank), sizeof where);
    here.bytes = std::max(here.bytes, where.in_bytes);
    here.inputs_reachable &=
        !op.blocks.gives(local_rank) || reachable(local_rank, where.in_heap, where.in_bytes);
    here.outputs_reachable &=
        !op.blocks.takes(local_rank) || reachable(local_rank, where.out_heap, where.out_bytes);
  }
  return here;
}

void LocalEngine::map_peers() {
  for (int local_rank = 0; local_rank < region_.size(); ++local_rank) {
    auto& [where, in, out] = peers_[static_cast<std::size_t>(local_rank)];
    const auto map = [&](bool used, std::uint64_t at, std::uint64_t heap_at, std::uint64_t bytes) {
      return used && reachable(local_rank, heap_at, bytes) ? mapped(local_rank, at, heap_at, bytes)
                                                           : nullptr;
    };
    in = map(op_->blocks.gives(local_rank), where.in, where.in_heap, where.in_bytes);
    out = map(op_->blocks.takes(local_rank), where.out, where.out_heap, where.out_bytes);
  }
}

bool LocalEngine::reachable(int local_rank, std::uint64_t heap_at, std::uint64_t bytes) const {
  const auto& peer = memory_.peers[static_cast<std::size_t>(local_rank)];
  return one_process_ || (heap_at != Descriptor::kPrivate && heap_at <= peer.heap_bytes &&
                          bytes <= peer.heap_bytes - heap_at);
}

std::byte* LocalEngine::mapped(int local_rank, std::uint64_t address, std::uint64_t heap_at,
                               std::uint64_t bytes) {
  const auto& peer = memory_.peers[static_cast<std::size_t>(local_rank)];
  if (peer.same_process) {
    // The address is valid in this process. NOLINTNEXTLINE(performance-no-int-to-ptr)
    return reinterpret_cast<std::byte*>(address);
  }
  // Faults in the pages of each block at this rank's first access, all at once.
  constexpr std::size_t kBlock = std::size_t{64} << 10;
  auto& touched = touched_[static_cast<std::size_t>(local_rank)];
  if (touched.empty()) touched.resize(peer.heap_bytes / kBlock + 1);
  const std::size_t end = (heap_at + bytes + kBlock - 1) / kBlock;
  for (std::size_t block = heap_at / kBlock; block < end; ++block) {
    if (touched[block]) continue;
    const std::size_t first = block;
    while (block < end && !touched[block]) touched[block++] = true;
    fault_in(peer.heap + first * kBlock,
             std::min(block * kBlock, peer.heap_bytes) - first * kBlock);
  }
  return peer.heap + heap_at;
}

// In alltoallv the counts of each pair of ranks must agree. All ranks check all pairs, so if a pair
// differs, all ranks fail before any rank uses another rank's buffer.
Status LocalEngine::check_pairs() const {
  const local::Operation& op = *op_;
  if (op.call.op != Op::kAllToAllV) return {};
  const auto bytes_of = [&](int local_rank) -> const Descriptor& {
    return peers_[static_cast<std::size_t>(local_rank)].where;
  };
  for (int from = 0; from < op.size; ++from) {
    const std::uint64_t most = bytes_of(from).in_bytes / op.element;
    for (int to = 0; to < op.size; ++to) {
      const Block sent = region_.sends(from)[to];
      const Block expected = region_.receives(to)[from];
      const std::uint64_t room = bytes_of(to).out_bytes / op.element;
      if (sent.count <= most && sent.at <= most - sent.count && sent.count == expected.count &&
          expected.count <= room && expected.at <= room - expected.count) {
        continue;
      }
      return Status(Code::kPara, "EI0005: the ranks' calls differ: in " +
                                     to_string(region_.waits().call()) + " rank " +
                                     std::to_string(region_.rank_of(from)) + " sends " +
                                     std::to_string(sent.count) + " elements to rank " +
                                     std::to_string(region_.rank_of(to)) + ", which expects " +
                                     std::to_string(expected.count));
    }
  }
  return {};
}

}  // namespace hccl::exec
