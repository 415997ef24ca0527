#include "hccl/base/text.h"

#include <sys/resource.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace hccl {

std::optional<std::uint64_t> decimal(std::string_view text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.size() > 10 || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::string limit_text(int error) {
  struct Limit {
    int error;
    __rlimit_resource of;
    const char* what;
  };
  constexpr Limit kLimits[] = {
      {EMFILE, RLIMIT_NOFILE, " descriptors; raise the limit (ulimit -n)"},
      {ENOMEM, RLIMIT_AS, " bytes of addresses; raise the limit (ulimit -v)"},
      {ENOMEM, RLIMIT_DATA, " bytes of data; raise the limit (ulimit -d)"},
      {EFBIG, RLIMIT_FSIZE, " bytes in a file; raise the limit (ulimit -f)"},
  };
  std::string text;
  for (const Limit& each : kLimits) {
    rlimit limit{};
    if (each.error != error || ::getrlimit(each.of, &limit) != 0) continue;
    if (limit.rlim_cur == RLIM_INFINITY) continue;
    text += ": this process may have at most " + std::to_string(limit.rlim_cur) + each.what;
  }
  return text;
}

std::string error_text(int error) {
  std::string text = std::strerror(error) + limit_text(error);
  if (error == EBADF || error == ENOTSOCK) {
    text +=
        ": the program has closed a descriptor of the library, or put a file of its own in its "
        "place (closefrom, close, dup2)";
  } else if (error == ENFILE) {
    text += ": this machine has no more descriptors (sysctl fs.file-max)";
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

}  // namespace hccl
