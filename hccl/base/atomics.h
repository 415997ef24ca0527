// The atomics of shared memory, as a policy class. The shared region, rings, doorbells and waits
// take the policy as a template parameter. A model checker passes its own policy, so it runs the
// shipped code, one operation at a time, in any order that the memory model allows. StdAtomics, the
// default, adds nothing to std::atomic.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

namespace hccl {

struct StdAtomics {
  template <class T>
  using atomic = std::atomic<T>;
  using mutex = std::mutex;

  static void thread_fence(std::memory_order order) { std::atomic_thread_fence(order); }
  /// Limits the order of accesses for the compiler, not for the processor.
  static void compiler_fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }
  /// Reads a plain word exactly once, even while another process writes it.
  template <class T>
  static T load_once(T& word) {
    return std::atomic_ref(word).load(std::memory_order_relaxed);
  }

  /// Leaves the core to its other hardware thread for some cycles.
  static void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  /// Gives the core to another thread that is ready to run.
  static void yield();

  /// Lets fence_everywhere() reach this process (membarrier). Returns false if the kernel does not
  /// support this.
  static bool join_fences();
  /// Runs a seq_cst fence on every core that runs a process which has called join_fences().
  static void fence_everywhere();

  /// Sleeps while the word has this value, at most for the given time (futex). May return early.
  static void sleep(atomic<std::uint32_t>& word, std::uint32_t value,
                    std::chrono::nanoseconds at_most);
  static void wake_all(atomic<std::uint32_t>& word);
  /// Wakes a thread that polls this eventfd, in any process. Writes nothing if the program has
  /// given the descriptor's number to a file or a socket.
  static void notify(int eventfd);
};

}  // namespace hccl
