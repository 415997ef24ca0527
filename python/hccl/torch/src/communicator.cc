#include "communicator.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "error.h"
#include "interpreter.h"
#include "interrupt.h"
#include "joining.h"

namespace hccl::pytorch {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

using std::chrono::milliseconds;

// How long the thread waits for other ranks before it looks at signals and at the store again.
constexpr milliseconds kLook{100};
constexpr milliseconds kLookAtStore{1000};

// torchrun restarts ranks with the store of the earlier attempt. So rank 0 removes the key when all
// ranks have joined. If ranks die before that, the key remains, but the next attempt has another
// number in its key. With several hosts the number is always 0, because the hosts' agents may count
// different attempts. Then a rank may find the root info of a dead rank 0.
std::string root_info_key() {
  const bool one_host = environment("LOCAL_WORLD_SIZE") == environment("WORLD_SIZE");
  const std::string attempt = environment("TORCHELASTIC_RESTART_COUNT");
  return "hccl/" + (one_host && !attempt.empty() ? attempt : "0");
}

using Bytes = std::vector<uint8_t>;

// Stores the reason why there is no root info. The other ranks recognize the reason by its size.
void give_up(c10d::Store& store, const std::string& key, const std::string& why) {
  store.set(key, Bytes(why.begin(), why.end()));
}

HcclRootInfo make_root_info(c10d::Store& store, const std::string& key) {
  HcclRootInfo info{};
  const HcclResult result = HcclGetRootInfo(&info);
  if (result != HCCL_SUCCESS) give_up(store, key, failure_text(result, "root info"));
  check(result, "root info");
  store.set(key, Bytes(info.internal, info.internal + sizeof info.internal));
  return info;
}

using TimePoint = std::chrono::steady_clock::time_point;

// Waits until the store has all keys. Returns false if a key is still missing at `end`. Ctrl-C ends
// the wait.
bool wait_for(c10d::Store& store, const std::vector<std::string>& keys, TimePoint end) {
  for (;;) {
    run_signal_handlers();
    const auto begin = std::chrono::steady_clock::now();
    const auto left = std::chrono::ceil<milliseconds>(end - begin);
    const auto limit = std::clamp(left, milliseconds(1), kLookAtStore);
    try {
      store.wait(keys, limit);
      return true;
    } catch (const c10::Error&) {  // stores differ in the type of their timeouts
      if (std::chrono::steady_clock::now() - begin < limit) throw;
    } catch (const pybind11::error_already_set& error) {  // from a store that is written in Python
      const pybind11::gil_scoped_acquire interpreter;
      if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C
      if (std::chrono::steady_clock::now() - begin < limit) throw;
    }
    if (left <= kLookAtStore) return false;
  }
}

void forget(c10d::Store& store, const std::string& key) noexcept {
  try {
    store.deleteKey(key);
  } catch (const std::exception&) {  // a user's own store may lack deleteKey
  }
}

HcclRootInfo decode(const Bytes& bytes) {
  HcclRootInfo info;
  TORCH_CHECK_WITH(
      DistBackendError, bytes.size() == sizeof info.internal,
      "hccl: rank 0 of the group cannot be joined: ", std::string(bytes.begin(), bytes.end()));
  std::memcpy(info.internal, bytes.data(), sizeof info.internal);
  return info;
}

constexpr const char* kInit = "init_process_group";

Joining::Call join(const HcclRootInfo& info, int size, int rank) {
  return [=](HcclComm* comm) {
    return HcclCommInitRootInfo(static_cast<uint32_t>(size), &info, static_cast<uint32_t>(rank),
                                comm);
  };
}

// Before they join, rank 0 waits in the store until all ranks have come, and the other ranks wait
// for its root info. So the timeout of the group limits the wait for late ranks, and not
// HCCL_CONNECT_TIMEOUT.
class Meeting {
 public:
  Meeting(c10d::Store& store, const std::string& key, int rank, int size, milliseconds timeout)
      : store_(store), timeout_(timeout), own_(key + "/" + std::to_string(rank)) {
    for (int each = 0; each < size; ++each) keys_.push_back(key + "/" + std::to_string(each));
    store.set(own_, Bytes{1});
  }
  // The rank has joined, or gives up.
  ~Meeting() { forget(store_, own_); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  void await_all() { await(keys_); }
  void await(const std::vector<std::string>& keys) {
    if (keys_.size() == 1 || wait_for(store_, keys, end_)) return;
    TORCH_CHECK_WITH(DistBackendError, false, "hccl: ", kInit, ": absent after ",
                     timeout_.count() / 1000.0, " s, the timeout of the process group: ", absent());
  }

 private:
  std::string absent() noexcept try {
    std::string ranks;
    for (size_t rank = 0; rank < keys_.size(); ++rank) {
      if (store_.check({keys_[rank]})) continue;
      ranks += (ranks.empty() ? "rank " : ", ") + std::to_string(rank);
    }
    return ranks + " of " + std::to_string(keys_.size());
  } catch (const std::exception&) {
    return "other ranks";  // a user's own store may lack check
  }

  c10d::Store& store_;
  const milliseconds timeout_;
  const TimePoint end_ = std::chrono::steady_clock::now() + timeout_;
  const std::string own_;
  std::vector<std::string> keys_;  // of all ranks
};

HcclComm join_as_root(c10d::Store& store, const std::string& key, int size, milliseconds timeout) {
  Meeting meeting(store, key, 0, size, timeout);
  forget(store, key);  // of an attempt that failed
  try {
    meeting.await_all();
  } catch (const std::exception& error) {
    give_up(store, key, error.what());
    throw;
  }
  Joining joining(kInit, join(make_root_info(store, key), size, 0));
  while (!joining.ends_within(kLook)) run_signal_handlers();
  check(joining.result(), kInit);
  forget(store, key);  // before take(), which may throw
  return joining.take();
}

// Returns the current value in the store, without a wait; if there is none, returns `known`.
Bytes value_now(c10d::Store& store, const std::string& key, const Bytes& known) {
  try {
    return store.compareSet(key, known, known);
  } catch (const c10::Error&) {  // a user's own store may lack compareSet
    return known;
  } catch (const pybind11::error_already_set&) {
    return known;
  }
}

// Waits for the join. Returns false if the root info in the store has changed. The old `root` then
// belonged to an earlier attempt, and `root` becomes the new one.
bool ends(Joining& joining, c10d::Store& store, const std::string& key, Bytes& root) {
  const bool restarts = !environment("TORCHELASTIC_RESTART_COUNT").empty();
  for (auto waited = kLook; !joining.ends_within(kLook); waited += kLook) {
    run_signal_handlers();
    if (!restarts || waited % kLookAtStore != milliseconds(0)) continue;
    Bytes now = value_now(store, key, root);
    if (now == root) continue;
    root = std::move(now);
    return false;
  }
  return true;
}

HcclComm join_root(c10d::Store& store, const std::string& key, int rank, int size,
                   milliseconds timeout) {
  Meeting meeting(store, key, rank, size, timeout);
  meeting.await({key});
  Bytes root = store.get(key);
  for (;;) {
    Joining joining(kInit, join(decode(root), size, rank));
    if (ends(joining, store, key, root)) return joining.take();
  }
}

}  // namespace

/// The library's communicator. The last owner destroys it. The Shared of a Part owns the Shared of
/// the world, so groups may be destroyed in any order.
struct Communicator::Shared {
  ~Shared() {
    const HcclResult result = HcclCommDestroy(handle);
    if (result != HCCL_SUCCESS) LOG(WARNING) << failure_text(result, "destroy_process_group");
  }

  const HcclComm handle;
  const std::shared_ptr<Shared> world = nullptr;  // null: this is a world
  const std::vector<uint32_t> ranks = {};         // ranks of the world
};

Communicator::Communicator(c10d::Store& store, int rank, int size, milliseconds timeout,
                           const Part& part)
    : shared_(divide(part, timeout)) {
  if (shared_ == nullptr) {
    const std::string key = root_info_key();
    shared_.reset(new Shared{rank == 0 ? join_as_root(store, key, size, timeout)
                                       : join_root(store, key, rank, size, timeout)});
  }
  handle_ = shared_->handle;
}

Communicator::Communicator(Communicator& parent, const std::vector<uint32_t>& excluded)
    : shared_(shrink(parent, excluded)), handle_(shared_->handle) {}

std::shared_ptr<Communicator::Shared> Communicator::shared() {
  const std::lock_guard lock(leaving_);
  return shared_;
}

// Makes a part of the whole communicator. Returns null if there is no whole communicator.
std::shared_ptr<Communicator::Shared> Communicator::divide(const Part& part, milliseconds timeout) {
  if (part.whole == nullptr) return nullptr;
  const std::shared_ptr<Shared> whole = part.whole->shared();
  if (whole == nullptr) return nullptr;
  const auto world = whole->world == nullptr ? whole : whole->world;
  std::vector<uint32_t> ranks = part.ranks;
  if (world != whole) {
    for (uint32_t& rank : ranks) rank = whole->ranks.at(rank);
  }
  const auto create = part.same_name ? HcclCommCreateGroup : HcclCommCreateNextGroup;
  Joining joining("new_group", [=, name = part.name](HcclComm* comm) {
    return create(world->handle, static_cast<uint32_t>(ranks.size()), ranks.data(), name.c_str(),
                  static_cast<uint64_t>(timeout.count()), comm);
  });
  while (!joining.ends_within(kLook)) run_signal_handlers();
  return std::shared_ptr<Shared>(new Shared{joining.take(), world, std::move(ranks)});
}

std::shared_ptr<Communicator::Shared> Communicator::shrink(Communicator& parent,
                                                           const std::vector<uint32_t>& excluded) {
  const std::shared_ptr<Shared> old = parent.shared();
  TORCH_CHECK_WITH(DistBackendError, old != nullptr, "hccl: ", parent.missing_);
  Joining joining("shrink_group", [=](HcclComm* comm) {
    return HcclCommShrink(old->handle, excluded.data(), static_cast<uint32_t>(excluded.size()),
                          nullptr, comm);
  });
  while (!joining.ends_within(kLook)) run_signal_handlers();
  return std::shared_ptr<Shared>(new Shared{joining.take()});
}

std::vector<uint32_t> Communicator::world_ranks() const {
  uint32_t size = 0;
  check(HcclGetRankSize(handle(), &size), "world_ranks");
  std::vector<uint32_t> ranks(size);
  check(HcclCommGetWorldRanks(handle(), ranks.data()), "world_ranks");
  return ranks;
}

void Communicator::set_timeout(milliseconds timeout) {
  if (timeout == timeout_) return;
  check(HcclCommSetTimeout(handle_, static_cast<uint64_t>(timeout.count())), "set_timeout");
  timeout_ = timeout;
}

HcclComm Communicator::handle() const {
  TORCH_CHECK_WITH(DistBackendError, !left_, "hccl: ", missing_);
  return handle_;
}

void Communicator::abort(const char* reason) noexcept {
  const std::lock_guard lock(leaving_);
  if (handle_ != nullptr) static_cast<void>(HcclCommAbort(handle_, reason));
}

HcclResult Communicator::submit_and_wait(HcclCall call, void* arg, milliseconds limit) {
  HcclRequest request = nullptr;
  HcclResult result = HcclSubmit(call, handle_, true, nullptr, arg, &request);
  if (result == HCCL_SUCCESS && request != nullptr) {  // null: it ran on this thread
    result = HcclRequestWait(request, limit.count(), nullptr);
    static_cast<void>(HcclRequestFree(request));
  }
  return result;
}

void Communicator::run(const std::function<void()>& function) {
  struct Task {
    const std::function<void()>& function;
    std::exception_ptr failure;
  } task{function, nullptr};
  const auto call = [](void* arg) {
    auto& task = *static_cast<Task*>(arg);
    try {
      task.function();
    } catch (...) {
      task.failure = std::current_exception();
    }
    return HCCL_SUCCESS;
  };
  static_cast<void>(handle());  // throws if the group has left
  check(submit_and_wait(call, &task, milliseconds(0)), "submit");
  if (task.failure) std::rethrow_exception(task.failure);
}

HcclComm Communicator::begin_message() {
  const std::lock_guard lock(mutex_);
  const HcclComm comm = handle();
  ++messages_;
  return comm;
}

void Communicator::end_message() {
  const std::lock_guard lock(mutex_);
  --messages_;
  message_ended_.notify_all();
}

bool Communicator::drain(milliseconds limit) noexcept {
  if (handle_ == nullptr) return true;
  const auto nothing = [](void*) { return HCCL_SUCCESS; };
  if (submit_and_wait(nothing, nullptr, limit) != HCCL_SUCCESS) return false;
  std::unique_lock lock(mutex_);
  const auto none = [this] { return messages_ == 0; };
  if (limit.count() > 0) return message_ended_.wait_for(lock, limit, none);
  message_ended_.wait(lock, none);
  return true;
}

void Communicator::end(milliseconds patience, milliseconds grace, const char* reason) noexcept {
  patience = std::max(patience, milliseconds(1));
  const WithoutInterpreterLock lock;
  std::unique_lock one_at_a_time(ending_, std::defer_lock);
  if (grace.count() == 0) {
    one_at_a_time.lock();
  } else if (!one_at_a_time.try_lock_for(patience)) {
    return;
  }
  if (left_) return;
  if (!drain(patience)) abort(reason);
  leave(grace);
}

void Communicator::leave(milliseconds limit) noexcept {
  if (left_.exchange(true) || !drain(limit)) return;
  std::shared_ptr<Shared> last;  // destroyed behind the lock
  const std::lock_guard lock(leaving_);
  handle_ = nullptr;
  last.swap(shared_);
}

}  // namespace hccl::pytorch
