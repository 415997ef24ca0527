// The one table of algorithms: name, one sentence, eligibility, cost and builder. Defaults,
// HCCL_ALGO, tests and benchmarks choose by these names.
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
  /// Messages sent or received, whichever are more. The messages of one step are concurrent.
  double messages = 0;
};

struct Algorithm {
  Op op;
  std::string_view name;     ///< "ring", "halving_doubling", "double_tree", "direct", "binomial", …
  std::string_view hccl;     ///< HCCL_ALGO's word for it ("ring", "H-D_R", "fullmesh", …), or ""
  std::string_view summary;  ///< one sentence
  Schedule (*build)(const Shape& shape);
  /// Why the algorithm cannot run for this many ranks, or an empty text if it can.
  std::string (*refuse)(int size);
  Cost (*cost)(int size, int depth);
  /// Any rank may run at any place: the result is the same but for the order of the sum.
  bool any_order = false;
};

std::span<const Algorithm> algorithms();
/// Finds an algorithm by its name or HCCL's word; null if the operation has no such algorithm.
const Algorithm* find(Op op, std::string_view name);

/// The algorithm to run and its parameters, computed from numbers that are equal on all ranks, so
/// all ranks choose alike.
struct Choice {
  const Algorithm* algorithm = nullptr;
  int depth = 1;  ///< Shape::depth
  int hosts = 1;  ///< Shape::hosts
  int lanes = 1;  ///< slices of the vector that run the schedule concurrently
  /// Most bytes of a slice; 0: as many as the staging memory allows.
  std::size_t slice = 0;
  std::string reason;  ///< for HCCL_LOG=info
};

}  // namespace hccl::schedule
