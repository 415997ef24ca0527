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

namespace hccl::join {
namespace {

constexpr std::size_t kSecretCap = std::size_t{64} << 10;
constexpr std::size_t kLeastSecret = 16;

// Whether a stranger could find the secret by trying. The end of a line is not a part of it.
bool is_guessable(std::string_view secret) {
  secret = secret.substr(0, secret.find_last_not_of("\r\n") + 1);
  return secret.size() < kLeastSecret ||
         secret.find_first_not_of(secret.front()) == std::string_view::npos;
}

// Memory for one secret, wiped by the destructor.
class Room {
 public:
  Room() : bytes_(kSecretCap + 1) {}
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() { ::explicit_bzero(bytes_.data(), bytes_.size()); }
  char* data() { return bytes_.data(); }
  std::size_t size() const { return bytes_.size(); }

 private:
  std::vector<char> bytes_;
};

}  // namespace

Result<Key> read_secret_file(const std::string& path) {
  const auto refuse = [&](Code code, const std::string& why) {
    return Status(code, "EI0001: secret file \"" + path + "\" (HCCL_JOB_SECRET_FILE) " + why);
  };
  if (path.empty() || path.find('\0') != std::string::npos) {
    return refuse(Code::kPara, "has no proper name");
  }
  // O_NONBLOCK, because the name may belong to a pipe.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid() && errno == ELOOP) return refuse(Code::kPara, "must not be a symbolic link");
  if (!fd.valid()) {
    return refuse(Code::kOpenFileFailure, std::string("cannot be opened: ") + std::strerror(errno));
  }
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) {
    return refuse(Code::kOpenFileFailure,
                  std::string("cannot be examined: ") + std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return refuse(Code::kPara, "must be a regular file");
  if (info.st_uid != ::geteuid()) return refuse(Code::kPara, "must belong to this user");
  if ((info.st_mode & 077) != 0) {
    return refuse(Code::kPara, "must be closed to group and others (chmod 600)");
  }
  Room room;
  std::size_t size = 0;
  while (size < room.size()) {
    const ssize_t got = ::read(fd.get(), room.data() + size, room.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return refuse(Code::kOpenFileFailure, std::string("cannot be read: ") + std::strerror(errno));
    }
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size == 0) return refuse(Code::kPara, "is empty");
  if (size > kSecretCap) return refuse(Code::kPara, "is larger than 64 KiB");
  if (is_guessable({room.data(), size})) {
    return refuse(Code::kPara,
                  "is easy to guess, as it has less than 16 bytes or repeats one byte: `openssl "
                  "rand -hex 32` makes a good one");
  }
  return digest(std::string_view(room.data(), size));
}

}  // namespace hccl::join
