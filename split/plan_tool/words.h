// Formats numbers for the terminal and the page of hccl-plan.
#pragma once

#include <cstdint>
#include <string>

namespace hccl::split::plan_tool {

std::string ms(double seconds);          ///< "12.345 ms"
std::string megabytes(std::uint64_t n);  ///< "12.35 MB" (a million bytes)
std::string percent(double fraction);    ///< "12.3 %"

/// Replaces control characters except line feeds, so that names from users do not control a
/// terminal.
std::string printable(std::string text);

/// Formats as std::snprintf does, and returns a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

}  // namespace hccl::split::plan_tool
