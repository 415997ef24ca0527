// Gives the reasons for a plan, as texts that a person can check against the time line.
#pragma once

#include <string>
#include <vector>

#include "split/plan_tool/analysis.h"

namespace hccl::split::plan_tool {

/// One of the cases in HCCL's guide to tuning, or of four more.
struct Advice {
  std::string title;  ///< such as "AR1 too late"; AR1 is the first allreduce
  std::string text;
};

/// The problems of the current plan; at least one entry.
Result<std::vector<Advice>> diagnose(const Analysis& analysis, double slack);

struct Cut {
  std::uint32_t after = 0;  ///< last gradient before the cut
  std::string name;
  std::string text;
};

/// Returns the reason for each cut of the best plan.
Result<std::vector<Cut>> explain_cuts(const Analysis& analysis);

/// Returns the call for the best plan, or for today's if that is better, in two lines: "from
/// hccl.split.api import ..." and the call.
std::string python_lines(const Analysis& analysis);

/// Returns a sentence about the gain of sending the newest gradients first; empty if no gain is
/// known.
std::string newest_first_text(const Analysis& analysis);

/// Returns a gradient's number and name: "gradient 12 (fc.weight)".
std::string gradient_text(const Profile& profile, std::uint32_t index);

}  // namespace hccl::split::plan_tool
