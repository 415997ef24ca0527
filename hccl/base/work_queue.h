// A queue that runs pieces of work in order, one at a time, on the queue's worker thread or on a
// thread that waits for work in the queue.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <thread>
#include <utility>

#include "hccl/base/mutex.h"
#include "hccl/base/process_doorbell.h"
#include "hccl/base/request.h"
#include "hccl/base/status.h"
#include "hccl/base/thread.h"
#include "hccl/base/waiter.h"

namespace hccl {

/// Every member is safe to use from any thread. If a shared_ptr owns the queue, the worker and the
/// tickets keep the queue alive. So a callback may destroy the owner of the queue; that owner calls
/// end().
class WorkQueue : public std::enable_shared_from_this<WorkQueue> {
 public:
  using Work = std::function<Status()>;
  using Done = Request::Done;
  class Entry;
  using Ticket = std::shared_ptr<Entry>;

  /// The limit after which work in line is given up. Two obstacles can block the line for ever. A
  /// running piece of work never ends if its thread has died, or has left the work by longjmp. A
  /// place at the head of the line never gets its work if the program provides that work only after
  /// work behind the place. If one piece has run, or one place has waited for its work, in the
  /// queue of() for longer than patience() (0, or no function: no limit), each thread that waits
  /// for work in line gives up that work, and the worker gives up its next work. The result of the
  /// work is then overdue(). The functions and the queue of() must stay valid while work is in
  /// line.
  struct Bound {
    std::function<std::chrono::nanoseconds()> patience;
    std::function<Status()> overdue;
    std::function<const WorkQueue*()> of;  // empty: this queue
  };
  /// `worker`: the thread's name, a literal.
  explicit WorkQueue(const char* worker) : WorkQueue(worker, Bound{}) {}
  WorkQueue(const char* worker, Bound bound) : name_(worker), bound_(std::move(bound)) {}
  ~WorkQueue() { end(true); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// The right to run work now. A Turn is true if nothing is in line or running, which is the usual
  /// case. If it is false, the caller must defer().
  class Turn {
   public:
    explicit Turn(WorkQueue& queue) : queue_(queue.enter() ? &queue : nullptr) {}
    ~Turn() {
      if (queue_ != nullptr) queue_->leave();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    explicit operator bool() const { return queue_ != nullptr; }

   private:
    WorkQueue* queue_;
  };
  /// Puts the work in line for the worker, starts the worker, and returns at once. Throws
  /// std::system_error if no thread can be started.
  ///
  /// The callback `done` runs after the work on the same thread, and must not throw. It may submit
  /// work to this queue, and wait for tickets of this queue: Entry::wait() then runs the line up to
  /// the ticket, and the ticket's callback. The callbacks of the other work run later. Work that a
  /// callback submits enters the line at the mark() of the callback's ticket or, without a mark, at
  /// the end.
  Ticket submit(Work work, Done done = {});
  /// Runs `work`, then `done`, at once on this thread if nothing is in line or running. Otherwise
  /// runs nothing and returns false.
  bool run_now(const Work& work, const Done& done);
  /// Puts work in line for a thread in wait(); the worker does not run this work. The caller must
  /// wait() for the ticket.
  Ticket defer(Work work);
  /// Takes a place in line for work that is not known yet. No work behind the place runs before
  /// that work.
  Ticket reserve();
  /// Puts work at the place, waits until the work has run on a thread in wait(), and returns the
  /// result.
  Status run(const Ticket& place, Work work);
  /// Gives the place up, so that the queue skips it.
  void cancel(const Ticket& place);

  /// Waits for a ticket and returns its result. Meanwhile runs work in line that the worker has not
  /// begun; Entry::wait() leaves such work to the worker.
  Status wait(const Ticket& ticket);
  /// Returns whether the calling thread is running a piece of work. If so, the thread is in a
  /// signal handler or a callback, or has left the work by longjmp; a wait for the queue would then
  /// never end.
  bool runs_here() const {
    return runner_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  /// Returns whether work is in line or running.
  bool busy() const { return state_.load(std::memory_order_acquire) != 0; }
  /// As busy(), but false while only a callback runs.
  bool working() const {
    const std::uint32_t state = state_.load(std::memory_order_seq_cst);
    return state >= kInLine || state == kRunning;
  }

  /// Drops the work that has not begun, and ends the worker. With `wait`, waits until the work that
  /// the worker runs has ended.
  void end(bool wait);

 private:
  enum class By { kCaller, kWorker, kInside };
  // Tickets move from list to list without an allocation, so work that has run cannot fail
  // afterwards.
  using TicketList = std::list<Ticket>;
  // With leave(), costs two atomic read-modify-writes and three stores if nothing is in line.
  bool enter() {
    std::uint32_t idle = 0;
    if (!state_.compare_exchange_strong(idle, kRunning, std::memory_order_acquire)) return false;
    runner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    return true;
  }
  void leave() {
    runner_.store({}, std::memory_order_relaxed);
    count();
    // Clears both bits in one step: with kRunning alone, after a callback, working() would return
    // true.
    const std::uint32_t bits = state_.load(std::memory_order_relaxed) & (kRunning | kCallback);
    if (state_.fetch_sub(bits, std::memory_order_seq_cst) != bits) ring();
  }
  void count() { run_.store(run_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  Ticket enqueue(Work work, Done done, bool for_worker);
  bool may_run(By who) const;
  bool head_is_for(By who, const Entry* waits) const HCCL_REQUIRES(mutex_);
  bool can_run(By who, const Entry* waits = nullptr) const;
  bool run_next(By who, const Entry* waits = nullptr);
  void start();
  void serve();
  void ring();
  void run_to(const Entry& entry);
  void complete_first();
  void complete_all();
  /// What holds up the line, its patience, and the time at which a waiting thread first saw it.
  struct Watch {
    std::uint64_t obstacle = 0;  // see obstacle()
    std::chrono::nanoseconds patience{0};
    std::chrono::steady_clock::time_point since{};
  };
  template <class Also>
  bool sleep(Entry& entry, Watch& watch, Deadline deadline, ProcessDoorbell& bell, Also also);
  bool is_overdue(const Entry& entry, Watch& watch) const;
  std::uint64_t obstacle() const;
  void note_head() HCCL_REQUIRES(mutex_);  // after each change of the head of the line
  TicketList::const_iterator find(const Entry& entry) const HCCL_REQUIRES(mutex_);
  Ticket to_watch() const;
  bool take_out(const Entry& entry);
  void step_out();

  const char* const name_;
  const Bound bound_;
  std::atomic<std::uint64_t> run_{0};  // pieces that have run; only the runner writes it
  // Bits of state_. kRunning: a thread runs work or a callback. kCallback: a callback runs. The
  // bits from kInLine on hold the length of the line.
  static constexpr std::uint32_t kRunning = 1;
  static constexpr std::uint32_t kCallback = 2;
  static constexpr std::uint32_t kInLine = 4;
  std::atomic<std::uint32_t> state_{0};
  std::atomic<std::uint64_t> unfilled_{0};  // the head of the line, as in obstacle()
  std::atomic<bool> started_{false};        // the worker has been started
  std::atomic<bool> ending_{false};
  std::atomic<std::thread::id> runner_{};
  // Only the thread that runs work uses these two.
  const Entry* completing_ = nullptr;  // the entry whose callback runs
  TicketList ended_;                   // entries whose work has run, but no callback yet

  mutable Mutex mutex_{LockLevel::kQueue};
  TicketList line_ HCCL_GUARDED_BY(mutex_);  // ordered by place
  std::uint64_t places_ HCCL_GUARDED_BY(mutex_) = 0;
  Thread worker_ HCCL_GUARDED_BY(mutex_);

  ProcessDoorbell work_bell_;  // the worker sleeps here
  ProcessDoorbell done_bell_;  // callers that wait sleep here
};

class WorkQueue::Entry final : public Request {
 public:
  Status wait(Deadline deadline) override;
  /// Sets the place in line of the work that this entry's callback submits: behind the work
  /// submitted before mark(), ahead of the work submitted after it. Only the first call has an
  /// effect. The callback of a marked entry runs with the program's signal mask.
  void mark() override;

 private:
  friend class WorkQueue;
  WorkQueue* queue_ = nullptr;
  std::shared_ptr<WorkQueue> kept_;
  Work work_;
  bool filled_ = false;
  bool for_worker_ = false;
  bool in_line_ = true;   // the queue's mutex guards it
  bool has_run_ = false;  // only for the thread that runs the work
  std::uint64_t place_ = 0;
  std::atomic<std::uint64_t> mark_{0};
};

}  // namespace hccl
