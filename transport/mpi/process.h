// Starts MPI if the program has not, calls MPI only as MPI's thread level allows, and never calls
// MPI after it is finalised.
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

/// Returns a status with the text "`what` (MPI's error text)".
Status mpi_error(Code code, std::string_view what, int error, int culprit = Status::kNobody);

class Process;

/// A message that will still come on a communicator that no rank uses any more.
struct Farewell {
  int process;
  int tag;
};

/// Receives the message if it has arrived. Returns whether it had. The caller has a Stay.
bool receive(MPI_Comm comm, const Farewell& farewell);

/// A communicator of the processes behind one mesh. The ranks of the mesh that are threads of this
/// process share it; the last of them retires it.
class Group {
 public:
  Group(Process& process, MPI_Comm comm) : process_(process), comm_(comm) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();
  MPI_Comm comm() const { return comm_; }
  /// Keeps the communicator from being freed, because MPI may still work on it. Any thread may
  /// call.
  void keep_for_ever();
  /// Ends a rank's use of the communicator. `outstanding`: the messages that will still come to
  /// that rank. Any thread may call.
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
  /// Returns the object of this process. Calls MPI_Init_thread if MPI is not initialised. Fails
  /// with kUnavail once MPI is finalised.
  static Result<Process*> get();

  /// Permits calls to MPI while the object exists. With MPI_THREAD_MULTIPLE several threads may
  /// have a Stay at a time, otherwise one. A Stay converts to false if MPI is finalised: then no
  /// function of MPI may be called.
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
  /// A random number of this process. It distinguishes two processes to which MPI gave the same
  /// rank.
  std::uint64_t nonce() const { return nonce_; }

  /// Stores a group under a new number for the `takers` other ranks of this process.
  std::uint64_t lend(std::shared_ptr<Group> group, int takers);
  /// Returns the group with this number, or null.
  std::shared_ptr<Group> borrow(std::uint64_t number);
  void take_back(std::uint64_t number);

  /// Frees a communicator after its last messages have arrived. If it were freed earlier, Open MPI
  /// could give its number to a new communicator and deliver a late message there.
  void retire(MPI_Comm comm, std::vector<Farewell> outstanding);
  /// Frees the communicators that can be freed now. Called before a communicator is made.
  void sweep();

  /// Notes that a mesh has failed. Then this process does not wait for other processes when it
  /// ends.
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
  /// MPI calls this at the beginning of MPI_Finalize.
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
