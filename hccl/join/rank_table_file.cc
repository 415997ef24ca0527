// Reads a rank table from a file that another program may still be writing.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "hccl/base/fd.h"
#include "hccl/base/waiter.h"
#include "hccl/join/json_text.h"
#include "hccl/join/rank_table.h"

namespace hccl::join {
namespace {

constexpr std::size_t kPathCap = 4095;
constexpr std::string_view kSuffix = ".json";
constexpr std::chrono::seconds kPause{1};

Status refuse(Code code, const std::string& path, const std::string& why) {
  return Status(code, "EI0004: rank table \"" + path.substr(0, 256) + "\" " + why);
}

Result<std::string> real_path(const std::string& path) {
  if (path.empty() || path.size() > kPathCap || path.find('\0') != std::string::npos) {
    return refuse(Code::kPara, path, "must have a path of 1 to 4095 bytes");
  }
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  if (real == nullptr) {
    return refuse(Code::kPara, path, std::string("cannot be found: ") + std::strerror(errno));
  }
  std::string resolved(real.get());
  if (!resolved.ends_with(kSuffix)) return refuse(Code::kPara, path, "must have a name in .json");
  return resolved;
}

Result<std::string> read_file(const std::string& path) {
  const auto failed = [&](const char* what) {
    return refuse(Code::kInternal, path, std::string(what) + ": " + std::strerror(errno));
  };
  // O_NONBLOCK, because the name may belong to a pipe.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return failed("cannot be opened");
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return failed("cannot be examined");
  if (!S_ISREG(info.st_mode)) return refuse(Code::kPara, path, "is not a regular file");
  std::string text;
  char piece[1 << 16];
  for (;;) {
    const ssize_t got = ::read(fd.get(), piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("cannot be read");
    if (got == 0) return text;
    text.append(piece, static_cast<std::size_t>(got));
    if (text.size() > JsonLimits().bytes) return refuse(Code::kPara, path, "is larger than 40 MiB");
  }
}

// Whether the table is to be read again: it is JSON with a status other than "completed".
bool incomplete(const std::string& text) {
  const auto parsed = parse_json(text);
  if (!parsed.ok()) return false;
  const JsonNode* status = parsed.value().find("status");
  return status != nullptr && status->type == JsonNode::Type::kString &&
         status->text != "completed";
}

}  // namespace

Result<RankTable> read_rank_table(const std::string& path, Deadline deadline) {
  for (;;) {
    // Resolved again each time: a link may point to another file by now.
    HCCL_ASSIGN_OR_RETURN(const std::string resolved, real_path(path));
    HCCL_ASSIGN_OR_RETURN(const std::string text, read_file(resolved));
    if (!incomplete(text)) {
      auto table = parse_rank_table(text);
      if (!table.ok()) return table.status().with_context("rank table " + path);
      return table;
    }
    if (deadline.expired()) {
      return refuse(Code::kTimeout, path, "still has a status other than \"completed\"");
    }
    nap(kPause, deadline);
  }
}

}  // namespace hccl::join
