#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernel.h"

namespace hccl::tf {

/// How a list is reduced; all ranks must use the same form.
enum class Form : std::int64_t { kGrouped, kFused };

/// Checks that all ranks have tensors of these shapes, and reduce them in the same form. Otherwise
/// only the sum of the sizes would be compared; equal sums can hide a difference, and the error
/// would name no tensor. `what` and `names` are for the error.
Status compare(HcclComm comm, Form form, const std::vector<TensorShape>& shapes,
               const std::string& what, const std::vector<std::string>& names);

/// As compare(), but only for a list that this process has not compared on this communicator
/// before. The lists are not kept in kernels: if a function is traced again, it has new kernels,
/// but perhaps not on all ranks.
Status compare_once(HcclComm comm, Form form, const std::vector<TensorShape>& shapes,
                    const std::string& what, const std::vector<std::string>& names);

}  // namespace hccl::tf
