#include "hccl/optim/table.h"

#include <algorithm>

namespace hccl::optim {
namespace {

std::size_t element_bytes(HcclOptimType type) {
  switch (type) {
    case HCCL_OPTIM_FP64:
      return 8;
    case HCCL_OPTIM_BF16:
    case HCCL_OPTIM_FP16:
      return 2;
    default:
      return 4;
  }
}
std::size_t gradient_bytes(HcclOptimType type) {
  return type == HCCL_OPTIM_BF16_MASTER || type == HCCL_OPTIM_FP16_MASTER ? 2 : element_bytes(type);
}

std::size_t piece_length(const HcclOptimSpan& span) {
  return span.rows == 0 ? kPiece : span.count / span.rows;
}

void* advance(void* base, std::size_t bytes) {
  return base == nullptr ? nullptr : static_cast<std::byte*>(base) + bytes;
}

}  // namespace

Table::Table(std::span<const HcclOptimSpan> spans) : spans_(spans) {
  starts_.reserve(spans.size() + 1);
  Start next{0, 0};
  for (const HcclOptimSpan& span : spans) {
    starts_.push_back(next);
    next.byte += span.count * element_bytes(span.type);
    if (span.count > 0) next.piece += (span.count - 1) / piece_length(span) + 1;
  }
  starts_.push_back(next);
}

std::uint64_t Table::shares(const HcclOptimThreads& threads) const {
  // Waking a thread takes about as long as the step of this many bytes.
  constexpr std::uint64_t kSmallest = 1 << 16;
  const std::uint64_t worth = std::max<std::uint64_t>(starts_.back().byte / kSmallest, 1);
  return threads.run == nullptr ? 1 : std::clamp<std::uint64_t>(threads.number, 1, worth);
}

std::size_t Table::span_at(std::size_t byte) const {
  const auto after = std::upper_bound(starts_.begin(), starts_.end() - 1, byte,
                                      [](std::size_t b, const Start& s) { return b < s.byte; });
  return after == starts_.begin() ? 0 : static_cast<std::size_t>(after - starts_.begin()) - 1;
}

std::size_t Table::piece_at(std::size_t i, std::size_t byte) const {
  const std::size_t pieces = starts_[i + 1].piece - starts_[i].piece;
  if (byte <= starts_[i].byte) return 0;
  const std::size_t bytes = piece_length(spans_[i]) * element_bytes(spans_[i].type);
  return std::min((byte - starts_[i].byte - 1) / bytes + 1, pieces);
}

Piece Table::piece(std::size_t i, std::size_t number, Sums* sums) const {
  const HcclOptimSpan& span = spans_[i];
  const std::size_t length = piece_length(span), begin = number * length;
  const std::size_t kept = begin * element_bytes(span.type);
  const std::size_t given = begin * gradient_bytes(span.type);
  return {
      advance(span.parameter, kept),
      advance(span.gradient, given),
      {advance(span.states[0], kept), advance(span.states[1], kept), advance(span.states[2], kept)},
      advance(span.copy, given),
      std::min<std::size_t>(length, span.count - begin),
      sums == nullptr ? nullptr : sums + starts_[i].piece + number};
}

}  // namespace hccl::optim
