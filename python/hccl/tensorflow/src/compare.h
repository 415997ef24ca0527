#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernel.h"

namespace hccl::tf {

/// How a list is reduced; all ranks must use the same form.
enum class Form : std::int64_t { kGrouped, kFused };

/// Checks that all ranks have these tensors, and reduce them in the same form. The sum of the sizes
/// alone would not show every difference, and would name no tensor. `sizes`: in elements. `what`
/// and `names`: for the error.
Status compare(HcclComm comm, Form form, const std::vector<std::int64_t>& sizes,
               const std::string& what, const std::vector<std::string>& names);

/// compare() for a list that this process has not compared on this communicator yet. Not kept in a
/// kernel: a function that is traced again has new kernels, but perhaps not on all ranks.
Status compare_once(HcclComm comm, Form form, const std::vector<std::int64_t>& sizes,
                    const std::string& what, const std::vector<std::string>& names);

}  // namespace hccl::tf
