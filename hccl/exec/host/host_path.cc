#include "hccl/exec/host/host_path.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "hccl/exec/host/run.h"
#include "hccl/exec/limits.h"
#include "hccl/kernels/kernels.h"

namespace hccl::exec::host {
namespace {

constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers lack

std::uint32_t fingerprint(const Envelope& call) {
  std::uint64_t words[4];
  static_assert(sizeof words == sizeof call);
  std::memcpy(words, &call, sizeof words);
  std::uint64_t h = 0x9E3779B97F4A7C15u;
  for (const std::uint64_t word : words) {
    h = (h ^ word) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
  }
  return static_cast<std::uint32_t>(h);
}

}  // namespace

HostPath::HostPath(const transport::HostMemory& memory, std::shared_ptr<const memory::Heap> heap,
                   const Ways& ways, Watch watch)
    : memory_(memory),
      heap_(std::move(heap)),
      area_(memory.area, static_cast<int>(memory.ranks.size())),
      ways_(ways),
      watch_(std::move(watch)),
      place_(memory.place),
      size_(static_cast<int>(memory.ranks.size())),
      one_process_(std::all_of(memory.peers.begin(), memory.peers.end(),
                               [](const auto& peer) { return peer.same_process; })),
      inputs_(memory.ranks.size()),
      gathered_(std::make_unique<std::byte[]>(memory.ranks.size() * kPostBytes)),
      ins_(memory.ranks.size()),
      outs_(memory.ranks.size()),
      mapped_in_(memory.ranks.size()) {
  area_.bell().join();
  ::madvise(area_.ring(place_), Area::kRing, kPopulateWrite);
}

Status HostPath::run(const Call& call, const Envelope& envelope) {
  ++number_;
  const Run run(call, place_, size_, envelope);
  const bool blocks_differ = !call.in_blocks.empty() || !call.out_blocks.empty();
  const std::size_t bytes = blocks_differ ? 0 : run.exchange.input() * run.element;
  if (!blocks_differ && bytes <= ways_.line_most) {
    way_ = Way::kLine;
    return in_lines(run, bytes);
  }
  if (!blocks_differ && bytes <= ways_.ring_most) {
    way_ = Way::kRing;
    return through_ring(run);
  }
  const Notice mine = notice(run);
  if (call.op == schedule::Op::kAllToAllV) {
    std::copy(call.in_blocks.begin(), call.in_blocks.end(), area_.table(place_));
  }
  post(run, &mine, sizeof mine);
  HCCL_RETURN_IF_ERROR(meet(run));
  HCCL_RETURN_IF_ERROR(check_pairs(run));
  way_ = choose(run);
  if (way_ == Way::kStage) return stage(run);
  resolve(run);
  if (call.op == schedule::Op::kReduce) return reduce_slices(run);
  if (call.op != schedule::Op::kAllReduce) return pull(run);
  return way_ == Way::kPull ? pull_slices(run) : push_slices(run);
}

// ---- meeting ----

void HostPath::post(const Run& run, const void* payload, std::size_t bytes) {
  RankWords::Entry& entry = area_.words(place_).entries[number_ & 1];
  entry.call = run.mine;
  const auto* const from = static_cast<const std::byte*>(payload);
  const std::size_t first = std::min(bytes, Line::kPayload);
  if (first != 0) std::memcpy(entry.post[0].payload.data(), from, first);
  entry.post[0].word.store(number_ << 32 | fingerprint(run.mine), std::memory_order_release);
  for (std::size_t i = 1, at = Line::kPayload; at < bytes; ++i, at += Line::kPayload) {
    std::memcpy(entry.post[i].payload.data(), from + at, std::min(bytes - at, Line::kPayload));
    entry.post[i].word.store(number_ << 32, std::memory_order_release);
  }
  area_.bell().ring();
}

Status HostPath::meet(const Run& run) {
  const std::uint64_t parity = number_ & 1;
  const std::uint64_t expected = number_ << 32 | fingerprint(run.mine);
  for (int place = 0; place < size_; ++place) {
    if (place == place_) continue;
    const RankWords::Entry& entry = area_.words(place).entries[parity];
    std::uint64_t word = 0;
    const auto posted = [&](int who) {
      word = area_.words(who).entries[parity].post[0].word.load(std::memory_order_acquire);
      return (word ^ expected) >> 32 == 0;
    };
    HCCL_RETURN_IF_ERROR(await(run, place, posted));
    if (word != expected) return mismatch(rank_of(place_), run.mine, rank_of(place), entry.call);
  }
  return {};
}

Status HostPath::gate(const Run& run) {
  area_.words(place_).gate.store(++gates_, std::memory_order_release);
  area_.bell().ring();
  return all_at(run, &RankWords::gate, gates_);
}

Status HostPath::all_at(const Run& run, std::atomic<std::uint64_t> RankWords::*counter,
                        std::uint64_t value) {
  for (int place = 0; place < size_; ++place) {
    if (place == place_) continue;
    HCCL_RETURN_IF_ERROR(await(run, place, [&](int who) {
      return (area_.words(who).*counter).load(std::memory_order_acquire) >= value;
    }));
  }
  return {};
}

template <class Done>
Status HostPath::await(const Run& run, int place, Done&& done) {
  for (int i = 0; i < detail::kFirstSpins; ++i) {
    if (done(place)) return {};
    detail::pause();
  }
  return await_long(run, place, done);
}

template <class Done>
Status HostPath::await_long(const Run& run, int place, Done&& done) {
  Limits limits;
  limits.deadline =
      watch_.timeout.count() == 0 ? Deadline::never() : Deadline::after(watch_.timeout);
  limits.abort = watch_.abort;
  limits.policy = watch_.policy;
  if (watch_.stalled) {
    limits.stalled = [&](const std::string& what, const std::vector<int>& awaited) {
      watch_.stalled(run.mine.sequence, what, awaited);
    };
  }
  const auto awaited = [&] {
    std::vector<int> ranks;
    for (int who = 0; who < size_; ++who) {
      if (who != place_ && !done(who)) ranks.push_back(rank_of(who));
    }
    return ranks;
  };
  return exec::await([&] { return done(place); }, [&] { return words(run.mine); }, awaited, limits,
                     area_.bell());
}

// ---- inputs in the lines of the post ----

Status HostPath::in_lines(const Run& run, std::size_t bytes) {
  const Exchange& exchange = run.exchange;
  const std::uint64_t parity = number_ & 1;
  post(run, run.call.in, exchange.gives(place_) ? bytes : 0);
  HCCL_RETURN_IF_ERROR(meet(run));
  if (bytes <= Line::kPayload) {
    take(run, 0, run.call.count, [&](int giver) {
      return area_.words(giver).entries[parity].post[0].payload.data() + run.from_start_of_input();
    });
    return {};
  }
  for (int giver = 0; giver < size_; ++giver) {
    if (giver == place_ || !exchange.gives(giver) || !exchange.takes(place_)) continue;
    const Post& post = area_.words(giver).entries[parity].post;
    std::byte* const to = gathered_.get() + static_cast<std::size_t>(giver) * kPostBytes;
    std::memcpy(to, post[0].payload.data(), Line::kPayload);
    for (std::size_t i = 1, at = Line::kPayload; at < bytes; ++i, at += Line::kPayload) {
      HCCL_RETURN_IF_ERROR(await(run, giver, [&](int who) {
        const Line& line = area_.words(who).entries[parity].post[i];
        return (line.word.load(std::memory_order_acquire) ^ number_ << 32) >> 32 == 0;
      }));
      std::memcpy(to + at, post[i].payload.data(), std::min(bytes - at, Line::kPayload));
    }
  }
  take(run, 0, run.call.count, [&](int giver) {
    return gathered_.get() + static_cast<std::size_t>(giver) * kPostBytes +
           run.from_start_of_input();
  });
  return {};
}

// ---- whole inputs through the ring ----

Status HostPath::through_ring(const Run& run) {
  const Exchange& exchange = run.exchange;
  const std::size_t bytes = exchange.input() * run.element;
  const std::size_t room = (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  // The place differs from the last operation's, which a peer may still be reading; the one before
  // that is over. All ranks move on alike.
  if (ring_at_ + room > Area::kRing) ring_at_ = 0;
  const std::size_t at = ring_at_;
  ring_at_ += room;
  if (exchange.gives(place_)) {
    std::memcpy(area_.ring(place_) + at, run.call.in, bytes);
  }
  post(run, nullptr, 0);
  HCCL_RETURN_IF_ERROR(meet(run));
  take(run, 0, run.call.count,
       [&](int giver) { return area_.ring(giver) + at + run.from_start_of_input(); });
  return {};
}

// ---- what the others give ----

// Takes elements [first, first + length) of every block that is for this rank. at(giver) is where
// element `first` of the giver's block lies; one's own is taken from the caller's input.
template <class At>
void HostPath::take(const Run& run, std::uint64_t first, std::uint64_t length, At&& at) {
  const Exchange& exchange = run.exchange;
  if (!exchange.takes(place_)) return;
  auto* const out = static_cast<std::byte*>(run.call.out);
  const std::byte* const own =
      static_cast<const std::byte*>(run.call.in) + (exchange.in(place_).at + first) * run.element;
  if (exchange.folds()) {
    const std::uint64_t count = exchange.in(place_).count;
    if (first >= count) return;
    for (int giver = 0; giver < size_; ++giver) {
      inputs_[static_cast<std::size_t>(giver)] = giver == place_ ? own : at(giver);
    }
    kernels::fold(run.call.type, run.call.reduce, inputs_, out + first * run.element,
                  std::min(length, count - first));
    return;
  }
  for (int giver = 0; giver < size_; ++giver) {
    const Block block = exchange.out(giver);
    if (!exchange.gives(giver) || first >= block.count) continue;
    const std::byte* const from = giver == place_ ? own : at(giver);
    std::byte* const to = out + (block.at + first) * run.element;
    if (to != from) std::memcpy(to, from, std::min(length, block.count - first) * run.element);
  }
}

// ---- chunks through the ring ----

void HostPath::fill(const Run& run, std::byte* slot, std::uint64_t first, std::uint64_t length,
                    std::size_t stride) {
  const Exchange& exchange = run.exchange;
  if (!exchange.gives(place_)) return;
  const auto* const in = static_cast<const std::byte*>(run.call.in);
  for (int taker = 0; taker < (exchange.block_for_each() ? size_ : 1); ++taker) {
    if (exchange.block_for_each() && taker == place_) continue;
    const Block block = exchange.in(taker);
    if (first >= block.count) continue;
    std::memcpy(slot + stride * static_cast<std::size_t>(taker),
                in + (block.at + first) * run.element,
                std::min(length, block.count - first) * run.element);
  }
}

Status HostPath::stage(const Run& run) {
  const Exchange& exchange = run.exchange;
  std::uint64_t longest = 0;
  for (int place = 0; place < size_; ++place) {
    longest = std::max(longest, notice_of(place).longest);
  }
  const bool two_hops = run.call.op == schedule::Op::kAllReduce && size_ > ways_.most_that_fold_all;
  const auto segments = static_cast<std::size_t>(exchange.block_for_each() ? size_ : 1);
  const std::size_t stride = std::max(ways_.chunk / segments / kLineBytes * kLineBytes, kLineBytes);
  const std::uint64_t length = stride / run.element;
  const std::uint64_t chunks = (longest + length - 1) / length;
  const std::uint64_t window = Area::kRing / (stride * segments);
  const auto slot = [&](int place, std::uint64_t chunk) {
    return area_.ring(place) + chunk % window * (stride * segments);
  };
  RankWords& mine = area_.words(place_);
  const auto mark = [&](std::atomic<std::uint64_t>& counter, std::uint64_t chunk) {
    counter.store(chunks_ + chunk + 1, std::memory_order_release);
    area_.bell().ring();
  };
  const std::uint64_t lag = two_hops ? 2 : 1;
  for (std::uint64_t step = 0; step < chunks + lag; ++step) {
    if (step < chunks) {
      if (step >= window) {
        HCCL_RETURN_IF_ERROR(all_at(run, &RankWords::drained, chunks_ + step - window + 1));
      }
      fill(run, slot(place_, step), step * length, length, stride);
      mark(mine.filled, step);
    }
    if (two_hops && step >= 1 && step - 1 < chunks) {
      // Slice `place` of everybody's chunk, folded into one's own: nobody else reads that slice.
      const std::uint64_t chunk = step - 1;
      HCCL_RETURN_IF_ERROR(all_at(run, &RankWords::filled, chunks_ + chunk + 1));
      const Block part = run.slice(place_, std::min(length, run.call.count - chunk * length));
      for (int place = 0; place < size_; ++place) {
        inputs_[static_cast<std::size_t>(place)] = slot(place, chunk) + part.at * run.element;
      }
      kernels::fold(run.call.type, run.call.reduce, inputs_,
                    slot(place_, chunk) + part.at * run.element, part.count);
      mark(mine.folded, chunk);
    }
    if (step < lag) continue;
    const std::uint64_t chunk = step - lag;
    HCCL_RETURN_IF_ERROR(
        all_at(run, two_hops ? &RankWords::folded : &RankWords::filled, chunks_ + chunk + 1));
    if (two_hops) {
      const std::uint64_t first = chunk * length;
      for (int place = 0; place < size_; ++place) {
        const Block part = run.slice(place, std::min(length, run.call.count - first));
        std::memcpy(static_cast<std::byte*>(run.call.out) + (first + part.at) * run.element,
                    slot(place, chunk) + part.at * run.element, part.count * run.element);
      }
    } else {
      take(run, chunk * length, length, [&](int giver) {
        return slot(giver, chunk) +
               (exchange.block_for_each() ? stride * static_cast<std::size_t>(place_) : 0);
      });
    }
    mark(mine.drained, chunk);
  }
  // Nobody reads the rings any more when the next operation writes them.
  HCCL_RETURN_IF_ERROR(all_at(run, &RankWords::drained, chunks_ + chunks));
  chunks_ += chunks;
  ring_at_ = 0;
  return {};
}

// ---- where buffers lie ----

Notice HostPath::notice(const Run& run) const {
  Notice notice;
  notice.in = reinterpret_cast<std::uintptr_t>(run.call.in);
  notice.out = reinterpret_cast<std::uintptr_t>(run.call.out);
  notice.longest = run.exchange.longest();
  notice.in_bytes = run.input_extent() * run.element;
  notice.out_bytes = run.output_extent() * run.element;
  if (heap_ != nullptr) {
    if (const auto at = heap_->locate(run.call.in, notice.in_bytes)) notice.in_heap = *at;
    if (const auto at = heap_->locate(run.call.out, notice.out_bytes)) notice.out_heap = *at;
  }
  return notice;
}

Notice HostPath::notice_of(int place) const {
  Notice notice;
  std::memcpy(&notice, area_.words(place).entries[number_ & 1].post[0].payload.data(),
              sizeof notice);
  return notice;
}

bool HostPath::reachable(int place, std::uint64_t heap_at, std::uint64_t bytes) const {
  const auto& peer = memory_.peers[static_cast<std::size_t>(place)];
  return one_process_ || (heap_at != Notice::kPrivate && heap_at <= peer.heap_bytes &&
                          bytes <= peer.heap_bytes - heap_at);
}

// The same on all ranks: a function of what all of them have posted.
Way HostPath::choose(const Run& run) {
  const Exchange& exchange = run.exchange;
  bool ins = true;
  bool outs = true;
  for (int place = 0; place < size_; ++place) {
    const Notice notice = notice_of(place);
    if (exchange.gives(place)) ins = ins && reachable(place, notice.in_heap, notice.in_bytes);
    if (exchange.takes(place)) outs = outs && reachable(place, notice.out_heap, notice.out_bytes);
  }
  using schedule::Op;
  const bool writes_others = run.call.op == Op::kAllReduce || run.call.op == Op::kReduce;
  if (!ins || (writes_others && !outs)) return Way::kStage;
  if (run.call.op != Op::kAllReduce) return Way::kPull;
  if (run.call.count * run.element <= ways_.stage_most) return Way::kStage;
  return run.call.count * run.element <= ways_.pull_most ? Way::kPull : Way::kPush;
}

std::byte* HostPath::peer_bytes(int place, std::uint64_t address, std::uint64_t heap_at,
                                std::uint64_t bytes) {
  const auto& peer = memory_.peers[static_cast<std::size_t>(place)];
  if (peer.same_process) {
    // A thread of this process said so. NOLINTNEXTLINE(performance-no-int-to-ptr)
    return reinterpret_cast<std::byte*>(address);
  }
  // Page faults of a first touch, all at once rather than one by one.
  auto& mapped = mapped_in_[static_cast<std::size_t>(place)];
  constexpr std::size_t kGranule = memory::Heap::kGranule;
  if (mapped.empty()) mapped.resize(peer.heap_bytes / kGranule + 1);
  for (std::size_t g = heap_at / kGranule; g * kGranule < heap_at + bytes; ++g) {
    if (mapped[g]) continue;
    const std::size_t begin = std::max(heap_at / kPage * kPage, g * kGranule);
    const std::size_t end = std::min(heap_at + bytes, (g + 1) * kGranule);
    ::madvise(peer.heap + begin, (end - begin + kPage - 1) / kPage * kPage, kPopulateWrite);
    mapped[g] = begin == g * kGranule && end == (g + 1) * kGranule;
  }
  return peer.heap + heap_at;
}

void HostPath::resolve(const Run& run) {
  for (int place = 0; place < size_; ++place) {
    const Notice notice = notice_of(place);
    const auto at = static_cast<std::size_t>(place);
    if (run.exchange.gives(place)) {
      ins_[at] = peer_bytes(place, notice.in, notice.in_heap, notice.in_bytes);
    }
    if (run.exchange.takes(place) && reachable(place, notice.out_heap, notice.out_bytes)) {
      outs_[at] = peer_bytes(place, notice.out, notice.out_heap, notice.out_bytes);
    }
  }
}

// Of alltoallv only the two ranks of a pair know what they agreed on.
Status HostPath::check_pairs(const Run& run) const {
  if (run.call.op != schedule::Op::kAllToAllV) return {};
  for (int place = 0; place < size_; ++place) {
    const Block given = area_.table(place)[place_];
    const Block expected = run.exchange.out(place);
    const std::uint64_t most = notice_of(place).in_bytes / run.element;
    if (given.count <= most && given.at <= most - given.count && given.count == expected.count) {
      continue;
    }
    return Status(Code::kPara, "EI0005: the ranks' calls differ: in " + words(run.mine) + " rank " +
                                   std::to_string(rank_of(place)) + " sends " +
                                   std::to_string(given.count) + " elements to rank " +
                                   std::to_string(rank_of(place_)) + ", which expects " +
                                   std::to_string(expected.count));
  }
  return {};
}

// ---- straight from buffer to buffer ----

Status HostPath::pull(const Run& run) {
  take(run, 0, run.exchange.longest(), [&](int giver) {
    const std::uint64_t at = run.call.op == schedule::Op::kAllToAllV ? area_.table(giver)[place_].at
                                                                     : run.exchange.in_of(giver).at;
    return ins_[static_cast<std::size_t>(giver)] + at * run.element;
  });
  return gate(run);
}

Status HostPath::reduce_slices(const Run& run) {
  const Block slice = run.slice(place_, run.call.count);
  const std::size_t at = slice.at * run.element;
  for (std::size_t p = 0; p < inputs_.size(); ++p) inputs_[p] = ins_[p] + at;
  kernels::fold(run.call.type, run.call.reduce, inputs_,
                outs_[static_cast<std::size_t>(run.call.root)] + at, slice.count);
  return gate(run);
}

Status HostPath::pull_slices(const Run& run) {
  const Block mine = run.slice(place_, run.call.count);
  auto* const out = static_cast<std::byte*>(run.call.out);
  for (std::size_t p = 0; p < inputs_.size(); ++p) inputs_[p] = ins_[p] + mine.at * run.element;
  kernels::fold(run.call.type, run.call.reduce, inputs_, out + mine.at * run.element, mine.count);
  HCCL_RETURN_IF_ERROR(gate(run));
  for (int i = 1; i < size_; ++i) {
    const int place = (place_ + i) % size_;
    const Block slice = run.slice(place, run.call.count);
    const std::size_t at = slice.at * run.element;
    std::memcpy(out + at, outs_[static_cast<std::size_t>(place)] + at, slice.count * run.element);
  }
  return gate(run);
}

Status HostPath::push_slices(const Run& run) {
  // In pieces that stay in the first-level cache between the fold and the stores.
  constexpr std::size_t kPiece = 8192;
  const Block mine = run.slice(place_, run.call.count);
  const std::uint64_t length = kPiece / run.element;
  const auto own = static_cast<std::size_t>(place_);
  for (std::uint64_t first = 0; first < mine.count; first += length) {
    const std::uint64_t count = std::min(length, mine.count - first);
    const std::size_t at = (mine.at + first) * run.element;
    for (std::size_t p = 0; p < inputs_.size(); ++p) inputs_[p] = ins_[p] + at;
    kernels::fold(run.call.type, run.call.reduce, inputs_, outs_[own] + at, count);
    for (std::size_t p = 0; p < outs_.size(); ++p) {
      if (p != own) std::memcpy(outs_[p] + at, outs_[own] + at, count * run.element);
    }
  }
  return gate(run);
}

}  // namespace hccl::exec::host
