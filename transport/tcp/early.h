// Memory for messages that arrive before their receive.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace hccl::transport::tcp {

/// Shared by all links of one mesh: a buffer that one link has freed serves the next link. Only the
/// thread of the mesh uses it.
class EarlyBuffers {
 public:
  /// Keeps free buffers of at most this many bytes in all.
  explicit EarlyBuffers(std::size_t most) : most_(most) {}

  /// Returns at least `size` bytes, not initialised.
  std::unique_ptr<std::byte[]> take(std::size_t size);
  /// Keeps a buffer for later calls of take(), or frees it. `size` must be the size given to
  /// take().
  void give_back(std::unique_ptr<std::byte[]> bytes, std::size_t size);

 private:
  static std::size_t kind_of(std::size_t size);
  static std::size_t bytes_of(std::size_t kind) { return std::size_t{1} << kind; }
  void free_one();

  std::size_t most_;
  std::size_t kept_ = 0;
  /// The free buffers by the binary logarithm of their size, up to the longest eager message.
  std::array<std::vector<std::unique_ptr<std::byte[]>>, 17> spare_;
};

}  // namespace hccl::transport::tcp
