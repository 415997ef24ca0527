// What can be wrong with a step that shows without knowing the other ranks.
#pragma once

#include <string>
#include <vector>

#include "hccl/schedule/symbolic.h"

namespace hccl::schedule {

class StepRules {
 public:
  /// Empty, or what is wrong: "receives twice into the same place, chunk 3".
  std::string broken(const Setting& setting, int rank, const Memory& memory, const Step& step);

 private:
  std::string hazards(bool in_place, const Memory& memory, const Step& step);

  std::vector<int> writer_;  // for each place: number of the receive that writes it, or -1
};

}  // namespace hccl::schedule
