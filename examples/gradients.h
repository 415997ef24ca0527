// The gradients of a network and their fusion: memory, segments, trace.
#pragma once

#include <hccl/hccl_fusion.h>

#include <string>
#include <vector>

#include "mlp.h"
#include "options.h"
#include "world.h"

namespace examples {

/// One fp32 gradient for each tensor of a network, summed over the ranks of a world. Used by one
/// thread. Must be destroyed before its world.
class Gradients {
 public:
  /// By default the gradients are contiguous, in the order of backward, and segments are reduced in
  /// place. Scattered gradients go through the library's fusion buffer. Throws HcclFailure;
  /// HCCL_E_PARA means that the split does not fit the tensors.
  Gradients(const World& world, const std::vector<Tensor>& tensors, const Options& options);
  ~Gradients();
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  /// Returns the address of each gradient.
  const std::vector<float*>& data() const { return data_; }

  /// Marks gradient `index` of this rank as complete, so that its segment may be reduced.
  void ready(uint32_t index);
  void mark(HcclFusionPoint point);
  /// Returns when all gradients are summed over all ranks.
  void wait();

  /// Continues in another communicator of the world, where the iteration begins again.
  void rebind(HcclComm comm);

  /// The segments as index pairs: "[0,5] [6,7]".
  std::string segments() const;
  /// The time line of the last iteration.
  std::string trace_text() const;
  void write_trace(const std::string& path) const;

  /// Must be the last call. The destructor ends the fusion too, but cannot report a failure.
  void close();

 private:
  const World& world_;
  std::vector<std::vector<float>> memory_;
  std::vector<float*> data_;
  HcclFusion fusion_ = nullptr;
};

}  // namespace examples
