// How the ranks of one host learn the root info of a job that no launcher carries it for: rank 0
// writes it to a file that only this user can read, and the other ranks wait for that file.
#pragma once

#include <string>

#include "hccl/base/bytes.h"
#include "hccl/base/deadline.h"
#include "hccl/base/fd.h"
#include "hccl/base/status.h"
#include "hccl/join/root_info.h"

namespace hccl::join {

/// Rank 0's end: the file, from its creation until this object goes. While it lives it holds a lock
/// on the file, which ends with its process: a file without a lock is left over from a job that was
/// killed; nobody reads it, and the next job of this user removes it.
class HostRoot {
 public:
  /// `runtime_dir` is XDG_RUNTIME_DIR; where that is not a directory of this user's, closed to
  /// others, the files are in /tmp/hccl-<uid>. `job` names the job, the same on all its ranks.
  /// kPara for a directory that others own or can enter. While a job of the same name and user is
  /// joining, waits; kUnavail at the deadline.
  static Result<HostRoot> create(const std::string& runtime_dir, const std::string& job,
                                 Deadline deadline);
  HostRoot(HostRoot&&) = default;
  HostRoot& operator=(HostRoot&&) = delete;
  ~HostRoot();

  /// Lets the other ranks have the info.
  Status write(const RootInfo& info) const;

 private:
  HostRoot(Fd folder, std::string name, Fd file)
      : folder_(std::move(folder)), name_(std::move(name)), file_(std::move(file)) {}
  Fd folder_;
  std::string name_;
  Fd file_;
};

/// The other ranks' end: waits until rank 0 has written. kTimeout at the deadline.
Result<RootInfo> find_host_root(const std::string& runtime_dir, const std::string& job,
                                Deadline deadline);

}  // namespace hccl::join
