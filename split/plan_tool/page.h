// The page, and where in it the analysis goes.
#pragma once

namespace hccl::split::plan_tool {

inline constexpr char kPlaceOfData[] = "{\"place\":\"of data\"}";
extern const char kPage[];  ///< page.html, which the build puts into the program

}  // namespace hccl::split::plan_tool
