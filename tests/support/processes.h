// Ranks as processes, forked from a test program that has no threads. They share one page with the
// test, which carries the root info.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/core/communicator.h"
#include "hccl/join/world.h"

namespace hccl::testing {

/// Nanoseconds of the clock that all processes of a host share.
std::int64_t now_ns();

/// The end of a rank's call, in memory that outlives the rank.
struct Outcome {
  std::atomic<bool> known{false};
  std::int64_t at_ns = 0;  ///< when the call returned
  Code code = Code::kSuccess;
  int culprit = -1;
  std::array<char, 1536> text{};

  void set(const Status& status);  /// also stores the time
  std::string message() const { return text.data(); }
};

/// The memory that the ranks of a test share with it.
struct Board {
  static constexpr int kRanks = 64;
  std::atomic<bool> open{false};  ///< info is there
  std::array<char, join::RootInfo::kBytes> info{};
  std::array<std::atomic<std::uint64_t>, kRanks> progress{};  ///< operations done, by rank
  std::array<Outcome, kRanks> first{};                        ///< the first failure, by rank
  std::array<Outcome, kRanks> later{};                        /// a later failure, by rank
  std::atomic<bool> finish{false};                            ///< the test has seen enough
};

/// Sleeps until the condition holds. Returns false after `at_most`.
bool eventually(const std::function<bool()>& condition,
                std::chrono::nanoseconds at_most = std::chrono::seconds(60));

/// What a rank's process holds: the control thread, its node in the control tree, the World that it
/// joined, and the communicator of all ranks.
struct Member {
  std::shared_ptr<join::Control> thread;
  std::shared_ptr<join::Node> node;
  std::shared_ptr<join::World> control;
  std::shared_ptr<core::Communicator> world;
};

class Processes {
 public:
  Processes();
  /// Kills the processes that still run.
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  Board& board() { return *board_; }
  /// Forks a process that runs body and ends by _exit with its result. Returns its index for kill()
  /// and wait().
  int start(const std::function<int()>& body);
  void kill(int process, int signal = SIGKILL);
  /// Waits for the end of the process and returns its wait status; -1 if it still runs after
  /// `at_most`.
  int wait(int process, std::chrono::nanoseconds at_most = std::chrono::seconds(60));

  /// Called in a child: makes the root if this is rank 0, and joins.
  Status join(Member& member, int size, int rank, const Config& config);
  /// Called in a child: joins, and opens the world.
  Status enter(Member& member, int size, int rank, const Config& config);
  /// Called in a child: leaves, and destroys all objects.
  static void leave(Member& member);

 private:
  Board* board_;
  std::vector<pid_t> children_;  // 0: reaped
};

/// Measures the longest lateness of this thread's wake-ups while it watches. A loaded machine adds
/// that much to every time limit.
class Lateness {
 public:
  /// Sleeps until the condition holds, and measures meanwhile. Returns false after `at_most`.
  bool watch(const std::function<bool()>& condition, std::chrono::nanoseconds at_most);
  std::chrono::nanoseconds worst() const { return worst_; }

 private:
  std::chrono::nanoseconds worst_{0};
};

}  // namespace hccl::testing
