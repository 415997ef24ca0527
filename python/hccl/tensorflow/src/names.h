// The names by which ranks compare their operations. If operations are swapped, the error has both
// names.
#pragma once

#include <tensorflow/core/framework/op_kernel.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hccl/hccl_comm.h"

namespace hccl::tf {

/// The names of an op's tensors, with the digests that ranks compare. Without names nothing is
/// compared.
class Names {
 public:
  explicit Names(::tensorflow::OpKernelConstruction* construction);
  const std::vector<std::string>& all() const { return names_; }
  /// The tag for HcclSetCallTag.
  std::uint32_t tag() const { return tag_; }
  /// Checks that all ranks have these names in this order. Does so once for each communicator; then
  /// all ranks also know the names for later errors.
  absl::Status compare_once(HcclComm comm) const;

 private:
  std::vector<std::string> names_;
  std::vector<std::int64_t> digests_;
  std::uint32_t tag_ = 0;
};

/// The text of an error with names in place of tags.
std::string with_names(std::string text);

}  // namespace hccl::tf
