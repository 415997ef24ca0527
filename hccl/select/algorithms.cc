#include "hccl/select/algorithms.h"

#include <algorithm>
#include <span>

#include "hccl/schedule/algorithm.h"

namespace hccl::select {
namespace {

template <class Algorithm>
std::vector<std::string_view> names_of(std::span<const Algorithm> algorithms) {
  std::vector<std::string_view> names;
  for (const Algorithm& each : algorithms) {
    if (std::find(names.begin(), names.end(), each.name) == names.end()) names.push_back(each.name);
  }
  return names;
}

}  // namespace

std::vector<std::string_view> local_names() { return names_of(local::algorithms()); }
std::vector<std::string_view> remote_names() { return names_of(schedule::algorithms()); }

Status check_names(const Config& config) {
  return config.check_algorithms(local_names(), remote_names());
}

Wanted wanted_locally(const Config& config) {
  Wanted wanted;
  for (std::size_t op = 0; op < kOps; ++op) {
    wanted[op] = config.algorithm_for(hccl::to_string(static_cast<Op>(op)), 0);
  }
  return wanted;
}

}  // namespace hccl::select
