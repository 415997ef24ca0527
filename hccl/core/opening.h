// Opens the parts of a communicator, such as its mesh. All ranks open them together.
#pragma once

#include <functional>
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
  /// Opens the mesh for operations. `waits` is called every 0.4 s while other ranks are late.
  Result<std::unique_ptr<transport::Mesh>> mesh(Deadline deadline, std::function<void()> waits);
  /// Opens the engine for the ranks of this host. Returns null if the ranks of any host share no
  /// memory, or if there are several hosts and Placement::even_hosts is the number of ranks. The
  /// engine uses `waiter` in each operation.
  Result<std::unique_ptr<exec::LocalEngine>> local(transport::Mesh& mesh, Waiter waiter,
                                                   Deadline deadline);
  /// Opens the mailbox's own mesh, which uses no shared memory, among the ranks that have not left.
  /// A rank that needs the mesh summons the other ranks. May run at the same time as other steps.
  Result<Mailbox::Opened> mailbox(const AbortFlag& abort) const;

 private:
  transport::OpenArgs arguments(Deadline deadline) const;
  /// Exchanges one text of each of these world ranks through the root. Returns the texts by rank of
  /// the communicator; the texts of other ranks are empty.
  Result<std::vector<std::string>> gather(const std::string& what, const std::vector<int>& ranks,
                                          const std::string& mine, Deadline deadline,
                                          const AbortFlag& abort,
                                          const std::function<void()>& waits = {}) const;

  const Membership& is_;
  Failure& failure_;
  int exchanges_ = 0;
};

}  // namespace hccl::core
