// Records which parts of a range of offsets are free. An arena holds only offsets and never touches
// memory, so free parts may be pages that do not exist yet.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <utility>

namespace hccl::memory {

/// take() chooses the smallest free part that fits; among equal parts, the one with the lowest
/// offset. give_back() joins adjacent free parts. The caller must hold the owner's lock.
class Arena {
 public:
  explicit Arena(std::uint64_t size) { add(0, size); }

  /// Returns an offset for `bytes` bytes that is a multiple of `alignment` (a power of two), or
  /// nothing if no free part is large enough.
  std::optional<std::uint64_t> take(std::uint64_t bytes, std::uint64_t alignment) {
    for (auto part = by_size_.lower_bound({bytes, 0}); part != by_size_.end(); ++part) {
      const auto [size, at] = *part;
      const std::uint64_t start = (at + alignment - 1) & ~(alignment - 1);
      if (start - at > size || size - (start - at) < bytes) continue;
      remove(at, size);
      if (start != at) add(at, start - at);
      if (start + bytes != at + size) add(start + bytes, at + size - start - bytes);
      return start;
    }
    return std::nullopt;
  }

  /// Calls visit(at, bytes) for the free parts, the largest first, until visit() returns false.
  template <class Visit>
  void each_free(const Visit& visit) const {
    for (const auto& [size, at] : by_size_ | std::views::reverse) {
      if (!visit(at, size)) return;
    }
  }

  /// Frees a part that take() returned.
  void give_back(std::uint64_t at, std::uint64_t bytes) {
    const auto next = by_offset_.lower_bound(at);
    if (next != by_offset_.end() && next->first == at + bytes) {
      bytes += next->second;
      remove(next->first, next->second);
    }
    const auto after = by_offset_.lower_bound(at);
    if (after != by_offset_.begin()) {
      const auto [before, size] = *std::prev(after);
      if (before + size == at) {
        remove(before, size);
        at = before;
        bytes += size;
      }
    }
    add(at, bytes);
  }

 private:
  void add(std::uint64_t at, std::uint64_t bytes) {
    by_offset_.emplace(at, bytes);
    by_size_.emplace(bytes, at);
  }
  void remove(std::uint64_t at, std::uint64_t bytes) {
    by_offset_.erase(at);
    by_size_.erase({bytes, at});
  }

  std::map<std::uint64_t, std::uint64_t> by_offset_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;
};

}  // namespace hccl::memory
