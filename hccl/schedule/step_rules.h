// Finds the errors of a step that are visible without the steps of other ranks.
#pragma once

#include <string>
#include <vector>

#include "hccl/schedule/symbolic.h"

namespace hccl::schedule {

class StepRules {
 public:
  /// Returns the error ("receives twice into the same place, chunk 3"), or an empty text.
  std::string broken(const Setting& setting, int rank, const Memory& memory, const Step& step);

 private:
  std::string hazards(bool in_place, const Memory& memory, const Step& step);

  std::vector<int> writer_;  // for each cell: number of the receive that writes it, or -1
};

}  // namespace hccl::schedule
