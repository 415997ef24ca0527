// How the ranks of one host get the root info of a job whose launcher does not carry it: rank 0
// writes it to a file that only this user can read, and the other ranks wait for that file.
#pragma once

#include <string>
#include <vector>

#include "hccl/base/bytes.h"
#include "hccl/base/deadline.h"
#include "hccl/base/fd.h"
#include "hccl/base/status.h"
#include "hccl/join/claim.h"
#include "hccl/join/root_info.h"

namespace hccl::join {

/// Rank 0's end: owns the file, and removes it in the destructor. It holds a lock on the file,
/// which ends with the process. A file without a lock is left over from a job that was killed: no
/// rank reads it, and the next job of this user removes it.
class HostRoot {
 public:
  /// `places`: see Config::meeting_places. `job` names the job, the same on all its ranks. kPara if
  /// this user can have no folder. kUnavail while a job with the same name and user is joining.
  /// `open_unshared` opens the file, whose lock must end with this process.
  static Result<HostRoot> create(const std::vector<std::string>& places, const std::string& job,
                                 Deadline deadline, const OpenUnshared& open_unshared);
  HostRoot(HostRoot&&) = default;
  HostRoot& operator=(HostRoot&&) = delete;
  ~HostRoot();

  /// Writes the info for the other ranks.
  Status write(const RootInfo& info) const;

 private:
  HostRoot(Fd folder, std::string name, std::shared_ptr<Fd> file)
      : folder_(std::move(folder)), name_(std::move(name)), file_(std::move(file)) {}
  Fd folder_;
  std::string name_;
  std::shared_ptr<Fd> file_;
};

/// Remembers for an hour that two jobs of this name came about at once. Ignores failures.
void remember_contest(const std::vector<std::string>& places, const std::string& job);
/// Whether two jobs of this name came since this process started: then the process may belong to
/// either job.
bool was_contested(const std::vector<std::string>& places, const std::string& job);

/// The error for the ranks of a job whose name another job has.
Status name_is_taken();

/// The other ranks' end: waits until rank 0 has written. kTimeout at the deadline. An error at once
/// if was_contested().
Result<RootInfo> find_host_root(const std::vector<std::string>& places, const std::string& job,
                                Deadline deadline);

}  // namespace hccl::join
