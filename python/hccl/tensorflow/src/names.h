// The names by which ranks compare their operations, so that a swap is an error that has both.
#pragma once

#include <tensorflow/core/framework/op_kernel.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hccl/hccl_comm.h"

namespace hccl::tf {

/// The names of the tensors of an op, with digests by which ranks compare them; none: not compared.
class Names {
 public:
  explicit Names(::tensorflow::OpKernelConstruction* construction);
  const std::vector<std::string>& all() const { return names_; }
  /// For HcclSetCallTag.
  std::uint32_t tag() const { return tag_; }
  /// Whether all ranks have these names in this order. Asks them once for each communicator, so
  /// all of them also know the names in later errors.
  absl::Status compare_once(HcclComm comm) const;

 private:
  std::vector<std::string> names_;
  std::vector<std::int64_t> digests_;
  std::uint32_t tag_ = 0;
};

/// The text of an error with names in place of tags.
std::string with_names(std::string text);

}  // namespace hccl::tf
