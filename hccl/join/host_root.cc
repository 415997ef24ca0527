#include "hccl/join/host_root.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>
#include <string_view>
#include <vector>

#include "hccl/base/error_text.h"
#include "hccl/base/process.h"
#include "hccl/base/thread.h"
#include "hccl/base/user_folder.h"
#include "hccl/base/waiter.h"
#include "hccl/join/claim.h"
#include "hccl/join/host.h"

namespace hccl::join {
namespace {

constexpr std::string_view kPrefix = "root-";
constexpr std::string_view kContestPrefix = "contest-";
constexpr double kContestSeconds = 3600;

// The name contains the network namespace: ranks of other namespaces (containers) may see the
// directory, but cannot reach the root's address.
std::string file_of(std::string_view prefix, const std::string& job) {
  return std::string(prefix) + digest_name("net " + own_namespace("net") + " job " + job);
}

// A lock on a whole file. The lock belongs to an open file, not to a process, because ranks may be
// threads.
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

// The seconds since the last contest; a very large number if there was none.
double contest_age(int folder, const std::string& name) {
  struct stat info = {};
  if (::fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return 1e18;
  return now(CLOCK_REALTIME) - seconds(info.st_mtim);
}

// Whether a living rank 0 holds the file's lock.
bool is_held(const UserFolder& folder, const std::string& name) {
  const Fd file = open_file(folder.fd.get(), name);
  return file.valid() && somebody_holds(file.get());
}

// Removes the files of jobs that were killed, and the records of contests older than
// kContestSeconds. The caller holds the folder's lock.
void sweep(const UserFolder& folder) {
  const int at = folder.fd.get();
  for (const std::string& name : names_in(at, "")) {
    const bool old = name.starts_with(kContestPrefix) && contest_age(at, name) > kContestSeconds;
    const bool dead = name.starts_with(kPrefix) && !is_held(folder, name);
    if (old || dead) ::unlinkat(at, name.c_str(), 0);
  }
}

// Creates the file and locks it. Returns an invalid descriptor while another job holds the name.
Result<Fd> create_file(const UserFolder& folder, const std::string& name) {
  sweep(folder);
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

// The number of folders in which a living rank 0 holds the lock of this file.
std::ptrdiff_t count_held(const std::vector<std::string>& places, const std::string& name) {
  const auto folders = user_folders(places);
  return std::count_if(folders.begin(), folders.end(),
                       [&](const UserFolder& each) { return is_held(each, name); });
}

// Whether two jobs of this name came since this process started.
bool was_contested(const std::vector<UserFolder>& folders, const std::string& job) {
  const double age = now(CLOCK_BOOTTIME) - static_cast<double>(start_of(::getpid())) /
                                               static_cast<double>(::sysconf(_SC_CLK_TCK));
  const std::string name = file_of(kContestPrefix, job);
  return std::any_of(folders.begin(), folders.end(), [&](const UserFolder& each) {
    const double contest = contest_age(each.fd.get(), name);
    return contest >= 0 && contest < age;  // less than 0: the clock was set back
  });
}

// The info, if a living rank 0 has written it.
Result<RootInfo> read_file(const UserFolder& folder, const std::string& name) {
  const Status absent(Code::kTimeout, "rank 0 has not written it yet");
  const Fd file = open_file(folder.fd.get(), name);
  struct stat info = {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return absent;
  if (info.st_uid != ::geteuid() || (info.st_mode & 077) != 0 || !somebody_holds(file.get())) {
    return absent;
  }
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

Result<HostRoot> HostRoot::create(const std::vector<std::string>& places, const std::string& job,
                                  Deadline deadline, const OpenUnshared& open_unshared) {
  const std::string name = file_of(kPrefix, job);
  std::optional<HostRoot> root;
  Status status;
  again(deadline, [&] {
    if (count_held(places, name) != 0) return true;
    auto folder = user_folder(places);
    status = folder.status();
    if (!status.ok()) return true;
    auto file = open_unshared([&] {
      // The folder's lock lets one rank 0 at a time sweep and create, because a new file is not
      // locked yet, and the sweep of another rank 0 would remove the file.
      if (::flock(folder->fd.get(), LOCK_EX | LOCK_NB) != 0) return Fd();
      auto created = create_file(*folder, name);
      ::flock(folder->fd.get(), LOCK_UN);
      status = created.status();
      return created.ok() ? std::move(*created) : Fd();
    });
    if (!status.ok()) return true;
    if (!file->valid()) return false;
    root.emplace(HostRoot(std::move(folder->fd), name, std::move(file)));
    // Two processes of rank 0 may create a folder each at the same time. So each looks for the
    // other's file after it has created its own. When they try again, both see the same folders.
    if (count_held(places, name) <= 1) return true;
    root.reset();
    return false;
  });
  if (root) return std::move(*root);
  HCCL_RETURN_IF_ERROR(status);
  return Status(Code::kUnavail,
                "EI0016: another job of this user with the same name is joining on this host: set "
                "HCCL_JOB_ID to a text of its own for each job");
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

void remember_contest(const std::vector<std::string>& places, const std::string& job) {
  const auto folder = user_folder(places);
  if (!folder.ok()) return;
  const std::string name = file_of(kContestPrefix, job);
  const Fd file(::openat(folder->fd.get(), name.c_str(),
                         O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (file.valid()) ::futimens(file.get(), nullptr);
}

bool was_contested(const std::vector<std::string>& places, const std::string& job) {
  return was_contested(user_folders(places), job);
}

Status name_is_taken() {
  return Status(
      Code::kPara,
      "EI0016: another job of the same name has been started on this host at the same "
      "time. Start this job again, and set HCCL_JOB_ID to a text of its own for each job");
}

Result<RootInfo> find_host_root(const std::vector<std::string>& places, const std::string& job,
                                Deadline deadline) {
  const std::string name = file_of(kPrefix, job);
  std::vector<UserFolder> folders;
  Deadline listed = Deadline::after({});
  Result<RootInfo> info = Status(Code::kTimeout, "");
  const auto look = [&] {
    if (listed.expired()) {  // listing many names is slow, so lists for at most 1/20 of the time
      const auto began = Deadline::Clock::now();
      folders = user_folders(places);
      listed = Deadline::after(std::min<Deadline::Clock::duration>(
          20 * (Deadline::Clock::now() - began), std::chrono::seconds(1)));
    }
    for (const UserFolder& each : folders) {
      info = read_file(each, name);
      if (info.ok()) return true;
    }
    return was_contested(folders, job);
  };
  if (again(deadline, look)) return info.ok() ? info : name_is_taken();
  return Status(Code::kTimeout,
                "EI0006: rank 0 of this job has not come on this host: it wrote nothing to " +
                    places.front() + "/hccl-" + std::to_string(::geteuid()) +
                    ". Its rank table, or its MASTER_ADDR, MASTER_PORT or HCCL_JOB_ID, may differ "
                    "from this rank's. Ranks that do not share this directory, as those of several "
                    "hosts, containers or users, need HCCL_JOB_SECRET_FILE, and in a rank table a "
                    "server for each host or container");
}

}  // namespace hccl::join
