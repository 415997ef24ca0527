// Counts groups of the same ranks, to distinguish successive groups with the same name.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "hccl/base/call.h"

namespace hccl::api {

/// Counts by ranks and by a short hash of the name, so that new names take no more memory. All
/// members make the groups of the same ranks in one order, so their counts are equal. If only some
/// members try to make a group, their counts differ; this disturbs only later groups whose name has
/// the same hash. Groups without a common name have the name "" and a separate count.
class Instances {
 public:
  std::uint64_t next(std::string_view name, std::vector<int> ranks) {
    return counts_[std::move(ranks)][name.empty() ? kCounts : fingerprint(name, {}) % kCounts]++;
  }

 private:
  static constexpr std::size_t kCounts = 61;
  std::map<std::vector<int>, std::array<std::uint64_t, kCounts + 1>> counts_;
};

}  // namespace hccl::api
