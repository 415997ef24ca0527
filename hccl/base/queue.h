// A queue that keeps its memory, and so allocates nothing while its number of elements is steady.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace hccl {

/// First in, first out; elements in the middle may be read and removed, too. Pointers to elements
/// stay valid until an element is added or removed.
template <class T>
class Queue {
 public:
  bool empty() const { return first_ == items_.size(); }
  std::size_t size() const { return items_.size() - first_; }
  T* begin() { return items_.data() + first_; }
  T* end() { return items_.data() + items_.size(); }
  T& front() { return items_[first_]; }
  T& back() { return items_.back(); }
  T& operator[](std::size_t i) { return items_[first_ + i]; }

  void push_back(T item) {
    // More than half of the stored elements have been removed, so moving the others to the front
    // costs no more than the removals did.
    if (items_.size() == items_.capacity() && first_ > items_.size() / 2) {
      items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
    items_.push_back(std::move(item));
  }
  void pop_front() {
    items_[first_] = T{};
    if (++first_ == items_.size()) clear();
  }
  void erase(T* item) {
    if (item == begin()) return pop_front();
    items_.erase(items_.begin() + (item - items_.data()));
  }
  template <class Predicate>
  void erase_if(Predicate predicate) {
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
    std::erase_if(items_, predicate);
  }
  void clear() {
    items_.clear();
    first_ = 0;
  }

 private:
  std::vector<T> items_;
  std::size_t first_ = 0;
};

}  // namespace hccl
