#include "split/plan_tool/words.h"

#include <cstdarg>
#include <cstdio>

namespace hccl::split::plan_tool {

std::string format(const char* pattern, ...) {
  std::va_list arguments;
  va_start(arguments, pattern);
  std::va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, pattern, arguments);
  va_end(arguments);
  std::string text(length > 0 ? static_cast<std::size_t>(length) : 0, '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  return text;
}

std::string ms(double seconds) {
  const std::string text = format("%.3f ms", seconds * 1e3);
  return text == "-0.000 ms" ? "0.000 ms" : text;
}

std::string megabytes(std::uint64_t n) { return format("%.2f MB", static_cast<double>(n) / 1e6); }

std::string percent(double fraction) { return format("%.1f %%", 100 * fraction); }

}  // namespace hccl::split::plan_tool
