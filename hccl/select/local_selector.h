// Among the local algorithms that can run the case, chooses the one with the least predicted cost.
// The same inputs give the same choice on all ranks.
#pragma once

#include <array>
#include <string>
#include <utility>

#include "hccl/base/types.h"
#include "hccl/local/algorithm.h"
#include "hccl/select/costs.h"
#include "hccl/select/presets.h"

namespace hccl::select {

inline constexpr std::size_t kOps = static_cast<std::size_t>(Op::kAllToAllV) + 1;
/// For each operation, the local algorithm that HCCL_ALGO names, or "".
using Wanted = std::array<std::string, kOps>;

struct LocalChoice {
  const local::Algorithm* algorithm = nullptr;
  std::string reason;  ///< for HCCL_LOG=info
};

class LocalSelector {
 public:
  /// Uses the built-in costs for near cores.
  explicit LocalSelector(local::Topology topology, Wanted wanted = {})
      : LocalSelector(topology, local_preset(topology, false), std::move(wanted)) {}
  /// `costs` were measured on these ranks. The algorithm that the built-in costs choose stays,
  /// unless another algorithm takes at most 70 % of its time.
  LocalSelector(local::Topology topology, LocalCosts costs, Wanted wanted = {});

  /// The algorithm is null only if no algorithm can run the case. `with_eager` must be false after
  /// the ranks have announced descriptors: then it is too late for an eager algorithm.
  LocalChoice choose(const local::Case& c, bool with_eager = true) const;

  /// Predicted time of an algorithm; 0 if unknown.
  double predict_ns(const local::Algorithm& algorithm, const local::Case& c) const;
  const local::Tuning& tuning() const { return costs_.tuning; }
  const local::Topology& topology() const { return topology_; }

 private:
  struct Best {
    const local::Algorithm* algorithm = nullptr;
    double ns = 0;
    const local::Algorithm* next = nullptr;
    double next_ns = 0;
  };
  Best best(const LocalCosts& costs, const local::Case& c, bool with_eager) const;
  const std::string& wanted(Op op) const { return wanted_[static_cast<std::size_t>(op)]; }

  local::Topology topology_;
  LocalCosts costs_;
  LocalCosts preset_;
  Wanted wanted_;
};

}  // namespace hccl::select
