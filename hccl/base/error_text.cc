#include "hccl/base/error_text.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace hccl {

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

}  // namespace hccl
