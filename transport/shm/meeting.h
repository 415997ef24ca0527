// The named UNIX socket to which the ranks of one host connect while their mesh opens.
#pragma once

#include <string>

#include "hccl/base/fd.h"
#include "hccl/base/status.h"
#include "transport/transport.h"

namespace hccl::transport::shm {

/// A listener in a directory that only this user can enter. The destructor removes both. create()
/// removes the directories and sockets of killed processes.
class Meeting {
 public:
  static constexpr std::size_t kPathCap = 107;  // bytes of a UNIX socket's longest path
  static Result<Meeting> create(const OpenArgs& args);

  Meeting() = default;
  Meeting(Meeting&& other) noexcept;
  Meeting& operator=(Meeting&& other) noexcept;
  ~Meeting() { remove(); }

  std::string path() const { return directory_ + "/s"; }
  /// Removes the socket and its directory. Existing connections stay open.
  void remove();

  Fd listener;

 private:
  Fd lock_;  // the directory's lock, taken before the socket is made
  std::string directory_;
};

}  // namespace hccl::transport::shm
