#pragma once

#include <exception>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace hccl::pytorch {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// A moment of this process: of two calls, the one with the lower number came first.
uint64_t now();

/// What a caller holds of an operation: it waits for it, or takes its future.
class Work : public c10d::Work {
 public:
  /// The profiler's record has this title, which is a literal.
  Work(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
       std::vector<at::Tensor> outputs);

  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_number_; }

  void set_sequence_number(uint64_t number) { sequence_number_ = number; }
  /// When its future was first asked for.
  uint64_t asked() const;
  /// Ends the operation, well or not. Callbacks of the future run on this thread: hold no lock.
  void complete(std::exception_ptr failure);

 private:
  void settle(c10::ivalue::Future& future) const;

  const char* title_;
  std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // made when it is asked for
  uint64_t asked_ = 0;
  bool settled_ = false;
  std::exception_ptr failure_;
  uint64_t sequence_number_ = 0;
};

}  // namespace hccl::pytorch
