// The names by which ranks compare their operations. If a rank swaps two operations, the error text
// has both names.
#pragma once

#include <tensorflow/core/framework/op_kernel.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hccl/hccl_comm.h"

namespace hccl::tf {

/// Mixes a shape into a digest.
std::uint64_t mixed(std::uint64_t digest, const ::tensorflow::TensorShape& shape);

/// The names of an op's tensors, with the digests that ranks compare. Ranks compare an op without
/// names only if nothing orders it (chain.h): then they compare its number in its graph.
class Names {
 public:
  explicit Names(::tensorflow::OpKernelConstruction* construction);
  const std::vector<std::string>& all() const { return names_; }
  /// Returns the tag for HcclSetCallTag of a call with tensors of these shapes, in this iteration
  /// of a loop.
  std::uint32_t tag(const std::vector<::tensorflow::TensorShape>& shapes,
                    std::int64_t iteration) const;
  /// Checks, once for each communicator, that all ranks have these names in this order.
  absl::Status compare_once(HcclComm comm) const;

 private:
  std::vector<std::string> names_;
  std::vector<std::int64_t> digests_;
  std::uint32_t tag_ = 0;
  bool ordered_ = true;  // otherwise iterations of a loop may also overtake each other
  std::string text_;     // the description of a call in errors
};

/// Returns an error text in which names replace the tags.
std::string with_names(std::string text);

}  // namespace hccl::tf
