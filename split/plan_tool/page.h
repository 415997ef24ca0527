// The page, and the mark in it that the analysis replaces.
#pragma once

namespace hccl::split::plan_tool {

inline constexpr char kPlaceOfData[] = "{\"place\":\"of data\"}";
extern const char kPage[];  ///< page.html, which the build compiles into the program

}  // namespace hccl::split::plan_tool
