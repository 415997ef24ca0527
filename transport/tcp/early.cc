#include "transport/tcp/early.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "transport/tcp/frame.h"

namespace hccl::transport::tcp {

static_assert(kEagerLimit <= std::size_t{1} << 16, "EarlyBuffers has a kind for every size");

std::size_t EarlyBuffers::kind_of(std::size_t size) {
  return static_cast<std::size_t>(std::bit_width(std::max<std::size_t>(size, 64) - 1));
}

std::unique_ptr<std::byte[]> EarlyBuffers::take(std::size_t size) {
  const std::size_t kind = kind_of(size);
  auto& spare = spare_[kind];
  if (spare.empty()) return std::make_unique_for_overwrite<std::byte[]>(bytes_of(kind));
  auto bytes = std::move(spare.back());
  spare.pop_back();
  kept_ -= bytes_of(kind);
  return bytes;
}

void EarlyBuffers::give_back(std::unique_ptr<std::byte[]> bytes, std::size_t size) {
  const std::size_t kind = kind_of(size);
  spare_[kind].push_back(std::move(bytes));
  kept_ += bytes_of(kind);
  while (kept_ > most_) free_one();
}

// Frees one buffer of the size whose free buffers have the most bytes together. Probably an
// operation that is over needed those buffers.
void EarlyBuffers::free_one() {
  std::size_t most = 0;
  for (std::size_t kind = 1; kind < spare_.size(); ++kind) {
    if (spare_[kind].size() * bytes_of(kind) > spare_[most].size() * bytes_of(most)) most = kind;
  }
  spare_[most].pop_back();
  kept_ -= bytes_of(most);
}

}  // namespace hccl::transport::tcp
