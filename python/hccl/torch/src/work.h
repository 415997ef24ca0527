#pragma once

#include <exception>
#include <functional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "hccl/hccl_framework.h"

namespace hccl::pytorch {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// The caller's object for an operation. The caller waits for the operation or takes its future.
/// start() submits a collective to the library.
///
/// Callbacks of futures run in the library's callback, one after another. They may issue operations
/// and wait for them. In the order of operations, such an operation is at the point where the
/// program asked for the future. If the future is complete at that point, the caller's thread
/// issues the operation there. So the order is the same on all ranks.
class Work : public c10d::Work {
 public:
  /// `title`: the title in the profiler's record; a literal.
  Work(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
       std::vector<at::Tensor> outputs);
  ~Work() override;

  /// Runs the collective `run`: on this thread if `caller_waits` is set and no earlier operation is
  /// queued, otherwise on the communicator's thread. `run` must own the tensors, because it may run
  /// after the caller has dropped its Work.
  void start(HcclComm comm, std::function<void(HcclComm)> run, bool caller_waits);

  /// Returns whether a callback of an operation runs on this thread.
  static bool calls_back() noexcept;

  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_number_; }

  /// Sets the future's value for an operation with several lists of outputs.
  void set_lists(std::vector<std::vector<at::Tensor>> lists) { lists_ = std::move(lists); }
  void set_sequence_number(uint64_t number) { sequence_number_ = number; }

 protected:
  /// Stores the operation's failure, or null. Returns whether the program has asked for the
  /// operation's future.
  bool has_future_at_end(std::exception_ptr failure);
  /// Completes the future if `future` is set, and then wakes the waiting threads. Callbacks of the
  /// future run on this thread, so the caller must hold no lock.
  void complete_future(bool future) noexcept;

  HcclRequest request_ = nullptr;  // null: the operation ran on the caller's thread

 private:
  void end_in_callback() const;
  void settle(c10::ivalue::Future& future) const;

  const char* title_;
  std::vector<at::Tensor> outputs_;
  std::vector<std::vector<at::Tensor>> lists_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // made when the program asks for it
  bool settled_ = false;
  std::exception_ptr failure_;
  uint64_t sequence_number_ = 0;
  HcclComm comm_ = nullptr;  // the communicator of a collective
  std::function<void(HcclComm)> run_;
};

}  // namespace hccl::pytorch
