// Wakes sleeping threads: of one process, or of several processes if the doorbell lies in shared
// memory. Any thread may ring; several threads may sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "hccl/base/atomics.h"

namespace hccl {

/// Ringing costs no system call while no thread sleeps. Either the ringer sees the sleeper, or the
/// sleeper sees the data that the ringer stored before it rang; this needs a fence on both sides. A
/// doorbell that is constructed is for threads of one process, and each side fences itself. A
/// doorbell in shared memory begins as zeroes and is not constructed. On such a doorbell the
/// sleeper fences for all processes (membarrier), and ring() only loads.
template <class Atomics = StdAtomics>
class BasicDoorbell {
 public:
  /// Each process must call join() once before it rings or sleeps on a doorbell in shared memory.
  /// If the kernel cannot fence for other processes, each ringer executes the fence itself from
  /// then on.
  void join() {
    if (!Atomics::join_fences()) ringer_fences_.store(1, std::memory_order_seq_cst);
  }
  void ring() {
    if (ringer_fences_.load(std::memory_order_relaxed) != 0) {
      Atomics::thread_fence(std::memory_order_seq_cst);
    }
    Atomics::compiler_fence();
    if (sleepers_.load(std::memory_order_relaxed) != 0) wake();
  }
  /// Wakes the sleepers even if no data was stored for them, for example after an abort.
  [[gnu::cold]] void wake() {
    rings_.fetch_add(1, std::memory_order_seq_cst);
    Atomics::wake_all(rings_);
  }

  /// Makes sure that either this thread sees the data that a ringer stored before it rang, or the
  /// ringer later sees the data that this thread has stored.
  void fence() const {
    if (ringer_fences_.load(std::memory_order_relaxed) == 0) Atomics::fence_everywhere();
    Atomics::thread_fence(std::memory_order_seq_cst);
  }

  // The three steps of a sleeper (waiter.h).
  std::uint32_t prepare() {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    fence();
    return rings_.load(std::memory_order_seq_cst);
  }
  void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) {
    Atomics::sleep(rings_, ticket, at_most);
  }
  void awake() { sleepers_.fetch_sub(1, std::memory_order_seq_cst); }

 private:
  template <class T>
  using atomic = typename Atomics::template atomic<T>;
  atomic<std::uint32_t> ringer_fences_{1};
  atomic<std::uint32_t> rings_{0};
  atomic<std::uint32_t> sleepers_{0};
};

using Doorbell = BasicDoorbell<>;

}  // namespace hccl
