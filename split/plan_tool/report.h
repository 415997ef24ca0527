// An analysis as text for a terminal, as JSON, and as a page that shows the JSON.
#pragma once

#include <string>
#include <vector>

#include "split/plan_tool/advice.h"
#include "split/plan_tool/analysis.h"

namespace hccl::split::plan_tool {

struct Report {
  Analysis analysis;
  std::vector<Advice> advice;
  std::vector<Cut> cuts;
  std::vector<std::string> files;  ///< the traces
};

std::string text(const Report& report);
std::string json(const Report& report);
/// A self-contained page.
std::string page(const Report& report);

}  // namespace hccl::split::plan_tool
