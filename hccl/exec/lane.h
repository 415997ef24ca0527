// One lane: runs the steps of one schedule, in order, for one slice after another.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "hccl/base/call.h"
#include "hccl/exec/activity.h"
#include "hccl/exec/chunk_layout.h"
#include "hccl/exec/flow.h"
#include "hccl/kernels/folding.h"
#include "hccl/schedule/schedule.h"
#include "transport/transport.h"

namespace hccl::exec {

/// The lane of the mesh that agreements use; data uses other lanes.
inline constexpr std::uint32_t kAgreementLane = transport::Mesh::kLanes - 1;

class Lane final : public Activity {
 public:
  explicit Lane(transport::Mesh& mesh);

  /// Prepares a run on transport lane `number`; add() then adds slices to the run. Keeps the memory
  /// of earlier runs. `message` and `staging` are for the lane's flows (flow.h); `staging` has room
  /// for kWindow messages of each reducing receive of a step. `fold` is the fold of the schedule's
  /// steps; reducing receives use the partial form of `fold`.
  void begin(std::uint32_t number, const Call& call, const Envelope& mine,
             const kernels::Folding& fold = {}, std::size_t message = Flow::kMessage,
             std::byte* staging = nullptr);
  /// `schedule` must outlive the run. `scratch` has the schedule's slots, of layout.longest() bytes
  /// each.
  void add(const schedule::Schedule& schedule, const ChunkLayout& layout, std::byte* scratch);
  Status advance() override;
  void late(std::set<int>& peers) const override;
  bool done() const override { return slice_ == slices_.size() && hellos_pending_ == 0; }

 private:
  // The envelopes that this rank and one peer exchange before data.
  struct Hello {
    int peer = 0;
    Envelope sent;
    Envelope received;
    transport::Request send;
    transport::Request recv;
    bool sending = false;
    bool receiving = false;
  };
  struct Slice {
    const schedule::Schedule* schedule;
    ChunkLayout layout;
    std::byte* scratch;
  };

  void start_step();
  void start(const schedule::Send& send);
  void start(const schedule::Recv& recv);
  void fold(const schedule::Fold& fold);
  Status check_hellos();
  Hello& hello(int peer);
  Flow& flow(Flow::Direction direction, int peer);
  std::byte* address(const schedule::Slice& slice, int chunk);

  transport::Mesh& mesh_;
  std::uint32_t number_ = 0;
  Call call_;
  kernels::Folding fold_;
  Envelope mine_;
  std::size_t message_ = Flow::kMessage;
  std::byte* staging_ = nullptr;
  std::size_t staging_used_ = 0;  // bytes that the receives of the step use
  std::vector<Slice> slices_;
  std::size_t slice_ = 0;
  std::size_t step_ = 0;
  bool started_ = false;
  std::vector<const std::byte*> inputs_;  // of a fold; its capacity is kept between folds
  std::vector<std::unique_ptr<Flow>> flows_;
  std::size_t flows_used_ = 0;
  std::vector<std::unique_ptr<Hello>> hellos_;
  std::size_t hellos_used_ = 0;
  std::size_t hellos_pending_ = 0;
};

}  // namespace hccl::exec
