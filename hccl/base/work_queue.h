// An ordered queue of work, one piece at a time. A caller that waits, or the queue's worker thread,
// runs it.
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
/// tickets keep the queue alive: a callback may destroy the queue's other owner, which calls end().
class WorkQueue : public std::enable_shared_from_this<WorkQueue> {
 public:
  using Work = std::function<Status()>;
  using Done = Request::Done;
  class Entry;
  using Ticket = std::shared_ptr<Entry>;

  /// The limit after which work in line is given up. Work never ends if its thread has died, or has
  /// left the work by longjmp. If one piece has run in the queue `of` for longer than `patience`
  /// (0, or none: no limit), a thread that waits for work in line, or the worker, gives that work
  /// up. The result of the work is then `overdue`. The functions and the queue `of` must stay valid
  /// while work is in line.
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

  /// The right to run work now. It is given if nothing else is in line, which is the usual case.
  /// False: the caller has to defer().
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
  /// `done` runs after the work on the same thread, and does not throw. The callback may submit
  /// work and wait with tickets of this queue: Entry::wait() then runs the line up to the ticket,
  /// and the ticket's callback. The callbacks of the other work run later. If the callback's ticket
  /// has a mark(), the work that the callback submits comes at the mark, else at the end.
  Ticket submit(Work work, Done done = {});
  /// Runs both now, on this thread, if nothing is in line before them. False: nothing was run.
  bool run_now(const Work& work, const Done& done);
  /// Puts the work in line for the caller, which must wait for it; the worker leaves the work
  /// alone.
  Ticket defer(Work work);
  /// Takes a place in line for work that comes later; nothing behind the place runs before it.
  Ticket reserve();
  /// Fills the place, and runs the work on the caller's thread when it is the first in line.
  Status run(const Ticket& place, Work work);
  /// Gives the place up, so that the queue skips it.
  void cancel(const Ticket& place);

  /// Returns the result of a ticket. Runs work that the worker has not begun; Entry::wait() leaves
  /// that work to the worker.
  Status wait(const Ticket& ticket);
  /// Whether the calling thread runs a piece of work. Then a call from here comes from a signal
  /// handler, from a callback, or after a longjmp, and would wait for itself.
  bool runs_here() const {
    return runner_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  /// Whether work is in line or running.
  bool busy() const { return state_.load(std::memory_order_acquire) != 0; }
  /// As busy(), but does not count callbacks and work on a Turn.
  bool working() const {
    const std::uint32_t state = state_.load(std::memory_order_seq_cst);
    return state >= kInLine || state == kRunning;
  }

  /// Drops the work that has not begun, and ends the worker. If `wait` is set and another thread
  /// runs work, waits for that work.
  void end(bool wait);

 private:
  enum class By { kCaller, kWorker, kInside };
  // Tickets move from list to list without an allocation, so finished work cannot fail.
  using TicketList = std::list<Ticket>;
  // Costs two atomic operations and two stores if nothing else is in line.
  bool enter() {
    std::uint32_t idle = 0;
    if (!state_.compare_exchange_strong(idle, kRunning, std::memory_order_acquire)) return false;
    runner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    return true;
  }
  void leave() {
    runner_.store({}, std::memory_order_relaxed);
    count();
    // One step, because working() must not see work after a callback.
    const std::uint32_t bits = state_.load(std::memory_order_relaxed) & (kRunning | kCallback);
    if (state_.fetch_sub(bits, std::memory_order_seq_cst) != bits) ring();
  }
  void count() { run_.store(run_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  Ticket enqueue(Work work, Done done, bool for_worker);
  bool may_run(By who) const;
  bool head_is_for(By who) const HCCL_REQUIRES(mutex_);
  bool can_run(By who) const;
  bool run_next(By who);
  void start();
  void serve();
  void ring();
  void run_to(const Entry& entry);
  void complete_first();
  void complete_all();
  /// The running piece, the time since it has been seen, and its patience.
  struct Watch {
    std::uint64_t piece = 0;  // number of the running piece; 0: none
    std::chrono::nanoseconds patience{0};
    std::chrono::steady_clock::time_point since{};
  };
  template <class Also>
  bool sleep(Entry& entry, Watch& watch, Deadline deadline, ProcessDoorbell& bell, Also also);
  bool is_overdue(const Entry& entry, Watch& watch) const;
  std::uint64_t piece() const;
  TicketList::const_iterator find(const Entry& entry) const HCCL_REQUIRES(mutex_);
  Ticket to_watch() const;
  bool take_out(const Entry& entry);
  void step_out();

  const char* const name_;
  const Bound bound_;
  std::atomic<std::uint64_t> run_{0};  // pieces that have run; only the runner writes it
  // Bits of state_: something runs; a callback runs. The bits above them are the length of the
  // line.
  static constexpr std::uint32_t kRunning = 1;
  static constexpr std::uint32_t kCallback = 2;
  static constexpr std::uint32_t kInLine = 4;
  std::atomic<std::uint32_t> state_{0};
  std::atomic<bool> started_{false};  // the worker has been started
  std::atomic<bool> ending_{false};
  std::atomic<std::thread::id> runner_{};
  // Used by the running thread.
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
  bool has_run_ = false;  // only for the thread that runs the work
  std::uint64_t place_ = 0;
  std::atomic<std::uint64_t> mark_{0};
};

}  // namespace hccl
