#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "allocator.h"
#include "coalesced.h"
#include "communicator.h"
#include "error.h"
#include "tensors.h"
#include "work.h"

namespace hccl::pytorch {

using TensorLists = std::vector<Tensors>;

/// The backend "hccl" of one process group, on a communicator of its own. `whole` is the backend of
/// the default group, or null if the default group has another backend. `global_ranks` has the
/// numbers of this group's ranks in the default group. With `later`, the constructor joins nothing,
/// and reconfigure() makes the communicator.
class ProcessGroupHccl final : public c10d::Backend {
 public:
  ProcessGroupHccl(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                   std::chrono::milliseconds timeout, std::string group_name,
                   std::vector<uint64_t> global_ranks,
                   const c10::intrusive_ptr<ProcessGroupHccl>& whole, bool later);
  ProcessGroupHccl(std::shared_ptr<Communicator> communicator,
                   c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                   c10::intrusive_ptr<Options> options);
  ~ProcessGroupHccl() override;

  const std::string getBackendName() const override { return "hccl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }

  // reductions.cc
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  /// Sums the tensor over all ranks, in place, and returns when that is done. Makes no Work, and
  /// Python calls it without torch's dispatcher: for callers whose caches are cold at each call.
  void sum_in_place(const at::Tensor& tensor);
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;

  // movements.cc
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  // messages.cc
  WorkPtr send(Tensors& tensors, int dest, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  // supportsCoalescing stays false: with true, batch_isend_irecv would return one Work for all
  // messages, but programs written for Gloo expect one Work for each message.
  void startCoalescing() override;
  WorkPtr endCoalescing() override { return coalescing_.end(); }

  // Memory that the ranks of a host share (allocator.h).
  at::Tensor allocateTensor(long numel, at::TensorOptions options) override;
  bool supportsTensorAlloc(c10::DeviceIndex device) override;
  std::shared_ptr<c10::Allocator> getMemAllocator() override;
  /// After this, allocateTensor() allocates tensors one after another in one block of `bytes`
  /// bytes. 0 ends this.
  void pack_tensors(int64_t bytes);

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return operations_; }
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

  // shrink.cc
  bool supportsShrinking() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t>& excluded, int flags,
                                           const c10::intrusive_ptr<Options>& options) override;
  /// Returns a group of the living ranks that are not excluded, and the numbers of these ranks in
  /// this group. This group may have failed. When this group ends, its running operations are
  /// aborted.
  std::pair<c10::intrusive_ptr<ProcessGroupHccl>, std::vector<int64_t>> shrink_to_living(
      const std::vector<int64_t>& excluded, int flags, const c10::intrusive_ptr<Options>& options);

#ifdef C10D_BACKEND_HAS_RECONFIGURE
  // reconfigure.cc
  bool supportsReconfigure() const override { return true; }
  c10d::ReconfigureHandle get_reconfigure_handle() const override { return handle_; }
  WorkPtr reconfigure(const c10d::ReconfigureOptions& options) override;
#endif

  /// Null in a forked child.
  std::shared_ptr<Communicator> communicator() const {
    return fork_.in_child() ? nullptr : current();
  }

 private:
  /// What c10d must know about an operation before the operation runs.
  struct Call {
    /// `options` are c10d's options of the operation.
    template <typename Options>
    Call(c10d::OpType kind, const char* title_of_record, Tensors from, Tensors to,
         const Options& options)
        : type(kind),
          title(title_of_record),
          inputs(std::move(from)),
          outputs(std::move(to)),
          timeout(options.timeout),
          async(options.asyncOp) {}

    c10d::OpType type;
    const char* title;  // the title in the profiler's record; a literal
    Tensors inputs;
    Tensors outputs;
    std::chrono::milliseconds timeout;
    bool async;
    TensorLists lists = {};  // the lists of outputs, if there are several
  };
  /// Runs the operation on this thread or the communicator's. `run` keeps its tensors alive.
  WorkPtr issue(Call call, std::function<void(HcclComm)> run);
  WorkPtr begin_message(c10d::OpType type, const char* title, const at::Tensor& tensor,
                        uint32_t peer, int tag);
  /// Returns the object that rejects arguments of a collective. The object also reports the
  /// rejection to the ranks that wait in the collective.
  Refusal refusal(const char* operation);
  void end(std::chrono::milliseconds patience);
  std::shared_ptr<Communicator> current() const {
    const std::lock_guard lock(changing_);
    return communicator_;
  }

  const ForkGuard fork_;
  const c10::intrusive_ptr<Options> options_;
  const c10::intrusive_ptr<c10d::Store> store_;
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  const std::string handle_ = new_handle();
  std::set<int64_t> configured_;  // uuids

  static std::string new_handle();
#endif
  std::atomic<uint64_t> operations_ = 0;
  std::atomic<bool> shrunk_ = false;
  std::optional<Pack> pack_;  // the block of allocateTensor
  Coalescing coalescing_;
  mutable std::mutex changing_;  // reconfigure() replaces the communicator while others use it
  std::shared_ptr<Communicator> communicator_;  // shared with the operations that run
};

}  // namespace hccl::pytorch
