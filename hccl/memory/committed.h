// The account of the parts of a range of offsets that have memory behind them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace hccl::memory {

/// The parts are disjoint; adjacent parts are joined. The owner's lock must be held.
class Committed {
 public:
  /// Total bytes of all parts.
  std::uint64_t bytes() const { return bytes_; }

  /// Bytes of [from, to) that belong to no part.
  std::uint64_t missing(std::uint64_t from, std::uint64_t to) const {
    std::uint64_t there = 0;
    for (auto part = first(from); part != parts_.end() && part->first < to; ++part) {
      there += std::min(part->second, to) - std::max(part->first, from);
    }
    return to - from - there;
  }

  /// The start of the last `bytes` bytes with memory in [from, to); `from` if there are fewer.
  std::uint64_t last(std::uint64_t bytes, std::uint64_t from, std::uint64_t to) const {
    for (auto part = parts_.lower_bound(to); part != parts_.begin();) {
      --part;
      const std::uint64_t begin = std::max(part->first, from);
      const std::uint64_t end = std::min(part->second, to);
      if (end <= begin) break;
      if (end - begin >= bytes) return end - bytes;
      bytes -= end - begin;
    }
    return from;
  }

  void add(std::uint64_t from, std::uint64_t to) {
    bytes_ += missing(from, to);
    auto part = first(from);
    // A part that ends at the start of the new one is joined with it.
    if (part != parts_.begin() && std::prev(part)->second == from) --part;
    while (part != parts_.end() && part->first <= to) {
      from = std::min(from, part->first);
      to = std::max(to, part->second);
      part = parts_.erase(part);
    }
    parts_.emplace(from, to);
  }

  void remove(std::uint64_t from, std::uint64_t to) {
    bytes_ -= to - from - missing(from, to);
    for (auto part = first(from); part != parts_.end() && part->first < to;) {
      const auto [begin, end] = *part;
      part = parts_.erase(part);
      if (begin < from) parts_.emplace(begin, from);
      if (end > to) part = parts_.emplace(to, end).first;
    }
  }

 private:
  using Parts = std::map<std::uint64_t, std::uint64_t>;  // from, to
  /// The first part that ends after `at`.
  Parts::const_iterator first(std::uint64_t at) const {
    auto part = parts_.upper_bound(at);
    if (part != parts_.begin() && std::prev(part)->second > at) --part;
    return part;
  }

  Parts parts_;
  std::uint64_t bytes_ = 0;
};

}  // namespace hccl::memory
