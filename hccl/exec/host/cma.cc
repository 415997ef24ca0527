// The way by which the kernel copies between the ranks' buffers (hccl/base/process_memory.h). What
// a rank has is stored into the others' outputs rather than fetched by them: a line crosses between
// two cores when its new owner wants it, and not in the operation.
#include <algorithm>
#include <cerrno>
#include <chrono>

#include "hccl/base/process_memory.h"
#include "hccl/exec/host/host_path-inl.h"

namespace hccl::exec::host {


namespace {

// Between two looks at whether the operation has failed.
constexpr std::size_t kPiece = std::size_t{1} << 20;
// Of folds, all ranks' together: what is fetched is still in the second-level cache when it is
// folded, and a piece is long enough for what a system call costs. 2 ranks, 4 MiB: pieces of
// 256 KiB 415 us, of 128 KiB 437, of 16 KiB 690.
constexpr std::size_t kPieces = std::size_t{512} << 10;
// What the kernel copies badly goes through a buffer that fits the caches, in a part of this rank's
// ring that nothing else of this way uses.
constexpr std::size_t kBetween = std::size_t{128} << 10;
static_assert(kPieces + kBetween + kPage <= Area::kSlots);
// Where in its page such a buffer begins, far from where copies from or to `address` are slow.
std::size_t away_from(std::uint64_t address) {
  return (address + kPage / 2) % kPage / kCacheLine * kCacheLine;
}

}  // namespace

// Each rank shows the others a number of its own, where it lies, and where they may write theirs.
// Who reads another number there, or finds another one written, has the wrong process before it or
// may not reach into it.
Result<bool> HostPath::attach() {
  if (one_process_) return false;
  struct Shown {
    std::uint64_t number = 0;
    std::uint64_t at = 0;     // where the number lies
    std::uint64_t marks = 0;  // one for each rank of the host
  };
  std::vector<std::uint64_t> marks(memory_.ranks.size());
  Shown mine;
  mine.at = reinterpret_cast<std::uintptr_t>(&mine.number);
  mine.marks = reinterpret_cast<std::uintptr_t>(marks.data());
  mine.number =
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) *
          0x9E3779B97F4A7C15u +
      mine.at + static_cast<std::uint64_t>(place_);
  const auto meet_in = [&](Op op, const void* in, void* out, std::uint64_t count, DataType type) {
    Call call;
    call.op = op;
    call.in = in;
    call.out = out;
    call.count = count;
    call.type = type;
    call.reduce = ReduceOp::kMin;
    return run(call, envelope(call, 0, 0));
  };
  std::int32_t all = 1;
  const auto min_of_all = [&] { return meet_in(Op::kAllReduce, &all, &all, 1, DataType::kInt32); };
  std::vector<Shown> shown(memory_.ranks.size());
  constexpr std::uint64_t kWords = sizeof(Shown) / sizeof(std::uint64_t);
  HCCL_RETURN_IF_ERROR(meet_in(Op::kAllGather, &mine, shown.data(), kWords, DataType::kUint64));
  const auto other_process = [&](std::size_t place) { return !memory_.peers[place].same_process; };
  for (std::size_t place = 0; place < shown.size(); ++place) {
    if (!other_process(place)) continue;
    const pid_t process = memory_.peers[place].process;
    const Shown& its = shown[place];
    const std::uint64_t mark = its.marks + static_cast<std::uint64_t>(place_) * sizeof mine.number;
    std::uint64_t number = 0;
    // Nothing is written before the number has shown that this is the right process.
    if (process <= 0 || copy_from_process(process, its.at, &number, sizeof number) != 0 ||
        number != its.number ||
        copy_to_process(process, mark, &mine.number, sizeof mine.number) != 0) {
      all = 0;
    }
  }
  HCCL_RETURN_IF_ERROR(min_of_all());
  for (std::size_t place = 0; place < shown.size(); ++place) {
    if (other_process(place) && marks[place] != shown[place].number) all = 0;
  }
  HCCL_RETURN_IF_ERROR(min_of_all());
  attached_ = all != 0;
  return attached_;
}

// largest: bytes of the largest buffer of all ranks.
bool HostPath::takes_cma(const Run& run, std::uint64_t largest) const {
  if (!attached_) return false;
  // What the root stores with one core, others copy from its ring on all: 4 ranks on 2 cores, 1 MiB
  // 227 us instead of 199.
  if (run.call.op == Op::kBroadcast && watch_.policy.shared_cores) return false;
  return ways_.takes_cma(run.exchange.folds(), largest);
}

Status HostPath::cma(const Run& run) {
  if (run.exchange.folds()) return cma_folds(run);
  return run.call.op == Op::kBroadcast ? cma_broadcast(run) : cma_moves(run);
}

// Blocks, each into the output of whom it is for. Of scatter the root would be alone with all the
// work: there each rank fetches its own.
Status HostPath::cma_moves(const Run& run) {
  const Exchange& exchange = run.exchange;
  if (!exchange.from_root()) {
    HCCL_RETURN_IF_ERROR(
        give_blocks(run, [&](int place, std::size_t at, const std::byte* from, std::size_t bytes) {
          return store(run, place, notice_of(place).out + at, from, bytes);
        }));
    return gate(run);
  }
  const int root = run.call.root;
  auto* const out = static_cast<std::byte*>(run.call.out);
  if (place_ == root) {
    const Block own = exchange.in(place_);
    const auto* const in = static_cast<const std::byte*>(run.call.in);
    kernels::copy(in + own.at * run.element, out, own.count * run.element, kernels::Store::kCached);
  } else {
    const Block block = exchange.in_of(root);
    HCCL_RETURN_IF_ERROR(fetch(run, root, notice_of(root).in + block.at * run.element, out,
                               block.count * run.element));
  }
  return gate(run);
}

// The root has a core, too: it stores its slice into every output, and the others fetch the rest.
Status HostPath::cma_broadcast(const Run& run) {
  const int root = run.call.root;
  const Block pushed = run.slice(root, run.call.count);
  const std::size_t begin = pushed.at * run.element;
  const std::size_t end = begin + pushed.count * run.element;
  const std::size_t bytes = run.call.count * run.element;
  auto* const out = static_cast<std::byte*>(run.call.out);
  if (place_ != root) {
    const std::uint64_t from = notice_of(root).in;
    HCCL_RETURN_IF_ERROR(fetch(run, root, from, out, begin));
    HCCL_RETURN_IF_ERROR(fetch(run, root, from + end, out + end, bytes - end));
    return gate(run);
  }
  const auto* const in = static_cast<const std::byte*>(run.call.in);
  for (int i = 1; i < size_; ++i) {
    const int place = (place_ + i) % size_;
    HCCL_RETURN_IF_ERROR(store(run, place, notice_of(place).out + begin, in + begin, end - begin));
  }
  if (in != out) kernels::copy(in, out, bytes, kernels::Store::kCached);
  return gate(run);
}

// Each rank folds a slice, of reduce-scatter its block: it fetches the others' inputs piece by
// piece into its own ring, which nobody else looks at, and of allreduce and reduce stores what it
// has folded. Slices are apart, so nobody writes what another has yet to read.
Status HostPath::cma_folds(const Run& run) {
  const Exchange& exchange = run.exchange;
  const bool whole = !exchange.block_for_each();
  const Block mine = whole ? run.slice(place_, run.call.count) : exchange.in(place_);
  const std::size_t room = kPieces / static_cast<std::size_t>(size_) / kCacheLine * kCacheLine;
  const std::uint64_t length = std::max(room, kCacheLine) / run.element;
  const auto* const in = static_cast<const std::byte*>(run.call.in) + mine.at * run.element;
  const auto scratch = [&](int place) {
    return area_.slots(place_) + static_cast<std::size_t>(place) * length * run.element;
  };
  for (std::uint64_t first = 0; first < mine.count; first += length) {
    const std::uint64_t count = std::min(length, mine.count - first);
    const std::size_t bytes = count * run.element;
    for (int i = 1; i < size_; ++i) {
      const int place = (place_ + i) % size_;
      const std::uint64_t there = whole ? mine.at : exchange.in_of(place).at;
      inputs_[static_cast<std::size_t>(place)] = scratch(place);
      HCCL_RETURN_IF_ERROR(fetch(run, place, notice_of(place).in + (there + first) * run.element,
                                 scratch(place), bytes));
    }
    inputs_[static_cast<std::size_t>(place_)] = in + first * run.element;
    const std::uint64_t at = (whole ? mine.at : 0) + first;
    std::byte* const folded = exchange.takes(place_)
                                  ? static_cast<std::byte*>(run.call.out) + at * run.element
                                  : scratch(place_);
    kernels::fold(run.call.type, run.call.reduce, inputs_, folded, count);
    for (int i = 1; i < size_ && whole; ++i) {
      const int place = (place_ + i) % size_;
      if (!exchange.takes(place)) continue;
      HCCL_RETURN_IF_ERROR(
          store(run, place, notice_of(place).out + at * run.element, folded, bytes));
    }
  }
  ring_at_ = 0;
  return gate(run);
}

Status HostPath::fetch(const Run& run, int place, std::uint64_t from, std::byte* to,
                       std::size_t bytes) {
  std::byte* const between =
      area_.slots(place_) + Area::kSlots - kBetween - kPage + away_from(from);
  const bool slow = kernels::repeats_slowly(from, reinterpret_cast<std::uintptr_t>(to));
  return by_pieces(run, place, bytes, slow ? kBetween : kPiece,
                   [&](const auto& peer, std::size_t at, std::size_t length) {
                     if (peer.same_process) {
                       // A thread of this process said so.
                       // NOLINTNEXTLINE(performance-no-int-to-ptr)
                       kernels::copy(reinterpret_cast<const std::byte*>(from + at), to + at, length,
                                     kernels::Store::kCached);
                       return 0;
                     }
                     if (!slow) return copy_from_process(peer.process, from + at, to + at, length);
                     const int error = copy_from_process(peer.process, from + at, between, length);
                     if (error == 0)
                       kernels::copy(between, to + at, length, kernels::Store::kCached);
                     return error;
                   });
}

Status HostPath::store(const Run& run, int place, std::uint64_t to, const std::byte* from,
                       std::size_t bytes) {
  std::byte* const between = area_.slots(place_) + Area::kSlots - kBetween - kPage + away_from(to);
  const bool slow = kernels::repeats_slowly(reinterpret_cast<std::uintptr_t>(from), to);
  return by_pieces(run, place, bytes, slow ? kBetween : kPiece,
                   [&](const auto& peer, std::size_t at, std::size_t length) {
                     if (peer.same_process) {
                       // NOLINTNEXTLINE(performance-no-int-to-ptr)
                       kernels::copy(from + at, reinterpret_cast<std::byte*>(to + at), length,
                                     kernels::Store::kCached);
                       return 0;
                     }
                     if (!slow) return copy_to_process(peer.process, to + at, from + at, length);
                     kernels::copy(from + at, between, length, kernels::Store::kCached);
                     return copy_to_process(peer.process, to + at, between, length);
                   });
}

// copy(peer, at, length) gives 0 or an errno. Between pieces it is seen whether this operation has
// failed: the others have buffers of their own again soon (retreat).
template <class Copy>
Status HostPath::by_pieces(const Run& run, int place, std::size_t bytes, std::size_t piece,
                           Copy&& copy) {
  const auto& peer = memory_.peers[static_cast<std::size_t>(place)];
  for (std::size_t at = 0; at < bytes; at += piece) {
    if (watch_.abort != nullptr && watch_.abort->raised()) return watch_.abort->reason();
    const int error = copy(peer, at, std::min(piece, bytes - at));
    if (error != 0) return not_copied(run, place, error);
  }
  return {};
}

Status HostPath::not_copied(const Run& run, int place, int error) {
  // The process has ended: who watches the ranks will say so, and why.
  if (error == ESRCH) {
    return await(
        run, place, [](int) { return false; }, [&](int who) { return who == place; });
  }
  // A rank that was told of a failure first has its memory back, and may have given it away.
  constexpr std::chrono::milliseconds kNews{100};
  if (hccl::wait([] { return false; }, Deadline::after(kNews), watch_.abort, area_.bell(),
                 watch_.policy) == Waited::kAborted) {
    return watch_.abort->reason();
  }
  if (error != EFAULT) {
    const bool refused = error == EPERM || error == EACCES;
    const int rank = rank_of(refused ? place : place_);
    return Status(Code::kSyscall,
                  words(run.mine) + ": rank " + std::to_string(rank_of(place_)) +
                      " cannot copy between its memory and that of rank " +
                      std::to_string(rank_of(place)) + ": " + std::strerror(error),
                  rank);
  }
  const Notice mine = notice_of(place_);
  // NOLINTBEGIN(performance-no-int-to-ptr)
  const bool whole = (!run.exchange.gives(place_) ||
                      accessible(reinterpret_cast<const void*>(mine.in), mine.in_bytes, false)) &&
                     (!run.exchange.takes(place_) ||
                      accessible(reinterpret_cast<const void*>(mine.out), mine.out_bytes, true));
  // NOLINTEND(performance-no-int-to-ptr)
  const int rank = rank_of(whole ? place : place_);
  return Status(Code::kPara,
                words(run.mine) + ": a buffer of rank " + std::to_string(rank) +
                    " is not in its memory, or in memory of a kind that the kernel does not copy "
                    "(HCCL_CMA=off does without)",
                rank);
}

}  // namespace hccl::exec::host
