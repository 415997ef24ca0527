// MPI as this process has it: started if the program did not, entered under the rules of its thread
// level, and left alone once it is finalised.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string_view>
#include <vector>

#include "hccl/base/mutex.h"
#include "hccl/base/status.h"

namespace hccl::transport::mpi {

/// "why (MPI's words)".
Status mpi_error(Code code, std::string_view what, int error, int culprit = Status::kNobody);

class Process;

/// A message that is still to come on a communicator that nobody uses any more.
struct Farewell {
  int process;
  int tag;
};

/// A communicator of the processes behind one mesh. The ranks of the mesh that are threads of this
/// process share it; the last one retires it.
class Group {
 public:
  Group(Process& process, MPI_Comm comm) : process_(process), comm_(comm) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();
  MPI_Comm comm() const { return comm_; }
  /// MPI may still work on it, so it is never freed. Any thread.
  void keep_for_ever();
  /// Called by a rank that is done with it; the messages that are still to come to that rank. Any
  /// thread.
  void leave(const std::vector<Farewell>& outstanding);

 private:
  Process& process_;
  MPI_Comm comm_;
  Mutex mutex_;
  bool kept_ HCCL_GUARDED_BY(mutex_) = false;
  std::vector<Farewell> outstanding_ HCCL_GUARDED_BY(mutex_);
};

class Process {
 public:
  /// The one of this process; calls MPI_Init_thread if nobody has. kUnavail once MPI is finalised.
  static Result<Process*> get();

  /// One stay inside MPI. With MPI_THREAD_MULTIPLE several threads may stay at a time, otherwise
  /// one. False if MPI is finalised: then nothing of MPI may be called.
  class Stay {
   public:
    explicit Stay(Process& process);
    explicit operator bool() const { return allowed_; }

   private:
    std::shared_lock<std::shared_mutex> shared_;
    std::unique_lock<std::shared_mutex> alone_;
    bool allowed_ = false;
  };

  int world_rank() const { return world_rank_; }
  int world_size() const { return world_size_; }
  int largest_tag() const { return largest_tag_; }
  /// A random number of this process, to tell two processes that MPI gave the same rank.
  std::uint64_t nonce() const { return nonce_; }

  /// Puts a group where the `takers` other ranks of this process find it, under a new number.
  std::uint64_t lend(std::shared_ptr<Group> group, int takers);
  /// Null if there is none of that number.
  std::shared_ptr<Group> borrow(std::uint64_t number);
  void take_back(std::uint64_t number);

  /// Frees a communicator once its last messages have come. MPI gives its number to a later
  /// communicator, and Open MPI takes a message that comes late for one of that.
  void retire(MPI_Comm comm, std::vector<Farewell> outstanding);
  /// Frees what can be freed now. Called before a communicator is made.
  void sweep();

  /// A mesh failed: do not wait for other processes when this one ends.
  void note_failure() { failed_.store(true, std::memory_order_relaxed); }

 private:
  struct Loan {
    std::shared_ptr<Group> group;
    int takers;
  };
  struct Retired {
    MPI_Comm comm;
    std::vector<Farewell> outstanding;
  };
  Process() = default;
  static Process& instance();
  Status start() HCCL_REQUIRES(start_mutex_);
  static void finalize_at_exit();
  /// MPI calls this at the beginning of MPI_Finalize, whoever calls that.
  static int on_finalize(MPI_Comm comm, int key, void* process, void* extra);

  Mutex start_mutex_;
  bool started_ HCCL_GUARDED_BY(start_mutex_) = false;
  long starter_pid_ = 0;
  bool multiple_ = false;
  int world_rank_ = 0;
  int world_size_ = 0;
  int largest_tag_ = 0;
  std::uint64_t nonce_ = 0;
  std::atomic<bool> finalized_{false};
  std::atomic<bool> failed_{false};
  std::shared_mutex gate_;
  Mutex loans_mutex_;
  std::uint64_t last_loan_ HCCL_GUARDED_BY(loans_mutex_) = 0;
  std::map<std::uint64_t, Loan> loans_ HCCL_GUARDED_BY(loans_mutex_);
  Mutex retired_mutex_;
  std::vector<Retired> retired_ HCCL_GUARDED_BY(retired_mutex_);
};

}  // namespace hccl::transport::mpi
