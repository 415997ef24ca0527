#include "coalesced.h"

#include <ATen/core/ivalue_inl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace hccl::pytorch {
namespace {

using std::chrono::steady_clock;

// Returns at least a millisecond, because 0 would mean no limit.
std::chrono::milliseconds left_until(steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
  return std::max(left, std::chrono::milliseconds(1));
}

/// The Work of several operations. It is done when all of them are done, and has failed if any of
/// them has failed.
class CoalescedWork final : public c10d::Work {
 public:
  explicit CoalescedWork(std::vector<WorkPtr> works)
      : c10d::Work(-1, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override {
    return std::ranges::all_of(works_, [](const WorkPtr& work) { return work->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::ranges::all_of(works_, [](const WorkPtr& work) { return work->isSuccess(); });
  }
  std::exception_ptr exception() const override {
    for (const WorkPtr& work : works_) {
      if (auto failure = work->exception()) return failure;
    }
    return nullptr;
  }

  // Waits for all operations, even if one has failed, because running operations use their tensors.
  bool wait(std::chrono::milliseconds timeout) override {
    const auto deadline = steady_clock::now() + timeout;
    std::exception_ptr first;
    for (const WorkPtr& work : works_) {
      try {
        work->wait(timeout <= kNoTimeout ? timeout : left_until(deadline));
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
    return true;
  }

  std::vector<at::Tensor> result() override {
    std::vector<at::Tensor> all;
    for (const WorkPtr& work : works_) {
      for (at::Tensor& tensor : work->result()) all.push_back(std::move(tensor));
    }
    return all;
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const auto tensors = c10::ListType::create(c10::TensorType::get());
    c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(c10::FutureType::create(tensors));
    for (const WorkPtr& work : works_) futures.push_back(work->getFuture());
    auto self = c10::intrusive_ptr<CoalescedWork>::unsafe_reclaim_from_nonowning(this);
    return c10::collectAll(futures)->then(
        [self](c10::ivalue::Future& all) {
          if (all.hasError()) std::rethrow_exception(all.exception_ptr());
          return c10::IValue(self->result());
        },
        tensors);
  }

 private:
  const std::vector<WorkPtr> works_;
};

}  // namespace

void Coalescing::start() {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!works_, "hccl: operations of this group are being coalesced already");
  works_.emplace();
}

bool Coalescing::started() const {
  const std::lock_guard lock(mutex_);
  return works_.has_value();
}

WorkPtr Coalescing::add(WorkPtr work, bool caller_waits) {
  const std::lock_guard lock(mutex_);
  if (!works_) return work;
  works_->push_back(work);
  return caller_waits ? WorkPtr() : work;
}

WorkPtr Coalescing::end() {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(works_, "hccl: no operations of this group are being coalesced");
  std::vector<WorkPtr> works = *std::exchange(works_, std::nullopt);
  if (works.empty()) return {};
  return c10::make_intrusive<CoalescedWork>(std::move(works));
}

}  // namespace hccl::pytorch
