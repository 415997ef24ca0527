#include "hccl/join/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "hccl/base/auth.h"
#include "hccl/base/fd.h"
#include "hccl/base/log.h"

namespace hccl::join {
namespace {

constexpr std::size_t kSecretCap = std::size_t{64} << 10;
constexpr std::size_t kLeastSecret = 16;

// Whether a stranger could find the secret by trying. Newlines at the end of the secret do not
// count.
bool is_guessable(std::string_view secret) {
  secret = secret.substr(0, secret.find_last_not_of("\r\n") + 1);
  return secret.size() < kLeastSecret ||
         secret.find_first_not_of(secret.front()) == std::string_view::npos;
}

// Memory for one secret, wiped by the destructor.
struct Room {
  std::vector<char> bytes = std::vector<char>(kSecretCap + 1);
  ~Room() { ::explicit_bzero(bytes.data(), bytes.size()); }
};

}  // namespace

Result<Key> read_secret_file(const std::string& path) {
  const auto refuse = [&](Code code, const std::string& why) {
    return Status(code, "EI0001: secret file \"" + path + "\" (HCCL_JOB_SECRET_FILE) " + why);
  };
  const auto failed = [&](const std::string& what) {
    return refuse(Code::kOpenFileFailure, what + ": " + std::strerror(errno));
  };
  if (path.empty() || path.find('\0') != std::string::npos) {
    return refuse(Code::kPara, "has no proper name");
  }
  // O_NONBLOCK, because the name may belong to a pipe.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid() && errno == ELOOP) return refuse(Code::kPara, "must not be a symbolic link");
  if (!fd.valid()) return failed("cannot be opened");
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return failed("cannot be examined");
  if (!S_ISREG(info.st_mode)) return refuse(Code::kPara, "must be a regular file");
  if (info.st_uid != ::geteuid()) return refuse(Code::kPara, "must belong to this user");
  if ((info.st_mode & 077) != 0) {
    return refuse(Code::kPara, "must be closed to group and others (chmod 600)");
  }
  Room room;
  auto& bytes = room.bytes;
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = ::read(fd.get(), bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("cannot be read");
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size == 0) return refuse(Code::kPara, "is empty");
  if (size > kSecretCap) return refuse(Code::kPara, "is larger than 64 KiB");
  const std::string_view secret(bytes.data(), size);
  if (is_guessable(secret)) {
    return refuse(Code::kPara,
                  "is easy to guess, as it has less than 16 bytes or repeats one byte: `openssl "
                  "rand -hex 32` makes a good one");
  }
  return digest(secret);
}

Result<Key> job_secret(const std::string& job, const std::string& address, const Config& config) {
  if (!config.job_secret_file.empty()) {
    HCCL_ASSIGN_OR_RETURN(const Key secret, read_secret_file(config.job_secret_file));
    return derive(secret, "job " + job);
  }
  if (!config.allow_insecure) {
    return Status(Code::kPara,
                  "the ranks of this job are on several hosts and have no secret in common, so "
                  "anybody could join: `(umask 077; openssl rand -hex 32 > $HOME/hccl-secret)` "
                  "makes one; give each host a copy of it and each rank HCCL_JOB_SECRET_FILE="
                  "$HOME/hccl-secret (or HCCL_ALLOW_INSECURE=1, to do without)");
  }
  make_logger(config.log_level, "join")
      ->warn(
          "HCCL_ALLOW_INSECURE=1: this job has no secret; anybody who reaches {} can join, and "
          "read and change its data",
          address);
  return derive(digest("uid " + std::to_string(::geteuid())), "job " + job);
}

}  // namespace hccl::join
