// How the ranks of one host get the root info of a job whose launcher does not carry root info:
// rank 0 writes the root info to a file that only this user can read, and the other ranks wait for
// that file.
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

/// The side of rank 0: owns the file, and removes the file in the destructor. The object holds a
/// lock on the file, and the lock ends with the process. A file without a lock is left over from a
/// job that was killed: no rank reads it, and the next job of this user removes it.
class HostRoot {
 public:
  /// `places`: see Config::meeting_places. `job` names the job, the same on all its ranks. kPara if
  /// this user can have a folder in none of `places`. kUnavail while a job with the same name and
  /// user is joining. `open_unshared` opens the file, whose lock must end with this process.
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

/// Remembers for an hour that two jobs of this name came at about the same time. Ignores failures.
void remember_contest(const std::vector<std::string>& places, const std::string& job);
/// Whether two jobs of this name came since this process started: then the process may belong to
/// either job.
bool was_contested(const std::vector<std::string>& places, const std::string& job);

/// The error for the ranks of a job whose name another job has.
Status name_is_taken();

/// The side of the other ranks: waits until rank 0 has written the root info. kTimeout at the
/// deadline. Fails at once if was_contested().
Result<RootInfo> find_host_root(const std::vector<std::string>& places, const std::string& job,
                                Deadline deadline);

}  // namespace hccl::join
