// Records which parts of a range of offsets have memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace hccl::memory {

/// The parts are disjoint; adjacent parts are joined. The caller must hold the owner's lock.
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

  /// The offset from which [offset, to) contains exactly `bytes` bytes with memory; `from` if
  /// [from, to) contains fewer.
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
    // Joins the part that ends where the new part begins.
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
