#include "joining.h"

#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>
#include <pthread.h>

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "error.h"
#include "hccl/hccl_framework.h"

namespace hccl::pytorch {
namespace {

void discard(HcclComm handle) {
  if (handle == nullptr) return;
  static_cast<void>(HcclCommAbort(handle, "a rank no longer waits for its process group"));
  static_cast<void>(HcclCommDestroy(handle));
}

}  // namespace

struct Joining::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  bool given_up = false;
  HcclComm handle = nullptr;
  std::string failure;
};

Joining::Joining(const HcclRootInfo& info, int size, int rank) : state_(std::make_shared<State>()) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);  // signals are for the program's own threads
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_, info, size, rank] {
    c10::setThreadName("hccl_join");
    HcclComm handle = nullptr;
    const HcclResult result = HcclCommInitRootInfo(static_cast<uint32_t>(size), &info,
                                                   static_cast<uint32_t>(rank), &handle);
    std::unique_lock lock(state->mutex);
    if (result != HCCL_SUCCESS) state->failure = failure_text(result, "init_process_group");
    state->ended = true;
    if (!state->given_up) state->handle = std::exchange(handle, nullptr);
    lock.unlock();
    state->changed.notify_all();
    discard(handle);
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Joining::~Joining() {
  std::unique_lock lock(state_->mutex);
  state_->given_up = true;
  lock.unlock();
  discard(state_->handle);  // the thread leaves it alone now
}

bool Joining::ends_within(std::chrono::milliseconds patience) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, patience, [this] { return state_->ended; });
}

HcclComm Joining::take() {
  const std::lock_guard lock(state_->mutex);
  TORCH_CHECK_WITH(DistBackendError, state_->failure.empty(), state_->failure);
  return std::exchange(state_->handle, nullptr);
}

}  // namespace hccl::pytorch
