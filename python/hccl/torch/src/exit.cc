#include "exit.h"

#include <torch/csrc/python_headers.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "error.h"
#include "work.h"

namespace hccl::pytorch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The time that the running operations of all groups together get at the end of the program.
constexpr milliseconds kGraceAtExit{5'000};
// If a callback still runs after that time, it gets this much more.
constexpr milliseconds kGrace{2'000};

struct Member {
  std::weak_ptr<Communicator> communicator;
  ForkGuard fork;
};

struct Members {
  std::mutex mutex;
  std::vector<Member> all;
  std::vector<std::shared_ptr<Communicator>> ending;  // has room for all; end_groups fills it
};

Members& members() {
  static auto* const all = new Members;  // threads outlive statics
  return *all;
}

std::atomic<bool> begun = false;
std::atomic<bool> ended = false;
std::thread::id ender;  // written before `begun`

void add_living(std::vector<std::shared_ptr<Communicator>>& living) {
  const std::lock_guard lock(members().mutex);
  for (const Member& each : members().all) {
    auto communicator = each.fork.in_child() ? nullptr : each.communicator.lock();
    if (communicator) living.push_back(std::move(communicator));
  }
}

}  // namespace

void end_before_python(const std::shared_ptr<Communicator>& communicator) {
  const std::lock_guard lock(members().mutex);
  std::erase_if(members().all, [](const Member& each) { return each.communicator.expired(); });
  if (!begun) members().ending.reserve(members().all.size() + 1);  // end_groups() must not allocate
  members().all.push_back({communicator, {}});
}

std::vector<std::shared_ptr<Communicator>> living_communicators() {
  std::vector<std::shared_ptr<Communicator>> living;
  add_living(living);
  return living;
}

void synchronize() {
  if (Work::calls_back()) return;
  for (const auto& each : living_communicators()) each->drain(milliseconds(0));
}

void end_groups(bool failed) noexcept {
  ender = std::this_thread::get_id();
  begun = true;
  auto& living = members().ending;
  add_living(living);
  const auto deadline = steady_clock::now() + (failed ? milliseconds(0) : kGraceAtExit);
  for (const auto& each : living) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    each->drain(std::max(left, milliseconds(1)));
  }
  ended = true;
  for (const auto& each : living) {
    each->end(milliseconds(1), kGrace,
              failed ? "an exception ended its program" : "its program ended while operations ran");
  }
  living.clear();
}

bool program_ends() noexcept { return begun.load(std::memory_order_relaxed); }

bool python_ends() noexcept { return ended.load(std::memory_order_acquire); }

void sleep_if_late() noexcept {
  if (!begun.load(std::memory_order_acquire) || ender == std::this_thread::get_id()) return;
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) return;  // others need this thread's lock
  for (;;) ::pause();
}

}  // namespace hccl::pytorch
