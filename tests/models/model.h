// Weak memory, one interleaving after another: a policy of atomics (hccl/base/atomics.h) under
// which the library's own templates run, and the explorer that tries every execution within its
// bounds. README.md has the rules of the memory model.
#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

namespace hccl::model {

using Order = std::memory_order;
using Where = std::source_location;

// ---- for tests ----

/// One execution: threads, the memory that they share, and the services of the kernel.
class World {
 public:
  /// A thread that must end by itself. Threads of one rank die together.
  void thread(int rank, std::string name, std::function<void()> body) {
    threads.push_back({rank, std::move(name), std::move(body), false});
  }
  /// A thread that is stopped in its wait once no other thread can continue.
  void daemon(int rank, std::string name, std::function<void()> body) {
    threads.push_back({rank, std::move(name), std::move(body), true});
  }
  /// Declares shared bytes: two plain accesses that are not ordered are a data race.
  void share(const void* at, std::size_t bytes) { shared.emplace_back(at, bytes); }
  bool membarrier = true;
  /// The rank that may die before any of its operations; -1: none.
  int mortal = -1;

  struct Thread {
    int rank;
    std::string name;
    std::function<void()> body;
    bool daemon;
  };
  std::vector<Thread> threads;
  std::vector<std::pair<const void*, std::size_t>> shared;
};
/// Sets up an execution. It is called again for each execution, and must do the same each time.
using Scenario = std::function<void(World&)>;

/// Called in a thread: the execution is wrong unless `holds`.
void check(bool holds, const char* what);
/// Called in a thread: sleeps until a rank has died; returns that rank.
int await_death();
/// Called in a thread: sleeps until notify(fd). If notify(fd) was called before, it returns at
/// once, like a poll of an eventfd. forget_notified() reads the notification.
void await_notified(int fd);
void forget_notified(int fd);

struct Bounds {
  /// The most preemptions: switches away from a thread that could continue.
  int preemptions = 2;
  /// The most detours: a thread cannot continue, and a thread other than the next one in turn does.
  int detours = 1000;
  /// The most loads that read a store older than the newest one.
  int stale = 2;
  std::uint64_t executions = 50'000'000;
};

/// An operation in the source of the code under test.
struct Site {
  std::string file, function;
  unsigned line = 0, column = 0;
  std::string what;  ///< "load", "store", "change", "fence", "light fence", "heavy fence", "wake"
  Order order{};
  auto key() const { return std::tie(file, line, column); }
  bool operator<(const Site& other) const { return key() < other.key(); }
  bool operator==(const Site& other) const { return key() == other.key(); }
  std::string text() const;
};
std::string name(Order order);

/// The code under test with one operation weaker, or left out.
struct Mutation {
  Site site;
  Order order{};
  bool left_out = false;
};

struct Outcome {
  std::string failure;  ///< empty: every execution was right
  std::string trace;    ///< the first wrong execution, operation by operation
  std::uint64_t executions = 0;
  bool complete = true;  ///< false: Bounds::executions was reached
  std::vector<Site> sites;
  bool ok() const { return failure.empty(); }
};
Outcome explore(const Scenario& scenario, const Bounds& bounds, const Mutation* mutation = nullptr);

// ---- the policy ----

/// A location. Fresh memory, which is all zeroes, is its initial state.
struct Word {
  std::uint64_t first = 0;
  std::uint32_t run = 0, id = 0;
};
using Change = std::uint64_t (*)(std::uint64_t old, std::uint64_t operand);

std::uint64_t load(Word& word, Order order, const Where& where);
void store(Word& word, std::uint64_t value, Order order, const Where& where);
std::uint64_t change(Word& word, Change how, std::uint64_t operand, Order order,
                     const Where& where);
void fence(Order order, const Where& where);
void light_fence(const Where& where);
void heavy_fence(const Where& where);
bool has_membarrier();
void sleep(Word& word, std::uint64_t value);
void wake_all(Word& word, const Where& where);
void notify(int fd, const Where& where);

class Mutex {
 public:
  void lock();
  void unlock() noexcept;

 private:
  friend class Engine;
  Word word_;
  bool held_ = false;
};

struct ModelAtomics {
  template <class T>
  class atomic {
   public:
    constexpr atomic() = default;
    constexpr atomic(T value) : word_{static_cast<std::uint64_t>(value)} {}
    atomic(const atomic&) = delete;
    atomic& operator=(const atomic&) = delete;

    T load(Order order, const Where& where = Where::current()) const {
      return static_cast<T>(model::load(word_, order, where));
    }
    void store(T value, Order order, const Where& where = Where::current()) {
      model::store(word_, static_cast<std::uint64_t>(value), order, where);
    }
    T exchange(T value, Order order, const Where& where = Where::current()) {
      return change([](std::uint64_t, std::uint64_t x) { return x; }, value, order, where);
    }
    T fetch_add(T value, Order order, const Where& where = Where::current()) {
      return change([](std::uint64_t old, std::uint64_t x) { return wrap(old + x); }, value, order,
                    where);
    }
    T fetch_sub(T value, Order order, const Where& where = Where::current()) {
      return change([](std::uint64_t old, std::uint64_t x) { return wrap(old - x); }, value, order,
                    where);
    }

   private:
    friend struct ModelAtomics;
    static std::uint64_t wrap(std::uint64_t value) { return static_cast<T>(value); }
    T change(Change how, T value, Order order, const Where& where) {
      return static_cast<T>(
          model::change(word_, how, static_cast<std::uint64_t>(value), order, where));
    }
    mutable Word word_;
  };
  using mutex = Mutex;

  static void thread_fence(Order order, const Where& where = Where::current()) {
    fence(order, where);
  }
  static void compiler_fence(const Where& where = Where::current()) { light_fence(where); }
  template <class T>
  static T load_once(T& word) {
    return word;
  }
  static void pause() {}
  static void yield() {}
  static bool join_fences() { return has_membarrier(); }
  static void fence_everywhere(const Where& where = Where::current()) { heavy_fence(where); }
  /// Sleeps without a limit, so that a lost wake-up is found.
  static void sleep(atomic<std::uint32_t>& word, std::uint32_t value, std::chrono::nanoseconds) {
    model::sleep(word.word_, value);
  }
  static void wake_all(atomic<std::uint32_t>& word, const Where& where = Where::current()) {
    model::wake_all(word.word_, where);
  }
  static void notify(int eventfd, const Where& where = Where::current()) {
    model::notify(eventfd, where);
  }
};

}  // namespace hccl::model
