#include "hccl/base/work_queue.h"

#include <pthread.h>

#include <algorithm>
#include <optional>

#include "hccl/base/caught.h"

namespace hccl {
namespace {

// For waits that end only with an event that rings the bell.
constexpr WaitPolicy kUntilRung{.spin = std::chrono::nanoseconds(0),
                                .longest_nap = std::chrono::nanoseconds::max()};

}  // namespace

// ---- tickets ----

Status WorkQueue::Entry::wait(Deadline deadline) {
  if (queue_->runs_here()) {
    if ((queue_->state_.load() & kCallback) != 0) queue_->run_to(*this);
    if (done()) return {};
    return Status(Code::kPara, "request ends only after the call that waits for it");
  }
  Watch watch;
  while (!done()) {
    if (queue_->sleep(*this, watch, deadline, queue_->done_bell_, [] { return false; })) continue;
    return Status(Code::kTimeout, "timed out: the request is not done");
  }
  return {};
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
  note_head();
  state_.fetch_add(kInLine, std::memory_order_seq_cst);
  return entry;
}

WorkQueue::Ticket WorkQueue::submit(Work work, Done done) {
  start();  // before enqueue(): if start() fails, nothing may be in line
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
    note_head();
  }
  return wait(place);
}

void WorkQueue::cancel(const Ticket& place) {
  if (take_out(*place)) step_out();
}

WorkQueue::TicketList::const_iterator WorkQueue::find(const Entry& entry) const {
  const auto is_it = [&](const Ticket& each) { return each.get() == &entry; };
  return std::find_if(line_.begin(), line_.end(), is_it);
}

// Takes an entry out of the line. step_out() must follow: until then the queue is busy, so its
// owner does not destroy it.
bool WorkQueue::take_out(const Entry& entry) {
  const MutexLock lock(mutex_);
  const auto at = find(entry);
  if (at == line_.end()) return false;
  (*at)->in_line_ = false;
  line_.erase(at);
  note_head();
  return true;
}

void WorkQueue::step_out() {
  state_.fetch_sub(kInLine, std::memory_order_seq_cst);
  ring();
}

void WorkQueue::ring() {
  work_bell_.ring();
  done_bell_.ring();
}

// ---- running ----

// Returns false only if the line is empty or something runs. Takes no lock.
bool WorkQueue::may_run(By who) const {
  const std::uint32_t state = state_.load(std::memory_order_seq_cst);
  return state >= kInLine && (who == By::kInside || (state & kRunning) == 0);
}

// `waits`: the entry for which a caller waits. The caller must not run work behind its entry, which
// may end only after the program has got the entry's result.
bool WorkQueue::head_is_for(By who, const Entry* waits) const {
  return may_run(who) && !line_.empty() && line_.front()->filled_ &&
         (line_.front()->for_worker_ || who != By::kWorker) &&
         (waits == nullptr || waits->in_line_);
}

bool WorkQueue::can_run(By who, const Entry* waits) const {
  if (!may_run(who)) return false;
  const MutexLock lock(mutex_);
  return head_is_for(who, waits);
}

// Runs the head of the line if nothing runs. Returns false if no work could run.
bool WorkQueue::run_next(By who, const Entry* waits) {
  const bool inside = who == By::kInside;
  TicketList next;
  {
    const MutexLock lock(mutex_);
    if (!head_is_for(who, waits)) return false;
    // No thread can enter() here, because the line is not empty.
    next.splice(next.end(), line_, line_.begin());
    next.front()->in_line_ = false;
    note_head();
    state_.fetch_sub(kInLine - (inside ? 0 : kRunning), std::memory_order_seq_cst);
  }
  const Ticket entry = next.front();
  runner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  if (inside) state_.fetch_sub(kCallback);
  entry->status_ = guarded(entry->work_);
  entry->work_ = nullptr;  // frees the work's objects before the work counts as done
  entry->has_run_ = true;
  if (inside) state_.fetch_add(kCallback);
  const bool calls_back = entry->on_done_ != nullptr;
  if (calls_back) ended_.splice(ended_.end(), next);
  if (!inside) complete_all();
  // Without a callback, the entry counts as done only after the queue is idle.
  inside ? count() : leave();
  if (!calls_back) entry->done_.store(true, std::memory_order_release);
  done_bell_.ring();
  return true;
}

bool WorkQueue::run_now(const Work& work, const Done& done) {
  const auto self = weak_from_this().lock();  // the callback may destroy the owner
  const Turn turn(*this);
  if (!turn) return false;
  const Status status = guarded(work);
  state_.fetch_add(kCallback);
  if (done) done(status);
  complete_all();
  return true;
}

// Runs the line up to the entry, then the entry's callback. For Entry::wait() in a callback.
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
  Watch watch;
  while (!ticket->done()) {
    if (run_next(By::kCaller, ticket.get())) continue;
    sleep(*ticket, watch, Deadline::never(), done_bell_,
          [&] { return can_run(By::kCaller, ticket.get()); });
  }
  return ticket->status();
}

// Waits until the entry is done or given up, or until `also` is true. Returns false if the deadline
// has passed.
template <class Also>
bool WorkQueue::sleep(Entry& entry, Watch& watch, Deadline deadline, ProcessDoorbell& bell,
                      Also also) {
  bool overdue = false;
  const auto ready = [&] {
    if (entry.done() || also()) return true;
    overdue = is_overdue(entry, watch);
    return overdue;
  };
  // No bell rings when the patience ends, so a wait with patience wakes every 100 ms to check.
  const WaitPolicy policy = bound_.patience ? kSleepAtOnce : kUntilRung;
  const Waiter waiter{.deadline = deadline, .policy = policy};
  if (waiter.until(ready, bell) != Waited::kReady) return false;
  if (!overdue || !take_out(entry)) return true;
  entry.status_ = guarded(bound_.overdue);
  entry.work_ = nullptr;
  if (entry.on_done_) std::exchange(entry.on_done_, nullptr)(entry.status_);
  entry.done_.store(true, std::memory_order_release);
  step_out();
  return true;
}

bool WorkQueue::is_overdue(const Entry& entry, Watch& watch) const {
  if (!bound_.patience) return false;
  const MutexLock lock(mutex_);
  if (find(entry) == line_.end()) return false;  // then the bound's functions may be gone
  const Watch now{(bound_.of ? bound_.of() : this)->obstacle(), bound_.patience(),
                  std::chrono::steady_clock::now()};
  if (now.obstacle != watch.obstacle || now.patience != watch.patience) watch = now;
  return now.obstacle != 0 && now.patience.count() != 0 && now.since - watch.since > now.patience;
}

// Returns the number of the running piece of work. If none runs, returns the place at the head of
// the line that waits for its work, with the highest bit set; 0: there is neither. Takes no lock: a
// thread that holds another queue's lock may call it.
std::uint64_t WorkQueue::obstacle() const {
  const bool running = (state_.load(std::memory_order_acquire) & kRunning) != 0;
  return running ? run_.load(std::memory_order_relaxed) + 1 : unfilled_.load();
}

void WorkQueue::note_head() {
  constexpr std::uint64_t kPlace = std::uint64_t{1} << 63;
  const bool fine = line_.empty() || line_.front()->filled_;
  unfilled_.store(fine ? 0 : kPlace | line_.front()->place_);
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
  const auto ready = [this] { return ending_.load() || can_run(By::kWorker); };
  Watch watch;
  while (!ending_.load()) {
    if (run_next(By::kWorker)) continue;
    // Watches work that cannot run yet, because the thread that submitted it may not be waiting.
    if (const Ticket next = to_watch(); next != nullptr) {
      sleep(*next, watch, Deadline::never(), work_bell_, ready);
    } else {
      const auto comes = [&] { return ready() || to_watch() != nullptr; };
      static_cast<void>(Waiter{.policy = kUntilRung}.until(comes, work_bell_));
    }
  }
}

// Returns the first work in line for the worker; null: no such work, or no bound.
WorkQueue::Ticket WorkQueue::to_watch() const {
  if (!bound_.patience || state_.load(std::memory_order_seq_cst) < kInLine) return nullptr;
  const MutexLock lock(mutex_);
  const auto is_it = [](const Ticket& each) { return each->for_worker_; };
  const auto found = std::find_if(line_.begin(), line_.end(), is_it);
  return found == line_.end() ? nullptr : *found;
}

void WorkQueue::end(bool wait) {
  TicketList dropped;
  Thread worker;
  {
    const MutexLock lock(mutex_);
    ending_.store(true);
    dropped.swap(line_);
    note_head();
    wait = wait || (state_.load() & kRunning) == 0;
    std::swap(worker, worker_);
  }
  work_bell_.ring();
  dropped.clear();  // from here on, this object may be gone
  if (worker.started() && !wait) worker.detach();
}

}  // namespace hccl
