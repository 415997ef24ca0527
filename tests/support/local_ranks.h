// The ranks of one host, for tests of local algorithms without communicators: threads, with a
// shared region of plain memory and one device heap.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "hccl/base/status.h"
#include "hccl/exec/local_engine.h"
#include "hccl/memory/heap.h"
#include "tests/support/threads.h"

namespace hccl::testing {

inline Waiter patient() { return Waiter{.timeout = std::chrono::seconds(20)}; }

/// How the ranks of a test run.
struct LocalSetting {
  int size = 2;
  bool shared_cores = true;  ///< threads of a test outnumber the cores
  kernels::StoreRule stores{};
  local::Tuning tuning{};
};

class LocalRanks {
 public:
  using Engine = exec::LocalEngine;

  explicit LocalRanks(const LocalSetting& setting, Waiter waiter = patient())
      : size_(setting.size) {
    constexpr std::size_t kPage = 4096;
    heap_ = memory::Heap::create(std::size_t{512} << 20).value();
    region_.resize(local::Region::bytes(size_) + kPage);
    const auto start = reinterpret_cast<std::uintptr_t>(region_.data());
    const std::size_t skipped = (0 - start) % kPage;
    memories_.resize(static_cast<std::size_t>(size_));
    waiter.abort = &abort_;
    waiter.policy.shared_cores = setting.shared_cores;
    for (int local_rank = 0; local_rank < size_; ++local_rank) {
      auto& memory = memories_[static_cast<std::size_t>(local_rank)];
      memory.local_rank = local_rank;
      memory.area = {region_.data() + skipped, local::Region::bytes(size_)};
      for (int rank = 0; rank < size_; ++rank) {
        memory.ranks.push_back(rank);
        memory.peers.push_back({heap_->base(), heap_->reserve(), false, ::getpid()});
      }
      engines_.push_back(
          std::make_unique<Engine>(memory, heap_, setting.stores, waiter, waiter.policy));
      engines_.back()->set_tuning(setting.tuning);
    }
    tuning_ = setting.tuning;
  }

  /// Runs body(rank, engine) on a thread for each rank.
  template <class Body>
  void run(Body body) {
    on_threads(size_, [&](int rank) { body(rank, *engines_[static_cast<std::size_t>(rank)]); });
  }
  /// The same after all engines have opened: only then may the kernel copy between the ranks.
  template <class Body>
  void run_open(Body body) {
    run([&](int rank, Engine& engine) {
      const Status opened = engine.open(true);
      ASSERT_TRUE(opened.ok()) << opened.message();
      ASSERT_TRUE(engine.topology().kernel_copies);
      engine.set_tuning(tuning_);
      body(rank, engine);
    });
  }

  memory::Heap* heap() { return heap_.get(); }
  /// Lets `rank` use this process number for `local_rank`.
  void set_process(int rank, int local_rank, pid_t process) {
    memories_[static_cast<std::size_t>(rank)].peers[static_cast<std::size_t>(local_rank)].process =
        process;
  }
  /// Raises the failure, as a communicator does.
  void abort(const Status& why) { abort_.raise(why); }

 private:
  int size_;
  local::Tuning tuning_;
  std::shared_ptr<memory::Heap> heap_;
  std::vector<std::byte> region_;
  std::vector<HostMemory> memories_;
  AbortFlag abort_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

}  // namespace hccl::testing
