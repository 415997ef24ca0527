#include "transport/shm/meeting.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <string_view>
#include <utility>

#include "hccl/base/socket.h"
#include "hccl/base/user_folder.h"

namespace hccl::transport::shm {
namespace {

constexpr std::string_view kPrefix = "shm-";
// A directory that has neither a lock nor a socket counts as left behind after this many seconds.
constexpr std::time_t kUnlocked = 60;

Fd open_directory(int at, const char* name) {
  return Fd(::openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

void sweep(int folder) {
  for (const std::string& name : names_in(folder, kPrefix)) {
    const Fd directory = open_directory(folder, name.c_str());
    struct stat info{};
    if (::fstat(directory.get(), &info) != 0 || ::flock(directory.get(), LOCK_EX | LOCK_NB) != 0) {
      continue;
    }
    const bool had_socket = ::unlinkat(directory.get(), "s", 0) == 0;
    if (had_socket || info.st_mtime < ::time(nullptr) - kUnlocked) {
      ::unlinkat(folder, name.c_str(), AT_REMOVEDIR);
    }
  }
}

}  // namespace

Result<Meeting> Meeting::create(const OpenArgs& args) {
  Status last(Code::kNotFound, "there is no place for a socket");
  const Config defaults;
  const Config& config = args.config == nullptr ? defaults : *args.config;
  for (const std::string& place : config.meeting_places) {
    const auto folder = user_folder({place});
    last = folder.status();
    if (last.code() == Code::kSyscall) return last;
    if (!folder.ok()) continue;
    sweep(folder->fd.get());
    std::string directory = folder->path + "/" + std::string(kPrefix) + "XXXXXX";
    if (::mkdtemp(directory.data()) == nullptr) {
      last = syscall_failure("mkdtemp " + directory);
      continue;
    }
    Meeting meeting;
    meeting.directory_ = std::move(directory);
    meeting.lock_ = open_directory(AT_FDCWD, meeting.directory_.c_str());
    if (!meeting.lock_.valid() || ::flock(meeting.lock_.get(), LOCK_EX) != 0) {
      last = syscall_failure("locking " + meeting.directory_);
      continue;
    }
    auto listener = listen_unix(meeting.path());
    if (listener.ok()) {
      meeting.listener = std::move(listener).value();
      return meeting;
    }
    last = listener.status();
  }
  return last;
}

Meeting::Meeting(Meeting&& other) noexcept
    : listener(std::move(other.listener)),
      lock_(std::move(other.lock_)),
      directory_(std::exchange(other.directory_, {})) {}

Meeting& Meeting::operator=(Meeting&& other) noexcept {
  std::swap(listener, other.listener);
  std::swap(lock_, other.lock_);
  std::swap(directory_, other.directory_);
  return *this;
}

void Meeting::remove() {
  if (directory_.empty()) return;
  ::unlink(path().c_str());
  ::rmdir(directory_.c_str());
  directory_.clear();
  lock_.reset();
}

}  // namespace hccl::transport::shm
