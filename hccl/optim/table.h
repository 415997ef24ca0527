// A table of spans. The table is cut into pieces, and into shares with equal numbers of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "hccl/optim/piece.h"

namespace hccl::optim {

class Table {
 public:
  explicit Table(std::span<const HcclOptimSpan> spans);

  std::span<const HcclOptimSpan> spans() const { return spans_; }
  std::size_t pieces() const { return starts_.back().piece; }
  std::size_t first_piece(std::size_t span) const { return starts_[span].piece; }

  /// Calls work(batch) on the given threads; the batches together contain each piece once. `sums`
  /// has one element for each piece, or is null.
  template <class Work>
  void run(const HcclOptimThreads& threads, Sums* sums, const Work& work) const {
    struct Task {
      const Table& table;
      Sums* sums;
      const Work& work;
      std::uint64_t shares;
    } task{*this, sums, work, shares(threads)};
    const HcclOptimBody body = [](void* of, std::uint64_t share) {
      const Task& t = *static_cast<const Task*>(of);
      t.table.run_share(share, t.shares, t.sums, t.work);
    };
    if (task.shares == 1) {
      body(&task, 0);
    } else {
      threads.run(task.shares, body, &task);
    }
  }

 private:
  static constexpr std::size_t kBatch = 64;
  /// The start of a span, in bytes and in pieces.
  struct Start {
    std::size_t byte, piece;
  };

  /// Returns whether the pieces of two spans may be in one batch.
  static bool alike(const HcclOptimSpan& a, const HcclOptimSpan& b) {
    for (std::size_t k = 0; k < std::size(a.states); ++k) {
      if ((a.states[k] == nullptr) != (b.states[k] == nullptr)) return false;
    }
    return a.numbers == b.numbers && a.type == b.type;
  }
  std::uint64_t shares(const HcclOptimThreads& threads) const;
  /// The number of the first piece of a span that begins at or after a byte.
  std::size_t piece_at(std::size_t span, std::size_t byte) const;
  Piece piece(std::size_t span, std::size_t number, Sums* sums) const;

  /// Runs the pieces of one share. A piece belongs to the share in which its first byte lies.
  template <class Work>
  void run_share(std::uint64_t share, std::uint64_t shares, Sums* sums, const Work& work) const {
    const std::size_t begin = starts_.back().byte * share / shares;
    const std::size_t end = starts_.back().byte * (share + 1) / shares;
    Piece pieces[kBatch];
    Batch batch{nullptr, {}, pieces, 0};
    const auto flush = [&] {
      if (batch.number > 0) work(static_cast<const Batch&>(batch));
      batch.number = 0;
    };
    for (std::size_t i = span_at(begin); i < spans_.size() && starts_[i].byte < end; ++i) {
      const HcclOptimSpan& span = spans_[i];
      if (i > 0 && !alike(span, spans_[i - 1])) flush();
      batch.numbers = span.numbers;
      batch.type = span.type;
      const std::size_t last = piece_at(i, end);
      for (std::size_t k = piece_at(i, begin); k < last; ++k) {
        if (batch.number == kBatch) flush();
        pieces[batch.number++] = piece(i, k, sums);
      }
    }
    flush();
  }
  /// The span that contains a byte.
  std::size_t span_at(std::size_t byte) const;

  std::span<const HcclOptimSpan> spans_;
  std::vector<Start> starts_;  // one for each span, and the end of the table
};

}  // namespace hccl::optim
