#include "transport/mpi/process.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "hccl/base/random.h"
#include "hccl/base/thread.h"

namespace hccl::transport::mpi {

Status mpi_error(Code code, std::string_view what, int error, int culprit) {
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  MPI_Error_string(error, text, &length);
  return Status(
      code, std::string(what) + " (" + std::string(text, static_cast<std::size_t>(length)) + ")",
      culprit);
}

bool receive(MPI_Comm comm, const Farewell& farewell) {
  const auto [process, tag] = farewell;
  int there = 0;
  if (MPI_Iprobe(process, tag, comm, &there, MPI_STATUS_IGNORE) != MPI_SUCCESS || there == 0)
    return false;
  MPI_Recv(nullptr, 0, MPI_BYTE, process, tag, comm, MPI_STATUS_IGNORE);
  return true;
}

Group::~Group() {
  if (!kept_) process_.retire(comm_, std::move(outstanding_));
}

void Group::keep_for_ever() {
  const MutexLock lock(mutex_);
  kept_ = true;
}

void Group::leave(const std::vector<Farewell>& outstanding) {
  const MutexLock lock(mutex_);
  outstanding_.insert(outstanding_.end(), outstanding.begin(), outstanding.end());
}

// MPI exists once in each process, so this object does, too. It is never destroyed, because the
// exit handler and threads that outlive main() use it.
Process& Process::instance() {
  static Process* const process = new Process;
  return *process;
}

Result<Process*> Process::get() {
  Process& process = instance();
  const MutexLock lock(process.start_mutex_);
  if (!process.started_) HCCL_RETURN_IF_ERROR(process.start());
  if (process.finalized_.load(std::memory_order_acquire)) {
    return Status(Code::kUnavail, "MPI is finalised already; open communicators before that");
  }
  return &process;
}

Status Process::start() {
  int yes = 0;
  MPI_Finalized(&yes);
  if (yes != 0) return Status(Code::kUnavail, "MPI is finalised already");
  MPI_Initialized(&yes);
  int level = MPI_THREAD_SINGLE;
  if (yes == 0) {
    const SignalsBlocked blocked;  // MPI starts threads
    if (const int r = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level); r != 0) {
      return mpi_error(Code::kUnavail, "MPI cannot be initialised", r);
    }
    starter_pid_ = getpid();
    // This handler runs before the handlers that MPI's libraries have just registered, and after
    // all handlers that the program registers later.
    std::atexit(&Process::finalize_at_exit);
  }
  MPI_Query_thread(&level);
  multiple_ = level == MPI_THREAD_MULTIPLE;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size_);
  void* tag = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag, &found);
  largest_tag_ = found != 0 ? *static_cast<int*>(tag) : 32767;
  HCCL_RETURN_IF_ERROR(random_bytes(&nonce_, sizeof nonce_));

  int key = MPI_KEYVAL_INVALID;
  if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &Process::on_finalize, &key, nullptr) != 0 ||
      MPI_Comm_set_attr(MPI_COMM_SELF, key, this) != 0) {
    return Status(Code::kInternal, "MPI does not tell when it is finalised");
  }
  MPI_Comm_free_keyval(&key);
  started_ = true;
  return Status();
}

int Process::on_finalize(MPI_Comm, int, void* process, void*) {
  auto& self = *static_cast<Process*>(process);
  self.finalized_.store(true, std::memory_order_release);
  std::unique_lock wait_for_those_inside(self.gate_);
  return MPI_SUCCESS;
}

void Process::finalize_at_exit() {
  Process& process = instance();
  // A forked child has no MPI. After a failure MPI_Finalize could wait for a process that is gone.
  if (process.starter_pid_ != getpid() || process.failed_.load(std::memory_order_relaxed)) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Finalize();
}

Process::Stay::Stay(Process& process) {
  if (process.finalized_.load(std::memory_order_acquire)) return;
  if (process.multiple_) {
    shared_ = std::shared_lock(process.gate_);
  } else {
    alone_ = std::unique_lock(process.gate_);
  }
  allowed_ = !process.finalized_.load(std::memory_order_acquire);
}

void Process::retire(MPI_Comm comm, std::vector<Farewell> outstanding) {
  {
    const MutexLock lock(retired_mutex_);
    retired_.push_back({comm, std::move(outstanding)});
  }
  sweep();
}

void Process::sweep() {
  const Stay stay(*this);
  if (!stay) return;
  const MutexLock lock(retired_mutex_);
  std::erase_if(retired_, [&](Retired& old) {
    std::erase_if(old.outstanding, [&](const Farewell& f) { return receive(old.comm, f); });
    if (!old.outstanding.empty()) return false;
    MPI_Comm_free(&old.comm);
    return true;
  });
}

std::uint64_t Process::lend(std::shared_ptr<Group> group, int takers) {
  const MutexLock lock(loans_mutex_);
  const std::uint64_t number = ++last_loan_;
  if (takers > 0) loans_[number] = {std::move(group), takers};
  return number;
}

std::shared_ptr<Group> Process::borrow(std::uint64_t number) {
  const MutexLock lock(loans_mutex_);
  const auto found = loans_.find(number);
  if (found == loans_.end()) return nullptr;
  std::shared_ptr<Group> group = found->second.group;
  if (--found->second.takers == 0) loans_.erase(found);
  return group;
}

void Process::take_back(std::uint64_t number) {
  const MutexLock lock(loans_mutex_);
  loans_.erase(number);
}

}  // namespace hccl::transport::mpi
