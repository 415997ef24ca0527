// The memory in which hccl_perf measures.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_comm.h"

namespace hccl_perf {

/// One rank's memory of one size. All ranks make and destroy theirs together.
class Buffers {
 public:
  /// `kind` is private, heap or window. Ends the program with a message if there is no memory.
  Buffers(const std::string& kind, std::size_t bytes, HcclComm comm);
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::vector<std::byte> private_;
  void* device_ = nullptr;
  HcclCommSymWindow window_ = nullptr;
  std::byte* data_ = nullptr;
};

/// Memory larger than the caches, to empty the caches.
class Flusher {
 public:
  explicit Flusher(bool wanted) : memory_(wanted ? kBytes : 0) {}
  /// Fills the caches of this core with unneeded lines.
  void flush();

 private:
  static constexpr std::size_t kBytes = std::size_t{256} << 20;
  std::vector<unsigned char> memory_;
};

}  // namespace hccl_perf
