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

std::string printable(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool ascii = (c < ' ' && c != '\n') || c == 0x7f;
    // In UTF-8, the control characters 0x80 to 0x9f have 0xc2 before them.
    const bool wide = c >= 0x80 && c < 0xa0 && i > 0 && text[i - 1] == '\xc2';
    if (ascii || wide) text[i] = '?';
    if (wide) text[i - 1] = '?';
  }
  return text;
}

}  // namespace hccl::split::plan_tool
