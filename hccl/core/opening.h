// Opens the parts of a communicator, such as its mesh. All ranks open them together.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hccl/core/failure.h"
#include "hccl/core/mailbox.h"
#include "hccl/core/membership.h"
#include "hccl/core/selection.h"
#include "hccl/exec/local_engine.h"
#include "transport/transport.h"

namespace hccl::core {

/// All steps are collective, and all ranks take them in this order. Used by one thread at a time.
class Opening {
 public:
  /// Both arguments must outlive the object.
  Opening(const Membership& is, Failure& failure) : is_(is), failure_(failure) {}

  /// Compares the configurations of all ranks; kPara: they differ. The comparison finds absent
  /// ranks early, before a transport waits for them. Rank 0 of the world adds its costs.
  Status compare_configurations(Selection& selection, Deadline deadline);
  /// Opens the mesh for operations. If `summons`, summons the other ranks, and leaves out those
  /// that have left; a mesh without them has no shared memory for local().
  Result<OpenedMesh> mesh(Deadline deadline, bool summons);
  /// Opens the engine for the ranks of this host. Returns null if the ranks of any host share no
  /// memory, or if there are several hosts and Placement::even_hosts is the number of ranks. The
  /// engine uses `waiter` in each operation.
  Result<std::unique_ptr<exec::LocalEngine>> local(transport::Mesh& mesh, Waiter waiter,
                                                   Deadline deadline);
  /// Opens the mailbox's own mesh, which uses no shared memory, among the ranks that have not left.
  /// Summons the other ranks. May run at the same time as other steps.
  Result<OpenedMesh> mailbox(const AbortFlag& abort) const;

 private:
  transport::OpenArgs arguments(Deadline deadline, const AbortFlag& abort) const;
  /// Summons the other ranks, and removes from `args` the ranks that have left. Returns the ranks
  /// that have left, and how.
  Result<std::map<int, Status>> call_roll(const Uuid& scope, transport::OpenArgs& args) const;
  /// Exchanges one text of each rank that is not in `absent` through the root. Returns the texts by
  /// rank; the texts of absent ranks are empty.
  Result<std::vector<std::string>> gather(const std::string& what,
                                          const std::map<int, Status>& absent,
                                          const std::string& mine, Deadline deadline,
                                          const AbortFlag& abort) const;

  const Membership& is_;
  Failure& failure_;
  int exchanges_ = 0;
};

}  // namespace hccl::core
