// Memory for messages that come before their receive.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace hccl::transport::tcp {

/// Of all links of one mesh: a buffer that one of them no longer needs serves the next that does.
/// Used by the thread of the mesh only.
class EarlyBuffers {
 public:
  /// Keeps buffers of at most so many bytes in all while nobody needs them.
  explicit EarlyBuffers(std::size_t most) : most_(most) {}

  /// At least `size` bytes, which are not set to anything.
  std::unique_ptr<std::byte[]> take(std::size_t size);
  /// `size` is that of take().
  void give_back(std::unique_ptr<std::byte[]> bytes, std::size_t size);

 private:
  static std::size_t kind_of(std::size_t size);
  static std::size_t bytes_of(std::size_t kind) { return std::size_t{1} << kind; }
  void free_one();

  std::size_t most_;
  std::size_t kept_ = 0;
  /// By the logarithm of their size, up to the longest eager message.
  std::array<std::vector<std::unique_ptr<std::byte[]>>, 17> spare_;
};

}  // namespace hccl::transport::tcp
