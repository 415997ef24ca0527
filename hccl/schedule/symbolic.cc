#include "hccl/schedule/symbolic.h"

#include <algorithm>

#include "hccl/base/call.h"

namespace hccl::schedule {
namespace {

// Mixes the bits of a number, so that contributions combined in different orders get different
// numbers.
std::uint64_t mix(std::uint64_t number) {
  number = (number ^ (number >> 31)) * 0x9e3779b97f4a7c15u;
  number = (number ^ (number >> 29)) * 0xd1b54a32d192ed03u;
  return number ^ (number >> 32);
}

std::string name(const Slice& slice, int index) {
  std::string chunk = "chunk " + std::to_string(slice.chunk + index);
  switch (slice.buffer) {
    case Buffer::kIn:
      return "kIn " + chunk;
    case Buffer::kOut:
      return "kOut " + chunk;
    case Buffer::kScratch:
      return "kScratch slot " + std::to_string(slice.slot + index) + " (" + chunk + ")";
  }
  return chunk;
}

std::string names_of(const RankSet& set, int size) {
  std::string text;
  for (int rank = 0; rank < size; ++rank) {
    if (contains(set, rank)) text += (text.empty() ? "" : "+") + std::to_string(rank);
  }
  return "rank " + text;
}

}  // namespace

bool contains(const RankSet& set, int rank) {
  return (set[static_cast<std::size_t>(rank) / 64] >> (rank % 64) & 1) != 0;
}
void insert(RankSet& set, int rank) {
  set[static_cast<std::size_t>(rank) / 64] |= std::uint64_t{1} << (rank % 64);
}

bool Setting::holds(int rank, Buffer buffer, int chunk) const {
  const bool in = buffer == Buffer::kIn;
  switch (op) {
    case Op::kAllReduce:
      return true;
    case Op::kReduce:
      return in || rank == root;
    case Op::kBroadcast:
      return !in;
    case Op::kReduceScatter:
      return in || block_of(chunk) == rank;
    case Op::kAllGather:
      return !in || block_of(chunk) == rank;
    case Op::kScatter:
      return in ? rank == root : block_of(chunk) == rank;
    case Op::kAllToAll:
      return true;
    case Op::kBarrier:
    case Op::kReduceScatterV:
    case Op::kAllGatherV:
    case Op::kAllToAllV:
      break;
  }
  return false;
}

std::string describe(const Slice& slice) {
  if (slice.count == 0) return "nothing";
  std::string text = slice.count == 1 ? "chunk " : "chunks ";
  text += std::to_string(slice.chunk);
  if (slice.count > 1) text += ".." + std::to_string(slice.chunk + slice.count - 1);
  return text;
}

Memory::Memory(const Setting& setting, int rank, int scratch_slots)
    : setting_(setting),
      rank_(rank),
      scratch_slots_(scratch_slots),
      words_((static_cast<std::size_t>(setting.size) + 63) / 64) {
  const auto chunks = static_cast<std::size_t>(setting.chunks);
  const std::size_t places = 2 * chunks + static_cast<std::size_t>(scratch_slots);
  ranks_.assign(places * words_, 0);
  order_.assign(places, 0);
  chunk_.assign(places, -1);
  input_lost_.assign(chunks, false);
  const bool root_only = setting.op == Op::kBroadcast;
  for (int chunk = 0; chunk < setting.chunks; ++chunk) {
    if (setting.holds(rank, Buffer::kIn, chunk)) set_initial(Buffer::kIn, chunk);
    if (root_only && rank == setting.root) set_initial(Buffer::kOut, chunk);
  }
}

void Memory::set_initial(Buffer buffer, int chunk) {
  const std::size_t here = place({buffer, chunk, 1, 0}, 0);
  ranks_[here * words_ + static_cast<std::size_t>(rank_) / 64] = std::uint64_t{1} << (rank_ % 64);
  order_[here] = mix(static_cast<std::uint64_t>(rank_) << 32 | static_cast<unsigned>(chunk + 1));
  chunk_[here] = chunk;
}

std::string Memory::inside(const Slice& slice) const {
  if (slice.chunk < 0 || slice.count < 1 || slice.count > setting_.chunks ||
      slice.chunk > setting_.chunks - slice.count) {
    return "names " + std::to_string(slice.count) + " chunks from chunk " +
           std::to_string(slice.chunk) + " on, but the vector has " +
           std::to_string(setting_.chunks);
  }
  if (slice.buffer == Buffer::kScratch) {
    if (slice.slot >= 0 && slice.slot <= scratch_slots_ - slice.count) return {};
    return "names " + std::to_string(slice.count) + " slots from slot " +
           std::to_string(slice.slot) + " on, but asked for " + std::to_string(scratch_slots_);
  }
  for (int i = 0; i < slice.count; ++i) {
    if (!setting_.holds(rank_, slice.buffer, slice.chunk + i)) {
      return "names " + name(slice, i) + ", which this rank does not have";
    }
  }
  return {};
}

std::string Memory::may_write(const Slice& slice) const {
  return slice.buffer == Buffer::kIn ? "writes to " + name(slice, 0) : std::string{};
}

std::size_t Memory::place(const Slice& slice, int index) const {
  const auto chunk = static_cast<std::size_t>(slice.chunk) + static_cast<std::size_t>(index);
  const auto chunks = static_cast<std::size_t>(setting_.chunks);
  switch (slice.buffer) {
    case Buffer::kOut:
      return chunk;
    case Buffer::kIn:
      return setting_.in_place ? chunk : chunks + chunk;
    case Buffer::kScratch:
      break;
  }
  return 2 * chunks + static_cast<std::size_t>(slice.slot) + static_cast<std::size_t>(index);
}

void Memory::load(std::size_t place, Value& value) const {
  const auto begin = ranks_.begin() + static_cast<std::ptrdiff_t>(place * words_);
  value.ranks.assign(begin, begin + static_cast<std::ptrdiff_t>(words_));
  value.order = order_[place];
  value.chunk = chunk_[place];
}

std::string Memory::read(const Slice& slice, int index, Value& value) const {
  const int chunk = slice.chunk + index;
  if (slice.buffer == Buffer::kIn && input_lost_[static_cast<std::size_t>(chunk)]) {
    return "reads " + name(slice, index) + " after kOut, the same memory in place, was written";
  }
  load(place(slice, index), value);
  if (value.chunk < 0) return "reads " + name(slice, index) + ", which was never written";
  if (value.chunk != chunk && setting_.op != Op::kAllToAll) {
    return "reads " + name(slice, index) + ", which holds chunk " + std::to_string(value.chunk);
  }
  return {};
}

void Memory::write(const Slice& slice, int index, const Value& value) {
  const std::size_t here = place(slice, index);
  std::copy(value.ranks.begin(), value.ranks.end(),
            ranks_.begin() + static_cast<std::ptrdiff_t>(here * words_));
  order_[here] = value.order;
  chunk_[here] = value.chunk;
  if (slice.buffer == Buffer::kOut && setting_.in_place) {
    input_lost_[here] = true;
  }
}

std::string Memory::fold(const std::vector<Value>& inputs, Value& value) const {
  value = inputs.front();
  if (inputs.size() == 1) return {};
  if (!reduces(setting_.op)) return "combines chunks in an operation that does not reduce";
  value.order = mix(value.order);
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    for (std::size_t word = 0; word < words_; ++word) {
      if (const std::uint64_t twice = value.ranks[word] & inputs[i].ranks[word]; twice != 0) {
        RankSet culprits(words_, 0);
        culprits[word] = twice;
        return "folds " + names_of(culprits, setting_.size) + "'s part of chunk " +
               std::to_string(value.chunk) + " twice";
      }
      value.ranks[word] |= inputs[i].ranks[word];
    }
    value.order = mix(value.order + inputs[i].order);
  }
  return {};
}

std::string Memory::compare(int chunk, const Value& found) const {
  const std::string here = "kOut " + describe({Buffer::kOut, chunk, 1, 0});
  if (found.chunk < 0) return here + " was never written";
  Value wanted{RankSet(words_, 0), 0, chunk};
  switch (setting_.op) {
    case Op::kBroadcast:
    case Op::kScatter:
      insert(wanted.ranks, setting_.root);
      break;
    case Op::kAllGather:
      insert(wanted.ranks, setting_.block_of(chunk));
      break;
    case Op::kAllToAll: {
      const int per_block = setting_.chunks / setting_.size;
      insert(wanted.ranks, setting_.block_of(chunk));
      wanted.chunk = rank_ * per_block + chunk % per_block;
      break;
    }
    default:
      for (int rank = 0; rank < setting_.size; ++rank) {
        if (!contains(found.ranks, rank)) {
          return here + " lacks the part of rank " + std::to_string(rank);
        }
      }
      return {};
  }
  if (found.ranks == wanted.ranks && found.chunk == wanted.chunk) return {};
  return here + " holds " + names_of(found.ranks, setting_.size) + "'s chunk " +
         std::to_string(found.chunk) + " instead of " + names_of(wanted.ranks, setting_.size) +
         "'s chunk " + std::to_string(wanted.chunk);
}

std::string Memory::result() const {
  Value found;
  for (int chunk = 0; chunk < setting_.chunks; ++chunk) {
    if (!setting_.holds(rank_, Buffer::kOut, chunk)) continue;
    load(place({Buffer::kOut, chunk, 1, 0}, 0), found);
    // In place, an unwritten output still holds this rank's input. In a reduction of several ranks
    // that input is never the complete result. In an operation that keeps a block as it is, the
    // input is right.
    if (std::string wrong = compare(chunk, found); !wrong.empty()) return wrong;
  }
  return {};
}

std::uint64_t Memory::order_of_result(int chunk) const {
  if (!setting_.holds(rank_, Buffer::kOut, chunk)) return 0;
  return order_[place({Buffer::kOut, chunk, 1, 0}, 0)];
}

}  // namespace hccl::schedule
