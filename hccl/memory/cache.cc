#include "hccl/memory/cache.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace hccl::memory {

Cache::Cache(std::shared_ptr<Heap> heap, std::size_t limit)
    : heap_(std::move(heap)), limit_(limit) {}

std::size_t Cache::class_of(std::size_t bytes) {
  constexpr std::size_t kSteps = 8;
  const std::size_t step = std::max(std::bit_floor(bytes) / kSteps, Heap::kAlignment);
  return (bytes + step - 1) / step * step;
}

Result<void*> Cache::allocate(std::size_t bytes) {
  if (bytes == 0 || bytes > heap_->reserve()) {
    return heap_->allocate(bytes);  // fails and gives the reason
  }
  const std::size_t size = class_of(bytes);
  {
    const MutexLock lock(mutex_);
    if (void* const memory = take(size)) return memory;
  }
  auto made = heap_->allocate(size);
  if (made.status().code() == Code::kOom) {
    trim();
    made = heap_->allocate(size);
  }
  if (!made.ok()) return made;
  const MutexLock lock(mutex_);
  try {
    live_.emplace(*made, size);
  } catch (...) {
    static_cast<void>(heap_->free(*made));
    throw;
  }
  info_.in_use += size;
  ++info_.fresh;
  return made;
}

// Takes the block that was freed last: parts of it may still be in a CPU cache.
void* Cache::take(std::size_t bytes) {
  const auto at = classes_.find(bytes);
  if (at == classes_.end() || at->second.empty()) return nullptr;
  const Free::iterator block = at->second.back();
  void* const memory = block->memory;
  live_.emplace(memory, bytes);
  at->second.pop_back();
  free_.erase(block);
  info_.cached -= bytes;
  info_.in_use += bytes;
  ++info_.reused;
  heap_->limit_kept(limit_ - info_.cached);
  return memory;
}

Status Cache::free(void* memory) {
  if (memory == nullptr) return {};
  const MutexLock lock(mutex_);
  const auto at = live_.find(memory);
  if (at == live_.end()) {
    return Status(Code::kPara, "device memory: no block of this cache is at the address to free");
  }
  const std::size_t bytes = at->second;
  const bool kept = keep({memory, bytes});
  live_.erase(at);
  info_.in_use -= bytes;
  if (!kept) return heap_->free(memory);
  info_.cached += bytes;
  shrink(limit_);
  heap_->limit_kept(limit_ - info_.cached);
  return {};
}

// Returns false if there is no memory to remember the block.
bool Cache::keep(const Block& block) {
  try {
    auto& its_class = classes_[block.bytes];
    free_.push_back(block);
    try {
      its_class.push_back(std::prev(free_.end()));
      return true;
    } catch (...) {
      free_.pop_back();
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): the caller frees the block
  }
  return false;
}

void Cache::trim() {
  const MutexLock lock(mutex_);
  shrink(0);
  heap_->limit_kept(0);
  heap_->limit_kept(limit_);
}

void Cache::shrink(std::size_t limit) {
  while (info_.cached > limit) {
    const Block oldest = free_.front();
    free_.pop_front();
    const auto at = classes_.find(oldest.bytes);
    at->second.pop_front();
    if (at->second.empty()) classes_.erase(at);
    info_.cached -= oldest.bytes;
    // The block is live in the heap, so free() cannot fail.
    static_cast<void>(heap_->free(oldest.memory));
  }
}

Cache::Info Cache::info() const {
  const MutexLock lock(mutex_);
  return info_;
}

}  // namespace hccl::memory
