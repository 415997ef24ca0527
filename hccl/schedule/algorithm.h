// The one table of algorithms: name, one sentence, eligibility, cost and builder. Defaults,
// HCCL_ALGO, tests and benchmarks all choose by these names.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "hccl/schedule/schedule.h"

namespace hccl::schedule {

/// Cost of one rank on the critical path; bytes of the vector count as 1.
struct Cost {
  double steps = 0;
  double bytes = 0;
  double folded = 0;
  /// To or from peers, whichever are more. Those of one step are concurrent.
  double messages = 0;
};

struct Algorithm {
  Op op;
  std::string_view name;  ///< "ring", "halving_doubling", "double_tree", "direct", "binomial", …
  std::string_view hccl;  ///< HCCL_ALGO's word for it ("ring", "H-D_R", "fullmesh", …), or ""
  std::string_view summary;  ///< one sentence
  Schedule (*build)(const Shape& shape);
  /// Why it cannot run for this many ranks, or an empty text if it can.
  std::string (*refuse)(int size);
  Cost (*cost)(int size, int depth);
  /// Ranks may take each other's places: the result is the same but for the order of the sum.
  bool any_order = false;
};

std::span<const Algorithm> algorithms();
/// By our name or HCCL's word; null if the operation has no such algorithm.
const Algorithm* find(Op op, std::string_view name);

/// What to run, decided from what all ranks know, so that they agree by construction.
struct Choice {
  const Algorithm* algorithm = nullptr;
  int depth = 1;       ///< Shape::depth
  int hosts = 1;       ///< Shape::hosts
  int lanes = 1;       ///< slices of the vector that run the schedule side by side
  /// Most bytes of a slice; 0: as many as the staging memory allows.
  std::size_t slice = 0;
  std::string reason;  ///< for HCCL_LOG=info
};

}  // namespace hccl::schedule
