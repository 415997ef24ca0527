#include "hccl/join/host_root.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <string_view>
#include <vector>

#include "hccl/base/process.h"
#include "hccl/base/text.h"
#include "hccl/base/thread.h"
#include "hccl/base/waiter.h"
#include "hccl/join/claim.h"
#include "hccl/join/host.h"

namespace hccl::join {
namespace {

constexpr std::string_view kPrefix = "root-";
constexpr std::string_view kContestPrefix = "contest-";
constexpr double kContestSeconds = 3600;
constexpr mode_t kOthers = 077;

Status refused(const std::string& path, const std::string& why) {
  return Status(Code::kPara, "the directory of this user's job secrets, " + path + ", " + why +
                                 ": remove it, or set XDG_RUNTIME_DIR or HCCL_JOB_SECRET_FILE");
}

bool belongs_to_this_user_alone(const struct stat& info) {
  return info.st_uid == ::geteuid() && (info.st_mode & kOthers) == 0;
}

Fd open_folder(int at, const std::string& path) {
  return Fd(::openat(at, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

struct Folder {
  Fd fd;
  std::string path;
};

Result<Folder> folder_of_user(const std::string& runtime_dir) {
  Fd base;
  if (runtime_dir.starts_with('/')) base = open_folder(AT_FDCWD, runtime_dir);
  struct stat info = {};
  // su keeps XDG_RUNTIME_DIR, so the directory may belong to another user.
  if (base.valid() && (::fstat(base.get(), &info) != 0 || !belongs_to_this_user_alone(info))) {
    base.reset();
  }
  const std::string name = base.valid() ? "hccl" : "/tmp/hccl-" + std::to_string(::geteuid());
  const std::string path = base.valid() ? runtime_dir + "/hccl" : name;
  const int at = base.valid() ? base.get() : AT_FDCWD;
  if (::mkdirat(at, name.c_str(), 0700) != 0 && errno != EEXIST) {
    return refused(path, std::string("cannot be made (") + std::strerror(errno) + ")");
  }
  Fd folder = open_folder(at, name);
  if (!folder.valid() || ::fstat(folder.get(), &info) != 0) {
    return refused(path, std::string("cannot be opened (") + std::strerror(errno) + ")");
  }
  if (!belongs_to_this_user_alone(info)) {
    return refused(path, "belongs to another user or is open to others");
  }
  return Folder{std::move(folder), path};
}

// The ranks of several network namespaces, as those of containers, may share the directory, but not
// the root's address.
std::string file_of(std::string_view prefix, const std::string& job) {
  return std::string(prefix) + digest_name("net " + own_namespace("net") + " job " + job);
}

// These locks belong to an open file, not to a process, because ranks may be threads.
struct flock whole_file() {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

bool somebody_holds(int file) {
  struct flock lock = whole_file();
  return ::fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

Fd open_file(int folder, const std::string& name) {
  return Fd(::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

double seconds(const timespec& time) {
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double now(clockid_t clock) {
  timespec time = {};
  ::clock_gettime(clock, &time);
  return seconds(time);
}

// The seconds since the last contest. Very many without one.
double contest_age(int folder, const std::string& name) {
  struct stat info = {};
  if (::fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return 1e18;
  return now(CLOCK_REALTIME) - seconds(info.st_mtim);
}

// Removes the files of jobs that were killed, and what need not be remembered. The caller holds the
// folder's lock.
void sweep(int folder) {
  Fd copy = open_folder(folder, ".");
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(copy.get()), &::closedir);
  if (entries == nullptr) return;
  copy.release();
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string name(entry->d_name);
    if (name.starts_with(kContestPrefix) && contest_age(folder, name) > kContestSeconds) {
      ::unlinkat(folder, name.c_str(), 0);
    }
    if (!name.starts_with(kPrefix)) continue;
    const Fd file = open_file(folder, name);
    if (!file.valid() || !somebody_holds(file.get())) ::unlinkat(folder, name.c_str(), 0);
  }
}

// A new file with its lock. An invalid one while another job holds the name.
Result<Fd> create_file(const Folder& folder, const std::string& name) {
  sweep(folder.fd.get());
  Fd file(::openat(folder.fd.get(), name.c_str(),
                   O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid() && errno == EEXIST) return Fd();
  struct flock lock = whole_file();
  if (!file.valid() || ::fcntl(file.get(), F_OFD_SETLK, &lock) != 0) {
    return Status(Code::kOpenFileFailure, "cannot make a file for the job's secret in " +
                                              folder.path + ": " + std::strerror(errno));
  }
  return file;
}

// The info, if a living rank 0 has written it.
Result<RootInfo> read_file(const Folder& folder, const std::string& name) {
  const Status absent(Code::kTimeout, "rank 0 has not written it yet");
  const Fd file = open_file(folder.fd.get(), name);
  struct stat info = {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return absent;
  if (!belongs_to_this_user_alone(info) || !somebody_holds(file.get())) return absent;
  std::array<char, RootInfo::kBytes> bytes{};
  if (::pread(file.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return absent;
  }
  auto root = RootInfo::decode(bytes);
  ::explicit_bzero(bytes.data(), bytes.size());
  return root;
}

// Tries again, at growing intervals, until `attempt` is true or the deadline has passed.
template <class Attempt>
bool again(Deadline deadline, const Attempt& attempt) {
  for (auto pause = std::chrono::milliseconds(1); !attempt();
       pause = std::min(2 * pause, std::chrono::milliseconds(20))) {
    if (deadline.expired()) return false;
    nap(pause, deadline);
  }
  return true;
}

}  // namespace

Result<HostRoot> HostRoot::create(const std::string& runtime_dir, const std::string& job,
                                  Deadline deadline, const Keep& keep) {
  HCCL_ASSIGN_OR_RETURN(Folder folder, folder_of_user(runtime_dir));
  const std::string name = file_of(kPrefix, job);
  Status status;
  std::shared_ptr<Fd> file;
  const bool made = again(deadline, [&] {
    bool locked = false;
    file = keep([&] {
      // Only one rank 0 at a time may look for files without a lock, and make a file that has no
      // lock yet.
      locked = ::flock(folder.fd.get(), LOCK_EX | LOCK_NB) == 0;
      if (!locked) return Fd();
      auto created = create_file(folder, name);
      ::flock(folder.fd.get(), LOCK_UN);
      status = created.status();
      return created.ok() ? std::move(*created) : Fd();
    });
    return locked;
  });
  HCCL_RETURN_IF_ERROR(status);
  if (!made || !file->valid()) {
    return Status(Code::kUnavail,
                  "EI0016: another job of this user with the same name is joining (" + folder.path +
                      "/" + name + "): set HCCL_JOB_ID to a text of its own for each job");
  }
  return HostRoot(std::move(folder.fd), name, std::move(file));
}

Status HostRoot::write(const RootInfo& info) const {
  std::array<char, RootInfo::kBytes> bytes{};
  info.encode(bytes);
  const FilesWithinLimit within;
  const ssize_t written = ::pwrite(file_->get(), bytes.data(), bytes.size(), 0);
  ::explicit_bzero(bytes.data(), bytes.size());
  if (written == static_cast<ssize_t>(bytes.size())) return {};
  return Status(Code::kOpenFileFailure,
                std::string("cannot write the job's secret: ") +
                    (written < 0 && errno != EFBIG ? std::strerror(errno)
                                                   : "the disk is full" + limit_text(EFBIG)));
}

HostRoot::~HostRoot() {
  // The lock is still held, so the name belongs to this file.
  if (file_ != nullptr) ::unlinkat(folder_.get(), name_.c_str(), 0);
}

void remember_contest(const std::string& runtime_dir, const std::string& job) {
  const auto folder = folder_of_user(runtime_dir);
  if (!folder.ok()) return;
  const std::string name = file_of(kContestPrefix, job);
  const Fd file(::openat(folder->fd.get(), name.c_str(),
                         O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (file.valid()) ::futimens(file.get(), nullptr);
}

bool was_contested(const std::string& runtime_dir, const std::string& job) {
  const auto folder = folder_of_user(runtime_dir);
  const double age = now(CLOCK_BOOTTIME) - static_cast<double>(start_of(::getpid())) /
                                               static_cast<double>(::sysconf(_SC_CLK_TCK));
  if (!folder.ok()) return false;
  const double contest = contest_age(folder->fd.get(), file_of(kContestPrefix, job));
  return contest >= 0 && contest < age;  // less than 0: the clock was set back
}

Status name_is_taken() {
  return Status(
      Code::kPara,
      "EI0016: another job of the same name has been started on this host at the same "
      "time. Start this job again, and set HCCL_JOB_ID to a text of its own for each job");
}

Result<RootInfo> find_host_root(const std::string& runtime_dir, const std::string& job,
                                Deadline deadline) {
  HCCL_ASSIGN_OR_RETURN(const Folder folder, folder_of_user(runtime_dir));
  const std::string name = file_of(kPrefix, job);
  Result<RootInfo> info = Status(Code::kTimeout, "");
  bool contested = false;
  if (again(deadline, [&] {
        info = read_file(folder, name);
        contested = !info.ok() && was_contested(runtime_dir, job);
        return info.ok() || contested;
      })) {
    return contested ? name_is_taken() : info;
  }
  return Status(Code::kTimeout,
                "EI0006: rank 0 of this job has not come on this host: it wrote nothing to " +
                    folder.path +
                    ". Ranks that do not share this directory, as those of several hosts, "
                    "containers or users, need HCCL_JOB_SECRET_FILE");
}

}  // namespace hccl::join
