// A map that forgets its oldest entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace hccl {

/// A map with a limit: every entry has a weight, and the oldest entries make room for a new entry.
/// Keys are compared by <. Not thread-safe.
template <class Key, class Value>
class Recent {
 public:
  /// `most`: the most that all entries together may weigh. The newest entry stays even if its own
  /// weight is higher.
  explicit Recent(std::uint64_t most) : most_(most) {}

  std::size_t size() const { return entries_.size(); }
  /// Returns null if the key has no entry. A pointer is valid until put() or erase().
  Value* find(const Key& key) {
    const auto at = entries_.find(key);
    return at == entries_.end() ? nullptr : &at->second.value;
  }
  const Value* find(const Key& key) const { return const_cast<Recent*>(this)->find(key); }
  /// Stores the value as the newest entry. Removes an older entry with the same key.
  Value& put(const Key& key, Value value, std::uint64_t weight = 1) {
    erase(key);
    while (!by_age_.empty() && weight_ + weight > most_) erase(Key(by_age_.begin()->second));
    const auto at = entries_.insert_or_assign(key, Entry{std::move(value), weight, next_}).first;
    by_age_.emplace(next_++, key);
    weight_ += weight;
    return at->second.value;
  }
  void erase(const Key& key) {
    const auto at = entries_.find(key);
    if (at == entries_.end()) return;
    weight_ -= at->second.weight;
    by_age_.erase(at->second.age);
    entries_.erase(at);
  }
  /// Calls use(value) for each entry, the oldest first.
  template <class Use>
  void each(Use use) const {
    for (const auto& [age, key] : by_age_) use(entries_.at(key).value);
  }

 private:
  struct Entry {
    Value value;
    std::uint64_t weight = 0;
    std::uint64_t age = 0;  // the key in by_age_
  };
  std::uint64_t most_, weight_ = 0, next_ = 0;
  std::map<Key, Entry> entries_;
  std::map<std::uint64_t, Key> by_age_;
};

}  // namespace hccl
