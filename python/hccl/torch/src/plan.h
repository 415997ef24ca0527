#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>
#include <vector>

#include "communicator.h"
#include "error.h"
#include "hccl/hccl_fusion.h"
#include "tensors.h"

namespace pybind11 {
class module_;
}

namespace hccl::pytorch {

/// Reduces gradients in the segments of the library's fusion engine (hccl_fusion.h), which
/// measures, plans and writes traces. The gradients come from a DistributedDataParallel with one
/// gradient in each bucket, or from set_gradients(). One thread at a time may use a plan.
class GradientPlan {
 public:
  /// A function that is called with the parameters of a segment when their gradients are reduced.
  using Tail = std::function<void(const Tensors&)>;

  /// Joins a communicator of its own, because DDP and its user run operations on the group's
  /// communicator. `group` is the group whose split strategy applies. `names` has the names of the
  /// parameters, for traces.
  GradientPlan(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout,
               const Part& part, std::string group, const Tensors& parameters,
               std::vector<std::string> names);
  ~GradientPlan();
  GradientPlan(const GradientPlan&) = delete;
  GradientPlan& operator=(const GradientPlan&) = delete;

  /// For use without DDP: sets the gradients, in the order in which they become ready. Each
  /// iteration calls ready() with the number of each gradient, and then finish(), which returns
  /// when all gradients are reduced.
  void set_gradients(const Tensors& gradients);
  void ready(uint32_t gradient);
  void finish();

  /// Plans the newest-first order (HcclFusionPlanNewestFirst) between two iterations. Returns, for
  /// each message, its range [begin, end) of elements in the concatenation of all gradients.
  /// Collective.
  std::vector<std::pair<uint64_t, uint64_t>> plan_newest_first();
  /// After this, the plan reduces these messages instead of the gradients, each alone and in this
  /// order. In each iteration the program calls ready() with the number of each complete message,
  /// end_backward() when all are ready, and wait_message() for each message in order. The last
  /// wait_message() ends the iteration. Collective.
  void set_messages(const Tensors& messages, const std::vector<std::string>& names);
  void end_backward();
  void wait_message(uint32_t message);
  /// Called at the end of a program or of a model. Finishes reductions of complete backward passes.
  /// If a backward pass is under way, aborts it, because other ranks may not even have begun it.
  void end();

  /// Takes a bucket whose gradient is ready, and returns its future. reduce() of the last bucket
  /// returns when all gradients are reduced, and completes the futures of all buckets.
  c10::intrusive_ptr<c10::ivalue::Future> reduce(c10d::GradBucket& bucket);
  /// Called when DDP has new buckets. The next iteration reduces bucket by bucket, and records the
  /// new buckets.
  void forget();
  /// Marks, for the trace, the beginning of a forward pass whose gradients will be reduced.
  void mark_forward();
  void set_tail(Tail tail) { tail_ = std::move(tail); }

  /// Returns the last gradient of each segment; empty while there are no segments.
  std::vector<uint32_t> segments() const;
  /// Returns the names of the gradients, in the order of the buckets.
  std::vector<std::string> gradients() const;
  std::string trace_text() const;
  void write_trace(const std::string& path) const;

 private:
  struct Bucket {
    std::string name;  // the name of the first parameter
    Tensors parameters;
    at::Tensor data;
  };

  void add(const c10d::GradBucket& bucket);
  void make_fusion(bool one_by_one = false);
  void call_tail(const std::vector<uint32_t>& last) const;
  HcclFusion fusion() const;

  const ForkGuard fork_;
  Communicator communicator_;
  const std::string group_;
  const Tensors parameters_;
  const std::vector<std::string> names_;  // of parameters_
  std::vector<Bucket> buckets_;           // DDP's buckets, or the gradients, or the messages
  HcclFusion fusion_ = nullptr;
  bool under_way_ = false;  // some gradients of the iteration are ready
  bool finished_ = false;   // an iteration has ended, and no forward pass has begun
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures_;  // of the current iteration
  Tail tail_;
};

/// Binds the class GradientPlan to Python, and plan_reducer(reducer, plan), which makes a plan the
/// communication hook of DDP's reducer. The reducer keeps the plan.
void bind_plan(pybind11::module_& module);

}  // namespace hccl::pytorch
