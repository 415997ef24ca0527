// A communicator as one rank sees it: an ordered set of world ranks, the operations and messages of
// these ranks, and a failure state.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "hccl/core/failure.h"
#include "hccl/core/mailbox.h"
#include "hccl/core/membership.h"
#include "hccl/core/opening.h"
#include "hccl/core/operations.h"
#include "hccl/core/run_settings.h"

namespace hccl::core {

class Communicator {
 public:
  /// Makes the communicator of all ranks of the world `control`. Collective. `heap` is this
  /// process's device heap, or null; the other ranks of the host get access to the heap. `siblings`
  /// is shared by all ranks of this process.
  static Result<std::shared_ptr<Communicator>> world(std::shared_ptr<join::World> control,
                                                     std::string name, const Config& config,
                                                     Logger log,
                                                     std::shared_ptr<transport::Siblings> siblings,
                                                     std::shared_ptr<memory::Heap> heap = nullptr);
  /// Makes a communicator of some ranks of this communicator, in the given order. Exactly these
  /// ranks make the call, with the same arguments. `instance` distinguishes successive groups of
  /// one name. `config` must agree among the ranks; null means the config of this communicator.
  /// `patience` is the longest wait for ranks that have not made the call; 0 means the config's
  /// connect_timeout. If `own_name`, each rank may give another name, and `instance` distinguishes
  /// all such groups of the same ranks. The group takes no connections and no shared memory before
  /// its first operation, unless a plugin connects the ranks.
  Result<std::shared_ptr<Communicator>> group(std::string name, const std::vector<int>& ranks,
                                              std::uint64_t instance,
                                              const Config* config = nullptr,
                                              std::chrono::nanoseconds patience = {},
                                              bool own_name = false) const;
  /// Makes a communicator of the ranks in `kept` (ranks of this communicator, in its order) that
  /// live and make this call with the same arguments. This communicator may have failed. The call
  /// does not change this communicator. This communicator may be destroyed first, because the new
  /// communicator keeps this rank in the world. `number` distinguishes the calls for this
  /// communicator. `config`: as in group().
  Result<std::shared_ptr<Communicator>> shrink(std::string name, const std::vector<int>& kept,
                                               std::uint64_t number, const Config* config) const;
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const Membership& membership() const { return is_; }
  int rank() const { return is_.rank; }
  int size() const { return is_.size(); }

  /// Runs the communicator's operations in the order in which they are issued.
  Operations& operations() { return operations_; }
  const Operations& operations() const { return operations_; }

  /// Reports to the other ranks, which may wait for this rank to make a group, that this rank's
  /// call was refused. `text` has the function and the reason.
  void refused_group(const std::string& text);

  /// Returns success in the state READY, and the reason in the state FAILED. Never blocks.
  Status async_error() const { return failure_.reason(); }
  /// The settings that the program may change while the communicator is in use.
  RunSettings& settings() { return settings_; }
  const RunSettings& settings() const { return settings_; }

  /// Ends the communicator and its running operations on all ranks. Any thread may call.
  void abort(const std::string& reason);

  /// Messages with tags, independent of all operations.
  Mailbox& mailbox() { return *mailbox_; }

  /// Reports to the other ranks that the program ends without leave(), so that they do not count
  /// this rank as dead.
  void end_of_program();
  /// Leaves the communicator. In the world, waits a moment for the ranks of other processes to
  /// leave, too. Ranks that wait for this rank in an operation get the error that this rank has
  /// left.
  void leave();

 private:
  Communicator(Membership is, const Selection* parent);

  Status meet(std::chrono::nanoseconds patience);
  void hear_summons();
  void end_opening();

  const Membership is_;
  Failure failure_;
  RunSettings settings_;
  Opening opening_;
  std::shared_ptr<Mailbox> mailbox_;
  Operations operations_;  // declared last, so that its thread ends first
};

}  // namespace hccl::core
