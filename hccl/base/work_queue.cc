#include "hccl/base/work_queue.h"

#include <pthread.h>

#include <algorithm>
#include <optional>

#include "hccl/base/caught.h"

namespace hccl {
namespace {

// Everything that these waits are for rings.
constexpr WaitPolicy kUntilRung{.spin = std::chrono::nanoseconds(0),
                                .longest_nap = std::chrono::nanoseconds::max()};

Status result_of(const WorkQueue::Work& work) {
  try {
    return work();
  } catch (...) {
    return caught();
  }
}

}  // namespace

// ---- tickets ----

Status WorkQueue::Entry::wait(Deadline deadline) {
  if (queue_->runs_here()) {
    if ((queue_->state_.load() & kCallback) != 0) queue_->run_to(*this);
    if (done()) return {};
    return Status(Code::kPara, "request ends behind the call that waits for it");
  }
  const Waiter waiter{.deadline = deadline, .policy = kUntilRung};
  if (waiter.until([this] { return done(); }, queue_->done_bell_) == Waited::kReady) return {};
  return Status(Code::kTimeout, "timed out: the request is not done");
}

void WorkQueue::Entry::mark() {
  const MutexLock lock(queue_->mutex_);
  if (mark_.load() == 0) mark_.store(++queue_->places_);
}

// ---- the line ----

WorkQueue::Ticket WorkQueue::enqueue(Work work, Done done, bool for_worker) {
  auto entry = std::make_shared<Entry>();
  entry->queue_ = this;
  entry->kept_ = weak_from_this().lock();
  entry->filled_ = work != nullptr;
  entry->work_ = std::move(work);
  entry->on_done_ = std::move(done);
  entry->for_worker_ = for_worker;
  if (runs_here() && completing_ != nullptr) entry->place_ = completing_->mark_.load();
  const MutexLock lock(mutex_);
  if (entry->place_ == 0) {
    entry->place_ = ++places_;
    line_.push_back(entry);
  } else {
    const auto before = [&](const Ticket& each) { return each->place_ <= entry->place_; };
    line_.insert(std::find_if(line_.rbegin(), line_.rend(), before).base(), entry);
  }
  state_.fetch_add(kInLine, std::memory_order_seq_cst);
  return entry;
}

WorkQueue::Ticket WorkQueue::submit(Work work, Done done) {
  start();  // first, as it may fail, and what is in line must be run
  Ticket entry = enqueue(std::move(work), std::move(done), true);
  work_bell_.ring();
  return entry;
}

WorkQueue::Ticket WorkQueue::defer(Work work) { return enqueue(std::move(work), {}, false); }

WorkQueue::Ticket WorkQueue::reserve() { return enqueue(nullptr, {}, false); }

Status WorkQueue::run(const Ticket& place, Work work) {
  {
    const MutexLock lock(mutex_);
    place->work_ = std::move(work);
    place->filled_ = true;
  }
  return wait(place);
}

void WorkQueue::cancel(const Ticket& place) {
  if (take_out(place)) ring();
}

bool WorkQueue::take_out(const Ticket& ticket) {
  const MutexLock lock(mutex_);
  const auto at = std::find(line_.begin(), line_.end(), ticket);
  if (at == line_.end()) return false;
  line_.erase(at);
  state_.fetch_sub(kInLine, std::memory_order_seq_cst);
  return true;
}

void WorkQueue::ring() {
  work_bell_.ring();
  done_bell_.ring();
}

// ---- running ----

// Without the lock: false only if the line is empty or something runs.
bool WorkQueue::may_run(By who) const {
  const std::uint32_t state = state_.load(std::memory_order_seq_cst);
  return state >= kInLine && (who == By::kInside || (state & kRunning) == 0);
}

bool WorkQueue::head_is_for(By who) const {
  return may_run(who) && !line_.empty() && line_.front()->filled_ &&
         (line_.front()->for_worker_ || who != By::kWorker);
}

bool WorkQueue::can_run(By who) const {
  if (!may_run(who)) return false;
  const MutexLock lock(mutex_);
  return head_is_for(who);
}

// Runs the head of the line if nothing runs. False if there was nothing to do.
bool WorkQueue::run_next(By who) {
  const bool inside = who == By::kInside;
  Line next;
  {
    const MutexLock lock(mutex_);
    if (!head_is_for(who)) return false;
    // enter() succeeds only while the line is empty, which it is not.
    next.splice(next.end(), line_, line_.begin());
    state_.fetch_sub(kInLine - (inside ? 0 : kRunning), std::memory_order_seq_cst);
  }
  const Ticket entry = next.front();
  runner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  if (inside) state_.fetch_sub(kCallback);
  entry->status_ = result_of(entry->work_);
  entry->work_ = nullptr;  // what it refers to is free when it counts as done
  entry->has_run_ = true;
  if (inside) state_.fetch_add(kCallback);
  const bool calls_back = entry->on_done_ != nullptr;
  if (calls_back) ended_.splice(ended_.end(), next);
  if (!inside) complete_all();
  run_.fetch_add(1, std::memory_order_relaxed);
  // An entry without a callback is not done before the queue is not busy any more.
  if (!inside) leave();
  if (!calls_back) entry->done_.store(true, std::memory_order_release);
  done_bell_.ring();
  return true;
}

bool WorkQueue::run_now(const Work& work, const Done& done) {
  const auto self = weak_from_this().lock();  // the callback may destroy the owner
  const Turn turn(*this);
  if (!turn) return false;
  const Status status = result_of(work);
  state_.fetch_add(kCallback);
  if (done) done(status);
  complete_all();
  return true;
}

// For a callback.
void WorkQueue::run_to(const Entry& entry) {
  while (!entry.has_run_ && run_next(By::kInside)) {
  }
  const auto is_it = [&](const Ticket& each) { return each.get() == &entry; };
  const auto found = std::find_if(ended_.begin(), ended_.end(), is_it);
  if (found == ended_.end()) return;
  ended_.splice(ended_.begin(), ended_, found);
  complete_first();
}

void WorkQueue::complete_first() {
  const Ticket entry = std::move(ended_.front());
  ended_.pop_front();
  const Entry* const outer = std::exchange(completing_, entry.get());
  {
    std::optional<ProgramMask> mask;
    if (entry->mark_.load() != 0) mask.emplace();
    std::exchange(entry->on_done_, nullptr)(entry->status_);
  }
  completing_ = outer;
  entry->done_.store(true, std::memory_order_release);
  done_bell_.ring();
}

void WorkQueue::complete_all() {
  if (!ended_.empty()) state_.fetch_or(kCallback);
  while (!ended_.empty()) complete_first();
}

Status WorkQueue::wait(const Ticket& ticket) {
  while (!ticket->done()) {
    if (run_next(By::kCaller)) continue;
    const auto since = std::chrono::steady_clock::now();
    const std::uint64_t run_before = run_.load(std::memory_order_relaxed);
    bool overdue = false;
    const auto ready = [&] {
      if (ticket->done() || can_run(By::kCaller)) return true;
      return overdue = is_overdue(since, run_before);
    };
    const WaitPolicy policy = bound_.patience ? kSleepAtOnce : kUntilRung;  // nothing rings in time
    static_cast<void>(Waiter{.policy = policy}.until(ready, done_bell_));
    if (!overdue || !take_out(ticket)) continue;
    ticket->status_ = bound_.overdue();
    if (ticket->on_done_) std::exchange(ticket->on_done_, nullptr)(ticket->status_);
    ticket->done_.store(true, std::memory_order_release);
    ring();
  }
  return ticket->status();
}

bool WorkQueue::is_overdue(std::chrono::steady_clock::time_point since,
                           std::uint64_t run_before) const {
  if (!bound_.patience) return false;
  const bool same_runs = (state_.load(std::memory_order_acquire) & kRunning) != 0 &&
                         run_.load(std::memory_order_relaxed) == run_before;
  const auto patience = bound_.patience();
  return same_runs && patience.count() != 0 && std::chrono::steady_clock::now() - since > patience;
}

// ---- the worker ----

void WorkQueue::start() {
  if (started_.load(std::memory_order_relaxed)) return;
  const MutexLock lock(mutex_);
  if (worker_.started() || ending_.load()) return;
  worker_ = Thread("hccl-queue", [this, self = weak_from_this().lock()] { serve(); });
  started_.store(true, std::memory_order_relaxed);
}

void WorkQueue::serve() {
  pthread_setname_np(pthread_self(), name_);
  while (!ending_.load()) {
    if (run_next(By::kWorker)) continue;
    const auto ready = [this] { return ending_.load() || can_run(By::kWorker); };
    static_cast<void>(Waiter{.policy = kUntilRung}.until(ready, work_bell_));
  }
}

void WorkQueue::end(bool wait) {
  Line dropped;
  Thread worker;
  {
    const MutexLock lock(mutex_);
    ending_.store(true);
    dropped.swap(line_);
    wait = wait || (state_.load() & kRunning) == 0;
    std::swap(worker, worker_);
  }
  work_bell_.ring();
  dropped.clear();  // this object may be gone
  if (worker.started() && !wait) worker.detach();
}

}  // namespace hccl
