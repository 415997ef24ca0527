// Ranks of one host for tests of the host path by itself: threads, with an area of plain memory and
// one device heap.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "hccl/base/status.h"
#include "hccl/base/wait.h"
#include "hccl/exec/host/host_path.h"
#include "hccl/memory/heap.h"

namespace hccl::testing {

inline exec::host::Watch patient() {
  exec::host::Watch watch;
  watch.timeout = std::chrono::seconds(20);
  return watch;
}

class HostRanks {
 public:
  using HostPath = exec::host::HostPath;

  HostRanks(int size, const exec::host::Ways& ways, bool shared_cores,
            const kernels::StoreRule& stores = {}, exec::host::Watch watch = patient(),
            bool device_memory = true)
      : size_(size) {
    if (device_memory) heap_ = memory::Heap::create(std::size_t{512} << 20).value();
    area_.resize(HostPath::area_bytes(size) + exec::host::kPage);
    const auto start = reinterpret_cast<std::uintptr_t>(area_.data());
    const std::size_t skipped = (0 - start) % exec::host::kPage;
    memories_.resize(static_cast<std::size_t>(size));
    watch.abort = &abort_;
    watch.policy.shared_cores = shared_cores;
    for (int place = 0; place < size; ++place) {
      auto& memory = memories_[static_cast<std::size_t>(place)];
      memory.place = place;
      memory.area = {area_.data() + skipped, HostPath::area_bytes(size)};
      for (int rank = 0; rank < size; ++rank) {
        memory.ranks.push_back(rank);
        memory.peers.push_back(
            {heap_ ? heap_->base() : nullptr, heap_ ? heap_->reserve() : 0, false, ::getpid()});
      }
      paths_.push_back(std::make_unique<HostPath>(memory, heap_, ways, stores, watch));
    }
  }

  /// body(rank, path) on a thread a rank.
  template <class Body>
  void run(Body body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([&, rank] { body(rank, *paths_[static_cast<std::size_t>(rank)]); });
    }
    for (auto& thread : threads) thread.join();
  }

  /// Null without device memory.
  memory::Heap* heap() { return heap_.get(); }
  /// All ranks take the rank at this place to be this process.
  void set_process(int place, pid_t process) {
    for (auto& memory : memories_) memory.peers[static_cast<std::size_t>(place)].process = process;
  }
  /// What a communicator does once it is told of a failure.
  void abort(const Status& why) { abort_.raise(why); }

 private:
  int size_;
  std::shared_ptr<memory::Heap> heap_;
  std::vector<std::byte> area_;
  std::vector<HostMemory> memories_;
  AbortFlag abort_;
  std::vector<std::unique_ptr<HostPath>> paths_;
};

}  // namespace hccl::testing
