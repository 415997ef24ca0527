// The table of remote algorithms: name, summary, eligibility, cost and builder. Defaults,
// HCCL_ALGO, tests and benchmarks refer to algorithms by these names.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "hccl/schedule/schedule.h"

namespace hccl::schedule {

/// Cost of one rank on the critical path. `bytes` and `folded` are multiples of the vector's size.
struct Cost {
  double steps = 0;
  double bytes = 0;
  double folded = 0;
  /// The number of messages sent or received, whichever is larger. The messages of one step are
  /// concurrent.
  double messages = 0;
};

struct Algorithm {
  Op op;
  std::string_view name;     ///< "ring", "halving_doubling", "double_tree", "direct", "binomial", …
  std::string_view hccl;     ///< its name in HCCL_ALGO ("ring", "H-D_R", "fullmesh", …), or ""
  std::string_view summary;  ///< a description in one sentence
  Schedule (*build)(const Shape& shape);
  /// Returns why the algorithm cannot run with this number of ranks; empty if the algorithm can
  /// run.
  std::string (*refuse)(int size);
  Cost (*cost)(int size, int depth);
  /// True if ranks may swap their positions in the schedule: then only the order of the sum
  /// changes.
  bool any_order = false;
};

std::span<const Algorithm> algorithms();
/// Finds an algorithm by its name or HCCL's name; null if the operation has no such algorithm.
const Algorithm* find(Op op, std::string_view name);

/// The algorithm to run and its parameters. They are computed from numbers that are equal on all
/// ranks, so all ranks make the same choice.
struct Choice {
  const Algorithm* algorithm = nullptr;
  int depth = 1;  ///< Shape::depth
  int hosts = 1;  ///< Shape::hosts
  int lanes = 1;  ///< slices of the vector that run the schedule concurrently
  /// Largest size of a slice in bytes; 0: as many bytes as the staging memory allows.
  std::size_t slice = 0;
  std::string reason;  ///< for HCCL_LOG=info
};

}  // namespace hccl::schedule
