#include "joining.h"

#include <atomic>
#include <memory>
#include <utility>

#include "error.h"

namespace hccl::pytorch {

struct Joining::State {
  const Call call;
  HcclComm handle = nullptr;
  std::atomic<bool> left = false;

  // Called twice: when the call has ended, and when Joining is destroyed. The second caller deletes
  // the state.
  void leave() {
    if (!left.exchange(true)) return;
    if (handle != nullptr) {
      static_cast<void>(HcclCommAbort(handle, "a rank no longer waits for its process group"));
      static_cast<void>(HcclCommDestroy(handle));
    }
    delete this;
  }
};

Joining::Joining(const char* operation, Call call) : operation_(operation) {
  std::unique_ptr<State> state(new State{std::move(call)});
  const auto join = [](void* arg) {
    auto& state = *static_cast<State*>(arg);
    return state.call(&state.handle);
  };
  const auto done = [](void* arg, HcclResult) { static_cast<State*>(arg)->leave(); };
  check(HcclSubmit(join, nullptr, false, done, state.get(), &request_), operation_);
  state_ = state.release();
}

Joining::~Joining() {
  state_->leave();
  static_cast<void>(HcclRequestFree(request_));
}

bool Joining::ends_within(std::chrono::milliseconds patience) {
  bool ended = false;
  static_cast<void>(HcclRequestWait(request_, patience.count(), nullptr));
  check(HcclRequestTest(request_, &ended), operation_);
  return ended;
}

HcclComm Joining::take() {
  check(result(), operation_);
  return std::exchange(state_->handle, nullptr);
}

}  // namespace hccl::pytorch
