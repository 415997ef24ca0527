// The folders in which the processes of one user find each other on a host. The names depend only
// on the user's number, because processes of one job may have different environments. The folders
// lie in directories where everybody can make names. If another user holds the plain name, a random
// end makes another name.
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

/// All existing folders of this user: in each place hccl-<uid>, then hccl-<uid>-*. Skips folders
/// that others own.
std::vector<UserFolder> user_folders(const std::vector<std::string>& places);

/// The folder for new files: that of the first place which has one or lets this user make one.
/// kPara: the text names the obstacle.
Result<UserFolder> user_folder(const std::vector<std::string>& places);

/// The names in a directory that begin with the prefix, sorted. None if it cannot be read.
std::vector<std::string> names_in(int directory, std::string_view prefix);

}  // namespace hccl
