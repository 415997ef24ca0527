// Why a plan is as it is, in words that a person can check against the time line.
#pragma once

#include <string>
#include <vector>

#include "split/plan_tool/analysis.h"

namespace hccl::split::plan_tool {

/// The scenes of HCCL's guide to tuning (AR1 is the first allreduce), and two more.
enum class Scene {
  kGood,         ///< nothing to gain
  kTooEarly,     ///< AR1 takes too little and is through long before backward ends
  kTooLate,      ///< AR1 takes too much, starts late, and the others queue behind it
  kAddSegments,  ///< no cut into as many segments is as good as more of them
  kFewer,        ///< fewer segments end as early, or earlier
};

struct Advice {
  Scene scene;
  std::string title;  ///< "AR1 too late"
  std::string text;
};

/// What is wrong with today's plan; at least one.
Result<std::vector<Advice>> diagnose(const Analysis& analysis, double slack);

struct Cut {
  std::uint32_t after = 0;  ///< last gradient before the cut
  std::string name;
  std::string text;
};

/// The reason of each cut of the best plan.
Result<std::vector<Cut>> explain_cuts(const Analysis& analysis);

/// Of each of the best plan's: "from hccl.split.api import ..." and the call, in two lines.
std::string python_lines(const Analysis& analysis);

/// What newest first would be worth, in a sentence; empty if nothing is known.
std::string newest_first_text(const Analysis& analysis);

/// "gradient 12 (fc.weight)".
std::string gradient_text(const Profile& profile, std::uint32_t index);

}  // namespace hccl::split::plan_tool
