// The folders in which the processes of one user find each other on a host. The names depend only
// on the user's number, because processes of one job may have different environments. The folders
// lie in directories where everybody can make files. If another user has taken the plain name, the
// folder's name gets a random suffix.
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

/// Returns all existing folders of this user: in each place hccl-<uid>, then hccl-<uid>-*. Skips
/// folders that others own.
std::vector<UserFolder> user_folders(const std::vector<std::string>& places);

/// Returns the folder for new files, from the first place that has such a folder or lets this user
/// make one. kPara: no place does; the text gives the reasons.
Result<UserFolder> user_folder(const std::vector<std::string>& places);

/// Returns the names in a directory that begin with the prefix, sorted. Empty if the directory
/// cannot be read.
std::vector<std::string> names_in(int directory, std::string_view prefix);

}  // namespace hccl
