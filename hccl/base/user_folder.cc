#include "hccl/base/user_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "hccl/base/error_text.h"

namespace hccl {
namespace {

std::string plain_name() { return "hccl-" + std::to_string(::geteuid()); }

// Opens a folder of mode 0700 that this user owns; else returns nothing. Sets errno if open()
// fails.
std::optional<UserFolder> open_own(std::string path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info = {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return std::nullopt;
  if (info.st_uid != ::geteuid() || (info.st_mode & 0777) != 0700) return std::nullopt;
  return UserFolder{std::move(fd), std::move(path)};
}

// Returns a folder of this user in the place, or the reason why there is none.
Result<UserFolder> folder_in(const std::string& place) {
  const std::string path = place + "/" + plain_name();
  std::string reason;
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) reason = ": " + error_text(errno);
  if (auto plain = open_own(path)) return std::move(*plain);
  if (errno == EMFILE || errno == ENFILE) {
    return Status(Code::kSyscall, "open " + path + ": " + error_text(errno));
  }
  // Uses an existing folder again, so that the number of folders does not grow.
  if (auto others = user_folders({place}); !others.empty()) return std::move(others.front());
  std::string made = path + "-XXXXXX";
  std::string no_other = ", and " + path + "-XXXXXX ";
  if (::mkdtemp(made.data()) == nullptr) {
    no_other += "cannot be made: " + error_text(errno);
  } else {
    // The other ranks must find the folder in this list, too.
    if (auto others = user_folders({place}); !others.empty()) return std::move(others.front());
    ::rmdir(made.c_str());
    no_other += "is not found in the list of " + place + ", or not open to its owner";
  }
  struct stat info = {};
  if (::lstat(path.c_str(), &info) == 0) {
    reason = " belongs to user " + std::to_string(info.st_uid);
    if (info.st_uid == ::geteuid()) reason += " and is not a folder of mode 0700";
  }
  return Status(Code::kPara, path + reason + no_other);
}

}  // namespace

std::vector<UserFolder> user_folders(const std::vector<std::string>& places) {
  std::vector<UserFolder> folders;
  std::vector<std::pair<dev_t, ino_t>> known;  // two places may be one directory
  const auto add = [&](const std::string& path) {
    auto own = open_own(path);
    struct stat info = {};
    if (!own || ::fstat(own->fd.get(), &info) != 0) return;
    const std::pair id(info.st_dev, info.st_ino);
    if (std::find(known.begin(), known.end(), id) != known.end()) return;
    known.push_back(id);
    folders.push_back(std::move(*own));
  };
  for (const std::string& place : places) {
    // Tries the plain name first, because this user may be unable to list the place.
    add(place + "/" + plain_name());
    const Fd directory(::open(place.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (const std::string& name : names_in(directory.get(), plain_name() + "-")) {
      add(place + "/" + name);
    }
  }
  return folders;
}

Result<UserFolder> user_folder(const std::vector<std::string>& places) {
  std::string reasons;
  for (const std::string& place : places) {
    auto folder = folder_in(place);
    // kSyscall: no descriptor is free, so this process cannot look at the other places either.
    if (folder.ok() || folder.status().code() == Code::kSyscall) return folder;
    reasons += (reasons.empty() ? "" : "; ") + folder.status().message();
  }
  return Status(Code::kPara, "this user has no folder in which ranks can meet (" + reasons +
                                 "): ask the owners of these names to remove them");
}

std::vector<std::string> names_in(int directory, std::string_view prefix) {
  std::vector<std::string> names;
  Fd copy(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(copy.get()), &::closedir);
  if (entries == nullptr) return names;
  copy.release();
  while (const dirent* const entry = ::readdir(entries.get())) {
    if (std::string_view(entry->d_name).starts_with(prefix)) names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace hccl
