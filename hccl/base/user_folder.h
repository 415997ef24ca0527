// The folders in which the processes of one user find each other on a host. The names depend on the
// user's number alone, because processes of one job may have different environments. They are in
// directories in which everybody makes names, so another user may hold the plain name: a random end
// makes another one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/fd.h"
#include "hccl/base/status.h"

namespace hccl {

/// A folder that this user owns, of mode 0700.
struct UserFolder {
  Fd fd;
  std::string path;
};

/// All that exist: in each place hccl-<uid>, then hccl-<uid>-*. What others own is skipped.
std::vector<UserFolder> user_folders(const std::vector<std::string>& places);

/// The folder for new files: the first place's that has one or lets this user make one. kPara names
/// what is in the way.
Result<UserFolder> user_folder(const std::vector<std::string>& places);

/// The names in a directory that begin with the prefix, sorted. None if it cannot be read.
std::vector<std::string> names_in(int directory, std::string_view prefix);

}  // namespace hccl
