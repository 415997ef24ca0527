#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernel.h"

namespace hccl::tf {

/// How a list is reduced: all ranks in the same way.
enum class Form : std::int64_t { kGrouped, kFused };

/// Whether all ranks have these tensors, and reduce them in the same form. The sum of the sizes
/// alone would hide a difference, and name no tensor. `sizes` are elements; `what` and `names` are
/// for the error.
Status compare(HcclComm comm, Form form, const std::vector<std::int64_t>& sizes,
               const std::string& what, const std::vector<std::string>& names);

/// The same for a list that this process has not compared on this communicator yet. A function that
/// is traced anew has new kernels, and not always on all ranks: so no kernel keeps this.
Status compare_once(HcclComm comm, Form form, const std::vector<std::int64_t>& sizes,
                    const std::string& what, const std::vector<std::string>& names);

}  // namespace hccl::tf
