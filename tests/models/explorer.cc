// The explorer. Threads are fibers of one thread. Before each operation the explorer chooses the
// next thread, and at each load the store that is read. The next execution repeats these choices up
// to the last one that has an alternative, and takes the alternative. So all executions are tried.
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <set>
#include <sstream>

#include "tests/models/model.h"

namespace hccl::model {
namespace {

constexpr std::size_t kMostWords = 64;
constexpr std::size_t kMostThreads = 8;
constexpr std::size_t kStack = std::size_t{256} << 10;
constexpr std::size_t kCell = 64;  // bytes: ranks do not share cache lines

/// For each location the oldest store that may still be read.
struct View {
  std::array<std::uint16_t, kMostWords> from{};
  void join(const View& other) {
    for (std::size_t i = 0; i < kMostWords; ++i) from[i] = std::max(from[i], other.from[i]);
  }
};
/// A vector clock: for each thread, its last operation that is known.
struct Clock {
  std::array<std::uint32_t, kMostThreads> at{};
  void join(const Clock& other) {
    for (std::size_t i = 0; i < kMostThreads; ++i) at[i] = std::max(at[i], other.at[i]);
  }
};
struct Knowledge {
  View view;
  Clock clock;
  void join(const Knowledge& other) {
    view.join(other.view);
    clock.join(other.clock);
  }
};
struct Store {
  std::uint64_t value;
  Knowledge gives;  // knowledge that an acquiring load gets
};
struct Location {
  std::vector<Store> stores;  // in modification order, which is the order of execution
};

/// Thrown in a thread that must not go on.
struct Ended : std::exception {};

enum class State : std::uint8_t { kReady, kSleeping, kPolling, kLocking, kMourning, kDone };

struct Fiber {
  ucontext_t context{};
  void* stack = nullptr;
  bool started = false;
  State state = State::kReady;
  std::uint64_t what = 0;  // the object for which the thread waits
  bool killed = false;
  Knowledge now;       // the thread's knowledge
  Knowledge pending;   // knowledge after an acquire fence
  Knowledge released;  // knowledge at its last release fence
  View light;          // view at its last light fence
};

/// The accesses to the plain bytes of a cache line.
struct Cell {
  std::uint32_t run = 0;
  std::uint32_t writer = 0;
  std::uint32_t written = 0;
  std::array<std::uint32_t, kMostThreads> read{};
};
struct Shared {
  std::uintptr_t begin = 0, end = 0;
  Cell* cells = nullptr;
  std::uint32_t run = 0;  // the last execution that shared this memory
};

struct Choice {
  int chosen;
  int count;
};

bool acquires(Order order) {
  return order == Order::acquire || order == Order::consume || order == Order::acq_rel ||
         order == Order::seq_cst;
}
bool releases(Order order) {
  return order == Order::release || order == Order::acq_rel || order == Order::seq_cst;
}

}  // namespace

std::string name(Order order) {
  switch (order) {
    case Order::relaxed:
      return "relaxed";
    case Order::consume:
    case Order::acquire:
      return "acquire";
    case Order::release:
      return "release";
    case Order::acq_rel:
      return "acq_rel";
    case Order::seq_cst:
      return "seq_cst";
  }
  return "?";
}

std::string Site::text() const {
  const std::string base = file.substr(file.rfind('/') + 1);
  const bool ordered = what == "load" || what == "store" || what == "change" || what == "fence";
  return base + ":" + std::to_string(line) + " " + function + " " + what +
         (ordered ? " " + name(order) : "");
}

class Engine {
 public:
  Outcome explore(const Scenario& scenario, const Bounds& bounds, const Mutation* mutation);

  // ---- operations ----
  std::uint64_t load(Word& word, Order order, const Where& where);
  void store(Word& word, std::uint64_t value, Order order, const Where& where);
  std::uint64_t change(Word& word, Change how, std::uint64_t operand, Order order,
                       const Where& where);
  void fence(Order order, const Where& where);
  void light_fence(const Where& where);
  void heavy_fence(const Where& where);
  void sleep(Word& word, std::uint64_t value);
  void wake_all(Word& word, const Where& where);
  void notify(int fd, const Where& where);
  void await_notified(int fd);
  void forget_notified(int fd) { notified_.erase(fd); }
  void lock(Mutex& mutex);
  void unlock(Mutex& mutex);
  int await_death();
  bool membarrier() const { return world_->membarrier; }
  void check(bool holds, const char* what);
  void access(const void* at, std::size_t bytes, bool write);

 private:
  void run(const Scenario& scenario);
  void begin(const Scenario& scenario);
  void finish();
  static void entry();
  int choose(int count);
  void point();
  void block(State state, std::uint64_t what);
  Fiber* next();
  void switch_to(Fiber& fiber);
  void wake(State state, std::uint64_t what);
  void die();
  void fail(std::string why);
  void judge_standstill();
  Location& at(Word& word);
  /// Applies the mutation if it concerns this operation; false: the operation is left out.
  bool mutate(const char* what, Order& order, const Where& where);
  void publish(Word& word, std::uint64_t value, Order order, const Knowledge* previous);
  Cell* cell(std::uintptr_t at);
  void race(std::uintptr_t at, std::uint32_t other, bool write, bool other_wrote);
  std::size_t self() const { return static_cast<std::size_t>(current_ - fibers_.data()); }
  const World::Thread& of(const Fiber& fiber) const {
    return world_->threads[static_cast<std::size_t>(&fiber - fibers_.data())];
  }
  template <class... Parts>
  void record(const Where* where, const Parts&... parts);

  Bounds bounds_;
  const Mutation* mutation_ = nullptr;
  std::vector<Choice> path_;
  std::size_t depth_ = 0;
  bool record_ = false, trace_ = false;
  std::set<Site> sites_;
  std::ostringstream told_;

  std::unique_ptr<World> world_;
  std::vector<Fiber> fibers_{kMostThreads};
  Fiber* current_ = nullptr;
  ucontext_t main_{};
  bool ending_ = false;
  std::string failure_;
  int preemptions_ = 0, detours_ = 0, stale_ = 0;
  int dead_ = -1;
  std::uint32_t run_ = 0;
  std::vector<Location> locations_;
  std::size_t used_ = 0;
  View seq_cst_;  // by location: the newest store that a seq_cst operation wrote or read
  View fenced_;   // the view at seq_cst fences
  View heavy_;    // the view at heavy fences
  std::set<int> notified_;
  std::vector<Shared> shared_;
};

namespace {
Engine& engine() {
  static Engine only;
  return only;
}
}  // namespace

// ---- executions ----

Outcome Engine::explore(const Scenario& scenario, const Bounds& bounds, const Mutation* mutation) {
  bounds_ = bounds;
  mutation_ = mutation;
  path_.clear();
  sites_.clear();
  record_ = mutation == nullptr;
  Outcome outcome;
  for (;;) {
    run(scenario);
    ++outcome.executions;
    if (!failure_.empty()) break;
    while (!path_.empty() && path_.back().chosen + 1 == path_.back().count) path_.pop_back();
    if (path_.empty()) break;
    if (outcome.executions == bounds.executions) {
      outcome.complete = false;
      break;
    }
    ++path_.back().chosen;
  }
  if (!failure_.empty()) {
    trace_ = true;
    told_.str("");
    run(scenario);
    trace_ = false;
    outcome.failure = failure_;
    outcome.trace = told_.str();
  }
  outcome.sites.assign(sites_.begin(), sites_.end());
  return outcome;
}

void Engine::run(const Scenario& scenario) {
  begin(scenario);
  if (Fiber* first = next(); first != nullptr) {
    current_ = first;
    first->started = true;
    swapcontext(&main_, &first->context);
  }
  finish();
}

void Engine::begin(const Scenario& scenario) {
  ++run_;
  depth_ = 0;
  used_ = 0;
  preemptions_ = bounds_.preemptions;
  detours_ = bounds_.detours;
  stale_ = bounds_.stale;
  dead_ = -1;
  ending_ = false;
  failure_.clear();
  notified_.clear();
  seq_cst_ = fenced_ = heavy_ = View();
  current_ = nullptr;
  world_ = std::make_unique<World>();
  scenario(*world_);
  if (world_->threads.size() > kMostThreads) std::abort();
  for (const auto& [at, bytes] : world_->shared) {
    const auto begin = reinterpret_cast<std::uintptr_t>(at);
    const auto same = std::find_if(shared_.begin(), shared_.end(), [&](const Shared& each) {
      return each.begin == begin && each.end == begin + bytes;
    });
    if (same != shared_.end()) {
      same->run = run_;
      continue;
    }
    const std::size_t size = (bytes / kCell + 2) * sizeof(Cell);
    void* cells = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (cells == MAP_FAILED) std::abort();
    shared_.push_back({begin, begin + bytes, static_cast<Cell*>(cells), run_});
  }
  for (std::size_t i = 0; i < world_->threads.size(); ++i) {
    Fiber& fiber = fibers_[i];
    if (fiber.stack == nullptr) fiber.stack = std::malloc(kStack);
    fiber.started = fiber.killed = false;
    fiber.state = State::kReady;
    fiber.now = fiber.pending = fiber.released = Knowledge();
    fiber.light = View();
    fiber.now.clock.at[i] = 1;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &Engine::entry, 0);
  }
}

// Unwinds the fibers that have not ended.
void Engine::finish() {
  ending_ = true;
  for (std::size_t i = 0; i < world_->threads.size(); ++i) {
    Fiber& fiber = fibers_[i];
    if (!fiber.started || fiber.state == State::kDone) continue;
    current_ = &fiber;
    swapcontext(&main_, &fiber.context);
  }
  current_ = nullptr;
  world_.reset();
}

void Engine::entry() {
  Engine& self = engine();
  try {
    self.of(*self.current_).body();
  } catch (const Ended&) {
    self.current_->killed = true;
  }
  self.current_->state = State::kDone;
  Fiber* const next = self.ending_ ? nullptr : self.next();
  if (next == nullptr) setcontext(&self.main_);
  self.current_ = next;
  next->started = true;
  setcontext(&next->context);
}

int Engine::choose(int count) {
  if (count == 1) return 0;
  if (depth_ == path_.size()) path_.push_back({0, count});
  if (path_[depth_].count != count) {
    std::fprintf(stderr, "explorer: the scenario does not repeat itself\n");
    std::abort();
  }
  return path_[depth_++].chosen;
}

// Called before each operation.
void Engine::point() {
  if (ending_) throw Ended();
  if (!failure_.empty()) {  // a race was found since the last operation
    ending_ = true;
    throw Ended();
  }
  if (preemptions_ > 0) {
    std::array<Fiber*, kMostThreads> others{};
    int count = 0;
    for (std::size_t i = 0; i < world_->threads.size(); ++i) {
      Fiber& fiber = fibers_[i];
      if (&fiber != current_ && fiber.state == State::kReady && !fiber.killed) {
        others[static_cast<std::size_t>(count++)] = &fiber;
      }
    }
    if (const int which = choose(count + 1); which != 0) {
      --preemptions_;
      switch_to(*others[static_cast<std::size_t>(which - 1)]);
    }
  }
  if (dead_ < 0 && of(*current_).rank == world_->mortal && choose(2) == 1) die();
}

// The thread that continues if the current thread cannot; null if there is none.
Fiber* Engine::next() {
  const std::size_t all = world_->threads.size();
  const std::size_t first = current_ == nullptr ? 0 : self() + 1;
  std::array<Fiber*, kMostThreads> ready{};
  int count = 0;
  for (std::size_t i = 0; i < all; ++i) {
    Fiber& fiber = fibers_[(first + i) % all];
    if (fiber.state == State::kReady && !fiber.killed) {
      ready[static_cast<std::size_t>(count++)] = &fiber;
    }
  }
  if (count == 0) {
    judge_standstill();
    return nullptr;
  }
  const int which = detours_ > 0 ? choose(count) : 0;
  if (which != 0) --detours_;
  return ready[static_cast<std::size_t>(which)];
}

void Engine::judge_standstill() {
  for (std::size_t i = 0; i < world_->threads.size(); ++i) {
    const Fiber& fiber = fibers_[i];
    if (fiber.state == State::kDone || fiber.killed || of(fiber).daemon) continue;
    fail(of(fiber).name + " waits for ever");
    return;
  }
}

void Engine::switch_to(Fiber& fiber) {
  Fiber* const from = current_;
  current_ = &fiber;
  fiber.started = true;
  swapcontext(&from->context, &fiber.context);
  if (ending_) throw Ended();
}

void Engine::block(State state, std::uint64_t what) {
  current_->state = state;
  current_->what = what;
  Fiber* const other = next();
  if (other == current_) return;
  if (other != nullptr) return switch_to(*other);
  Fiber* const from = current_;
  swapcontext(&from->context, &main_);
  throw Ended();
}

void Engine::wake(State state, std::uint64_t what) {
  for (Fiber& fiber : fibers_) {
    if (fiber.state == state && fiber.what == what) fiber.state = State::kReady;
  }
}

void Engine::die() {
  dead_ = of(*current_).rank;
  record(nullptr, "dies");
  for (std::size_t i = 0; i < world_->threads.size(); ++i) {
    if (&fibers_[i] != current_ && of(fibers_[i]).rank == dead_) fibers_[i].killed = true;
  }
  wake(State::kMourning, 0);
  throw Ended();
}

void Engine::fail(std::string why) {
  if (failure_.empty()) failure_ = std::move(why);
  if (trace_) told_ << "   => " << failure_ << "\n";
}

void Engine::check(bool holds, const char* what) {
  if (holds) return;
  fail(of(*current_).name + ": " + what);
  ending_ = true;
  throw Ended();
}

template <class... Parts>
void Engine::record(const Where* where, const Parts&... parts) {
  if (!trace_) return;
  told_ << "   " << of(*current_).name << ": ";
  (told_ << ... << parts);
  if (where != nullptr) {
    const std::string file = where->file_name();
    told_ << "   " << file.substr(file.rfind('/') + 1) << ":" << where->line();
  }
  told_ << "\n";
}

// ---- memory ----

Location& Engine::at(Word& word) {
  if (word.run != run_) {
    if (used_ == kMostWords) std::abort();
    if (used_ == locations_.size()) locations_.emplace_back();
    word.run = run_;
    word.id = static_cast<std::uint32_t>(used_++);
    locations_[word.id].stores.assign(1, {word.first, {}});
  }
  return locations_[word.id];
}

bool Engine::mutate(const char* what, Order& order, const Where& where) {
  if (record_) {
    const std::string function = where.function_name();
    // The short name: the part before the first parenthesis, without class and template.
    std::string shorter = function.substr(0, function.find('('));
    shorter = shorter.substr(shorter.find_last_of(" :") + 1);
    sites_.insert({where.file_name(), shorter, where.line(), where.column(), what, order});
  }
  if (mutation_ == nullptr || mutation_->site.line != where.line() ||
      mutation_->site.column != where.column() || mutation_->site.file != where.file_name()) {
    return true;
  }
  order = mutation_->order;
  return !mutation_->left_out;
}

std::uint64_t Engine::load(Word& word, Order order, const Where& where) {
  point();
  mutate("load", order, where);
  Location& location = at(word);
  Knowledge& now = current_->now;
  std::uint16_t from = now.view.from[word.id];
  if (order == Order::seq_cst) {
    from = std::max({from, seq_cst_.from[word.id], fenced_.from[word.id]});
  }
  const auto last = static_cast<std::uint16_t>(location.stores.size() - 1);
  int older = 0;
  if (stale_ > 0 && from != last) older = choose(last - from + 1);
  if (older != 0) --stale_;
  const auto read = static_cast<std::uint16_t>(last - older);
  now.view.from[word.id] = std::max(now.view.from[word.id], read);
  if (order == Order::seq_cst) {
    seq_cst_.from[word.id] = std::max(seq_cst_.from[word.id], read);
  }
  const Store& store = location.stores[read];
  (acquires(order) ? now : current_->pending).join(store.gives);
  record(&where, "load w", word.id, " = ", store.value, " (", name(order),
         older == 0 ? ")" : ", an older store)");
  return store.value;
}

void Engine::publish(Word& word, std::uint64_t value, Order order, const Knowledge* previous) {
  Location& location = at(word);
  const auto index = static_cast<std::uint16_t>(location.stores.size());
  current_->now.view.from[word.id] = index;
  if (order == Order::seq_cst) seq_cst_.from[word.id] = index;
  Store store{value, releases(order) ? current_->now : current_->released};
  if (previous != nullptr) store.gives.join(*previous);
  location.stores.push_back(std::move(store));
  ++current_->now.clock.at[self()];
}

void Engine::store(Word& word, std::uint64_t value, Order order, const Where& where) {
  point();
  if (!mutate("store", order, where)) return record(&where, "store left out");
  at(word);
  record(&where, "store w", word.id, " = ", value, " (", name(order), ")");
  publish(word, value, order, nullptr);
}

std::uint64_t Engine::change(Word& word, Change how, std::uint64_t operand, Order order,
                             const Where& where) {
  point();
  const bool does = mutate("change", order, where);
  Location& location = at(word);
  const Store before = location.stores.back();
  if (!does) {
    record(&where, "change left out");
    return before.value;
  }
  (acquires(order) ? current_->now : current_->pending).join(before.gives);
  const std::uint64_t value = how(before.value, operand);
  record(&where, "change w", word.id, " from ", before.value, " to ", value, " (", name(order),
         ")");
  publish(word, value, order, &before.gives);
  return before.value;
}

void Engine::fence(Order order, const Where& where) {
  point();
  if (!mutate("fence", order, where)) return record(&where, "fence left out");
  record(&where, "fence (", name(order), ")");
  Knowledge& now = current_->now;
  if (acquires(order)) now.join(current_->pending);
  if (order == Order::seq_cst) {
    now.view.join(seq_cst_);
    now.view.join(fenced_);
    fenced_.join(now.view);
  }
  if (releases(order)) {
    current_->released = now;
    ++now.clock.at[self()];
  }
}

// A light fence and a heavy fence act on each other like two seq_cst fences. Two light fences have
// no effect on each other.
void Engine::light_fence(const Where& where) {
  point();
  Order order{};
  if (!mutate("light fence", order, where)) return record(&where, "light fence left out");
  record(&where, "light fence");
  current_->now.view.join(heavy_);
  current_->light = current_->now.view;
}

void Engine::heavy_fence(const Where& where) {
  point();
  Order order{};
  if (!mutate("heavy fence", order, where)) return record(&where, "heavy fence left out");
  if (!world_->membarrier) return record(&where, "heavy fence, which the kernel has not");
  record(&where, "heavy fence");
  Knowledge& now = current_->now;
  now.join(current_->pending);
  now.view.join(seq_cst_);
  now.view.join(fenced_);
  for (std::size_t i = 0; i < world_->threads.size(); ++i) now.view.join(fibers_[i].light);
  fenced_.join(now.view);
  heavy_.join(now.view);
  current_->released = now;
  ++now.clock.at[self()];
}

// ---- waiting ----

// The kernel compares `value` with the newest store, and orders no other access.
void Engine::sleep(Word& word, std::uint64_t value) {
  point();
  const std::uint64_t there = at(word).stores.back().value;
  record(nullptr, there == value ? "sleeps at w" : "does not sleep at w", word.id);
  if (there == value) block(State::kSleeping, word.id);
}

void Engine::wake_all(Word& word, const Where& where) {
  point();
  Order order{};
  if (!mutate("wake", order, where)) return record(&where, "wake left out");
  at(word);
  record(&where, "wakes all at w", word.id);
  wake(State::kSleeping, word.id);
}

void Engine::notify(int fd, const Where& where) {
  point();
  Order order{};
  if (!mutate("wake", order, where)) return record(&where, "notification left out");
  record(&where, "notifies ", fd);
  notified_.insert(fd);
  wake(State::kPolling, static_cast<std::uint64_t>(fd));
}

void Engine::await_notified(int fd) {
  point();
  record(nullptr, "polls ", fd);
  if (!notified_.contains(fd)) block(State::kPolling, static_cast<std::uint64_t>(fd));
}

int Engine::await_death() {
  point();
  if (dead_ < 0) block(State::kMourning, 0);
  return dead_;
}

void Engine::lock(Mutex& mutex) {
  point();
  at(mutex.word_);
  while (mutex.held_) block(State::kLocking, mutex.word_.id);
  mutex.held_ = true;
  current_->now.join(locations_[mutex.word_.id].stores.back().gives);
}

void Engine::unlock(Mutex& mutex) {
  mutex.held_ = false;
  if (ending_ || current_ == nullptr) return;
  publish(mutex.word_, 0, Order::release, nullptr);
  wake(State::kLocking, mutex.word_.id);
}

// ---- plain accesses ----

Cell* Engine::cell(std::uintptr_t at) {
  for (const Shared& each : shared_) {
    if (each.run != run_ || at < each.begin || at >= each.end) continue;
    Cell* const found = each.cells + (at - each.begin) / kCell;
    if (found->run != run_) *found = Cell{run_};
    return found;
  }
  return nullptr;
}

void Engine::access(const void* at, std::size_t bytes, bool write) {
  if (current_ == nullptr || ending_ || bytes == 0) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  const std::size_t me = self();
  const Clock& clock = current_->now.clock;
  for (std::uintptr_t place = begin / kCell * kCell; place < begin + bytes; place += kCell) {
    Cell* const here = cell(std::max(place, begin));
    if (here == nullptr) return;
    if (here->written > clock.at[here->writer]) race(place, here->writer, write, true);
    if (!write) {
      here->read[me] = clock.at[me];
      continue;
    }
    for (std::uint32_t other = 0; other < kMostThreads; ++other) {
      if (here->read[other] > clock.at[other]) race(place, other, write, false);
    }
    here->writer = static_cast<std::uint32_t>(me);
    here->written = clock.at[me];
  }
}

void Engine::race(std::uintptr_t at, std::uint32_t other, bool write, bool other_wrote) {
  for (const Shared& each : shared_) {
    if (each.run != run_ || at + kCell <= each.begin || at >= each.end) continue;
    fail("data race at byte " + std::to_string(std::max(at, each.begin) - each.begin) +
         " of shared memory: " + of(*current_).name + (write ? " writes" : " reads") + " what " +
         of(fibers_[other]).name + (other_wrote ? " writes" : " reads"));
  }
}

// ---- the functions of the policy ----

void check(bool holds, const char* what) { engine().check(holds, what); }
int await_death() { return engine().await_death(); }
void await_notified(int fd) { engine().await_notified(fd); }
void forget_notified(int fd) { engine().forget_notified(fd); }
Outcome explore(const Scenario& scenario, const Bounds& bounds, const Mutation* mutation) {
  return engine().explore(scenario, bounds, mutation);
}
std::uint64_t load(Word& word, Order order, const Where& where) {
  return engine().load(word, order, where);
}
void store(Word& word, std::uint64_t value, Order order, const Where& where) {
  engine().store(word, value, order, where);
}
std::uint64_t change(Word& word, Change how, std::uint64_t operand, Order order,
                     const Where& where) {
  return engine().change(word, how, operand, order, where);
}
void fence(Order order, const Where& where) { engine().fence(order, where); }
void light_fence(const Where& where) { engine().light_fence(where); }
void heavy_fence(const Where& where) { engine().heavy_fence(where); }
bool has_membarrier() { return engine().membarrier(); }
void sleep(Word& word, std::uint64_t value) { engine().sleep(word, value); }
void wake_all(Word& word, const Where& where) { engine().wake_all(word, where); }
void notify(int fd, const Where& where) { engine().notify(fd, where); }
void Mutex::lock() { engine().lock(*this); }
void Mutex::unlock() noexcept { engine().unlock(*this); }

}  // namespace hccl::model

// ---- the functions that the compiler's instrumentation for the thread sanitizer calls ----
// The code under test is compiled with -fsanitize=thread but linked with these functions instead of
// the sanitizer, so that the explorer sees its plain accesses. The code's real atomics do not
// concern the ranks. These functions must not throw: a race ends the execution later.

#define HCCL_PLAIN(size)                                                                        \
  void __tsan_read##size(void* at) { hccl::model::engine().access(at, size, false); }           \
  void __tsan_write##size(void* at) { hccl::model::engine().access(at, size, true); }           \
  void __tsan_unaligned_read##size(void* at) { hccl::model::engine().access(at, size, false); } \
  void __tsan_unaligned_write##size(void* at) { hccl::model::engine().access(at, size, true); }

#define HCCL_REAL_ATOMIC(bits, type)                                \
  type __tsan_atomic##bits##_load(const type* at, int) {            \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                   \
  }                                                                 \
  void __tsan_atomic##bits##_store(type* at, type value, int) {     \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                  \
  }                                                                 \
  type __tsan_atomic##bits##_exchange(type* at, type value, int) {  \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);        \
  }                                                                 \
  type __tsan_atomic##bits##_fetch_add(type* at, type value, int) { \
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);         \
  }                                                                 \
  type __tsan_atomic##bits##_fetch_sub(type* at, type value, int) { \
    return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST);         \
  }

extern "C" {
HCCL_PLAIN(1)
HCCL_PLAIN(2)
HCCL_PLAIN(4)
HCCL_PLAIN(8)
HCCL_PLAIN(16)
void __tsan_read_range(void* at, std::size_t bytes) {
  hccl::model::engine().access(at, bytes, false);
}
void __tsan_write_range(void* at, std::size_t bytes) {
  hccl::model::engine().access(at, bytes, true);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
HCCL_REAL_ATOMIC(8, char)
HCCL_REAL_ATOMIC(32, int)
HCCL_REAL_ATOMIC(64, long)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

// Does nothing: the shared memory has all its pages. (The linker replaces the system call by this
// function.)
int __wrap_madvise(void*, std::size_t, int) { return 0; }
// With -fno-builtin-memcpy copies are calls and not accesses: the linker replaces memcpy by this
// function.
void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  hccl::model::engine().access(from, bytes, false);
  hccl::model::engine().access(to, bytes, true);
  return __real_memcpy(to, from, bytes);
}
}
