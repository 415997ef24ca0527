#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernel.h"

namespace hccl::tf {

/// How a list is reduced; all ranks must use the same form.
enum class Form : std::int64_t { kGrouped, kFused };

/// Checks that all ranks have tensors of these shapes, and reduce them in the same form. The
/// library itself compares only the sum of the sizes, which may be equal although the tensors
/// differ, and its error names no tensor. `what` and `names` are for the error.
Status compare(HcclComm comm, Form form, const std::vector<TensorShape>& shapes,
               const std::string& what, const std::vector<std::string>& names);

/// Like compare(), but does nothing if this process has compared the list on this communicator
/// before. Kernels do not store the compared lists, because retracing a function makes new kernels,
/// perhaps not on all ranks.
Status compare_once(HcclComm comm, Form form, const std::vector<TensorShape>& shapes,
                    const std::string& what, const std::vector<std::string>& names);

}  // namespace hccl::tf
