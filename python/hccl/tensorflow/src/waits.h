// Records operations that wait for other ranks. Ctrl-C, which TensorFlow ignores while it runs,
// ends these operations. The record also reveals threads that call collectives of one communicator
// at the same time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "hccl/hccl_comm.h"

namespace hccl::tf {

/// A part of the program in which collectives have an order: a session.run, a call of a function
/// or, for ops outside graphs, a thread. kAnyRun is for operations that ranks do not match by their
/// order.
using RunNumber = std::uint64_t;
inline constexpr RunNumber kAnyRun = 0;

struct WaitingOp {
  RunNumber run;
  std::string_view name;
};
using WaitingOps = std::multimap<HcclComm, WaitingOp>;

/// While this object lives, it records that an operation of the communicator may be waiting for
/// other ranks.
class Waiting {
 public:
  explicit Waiting(HcclComm comm) : Waiting(comm, {kAnyRun, {}}) {}
  Waiting(HcclComm comm, WaitingOp op);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  /// Returns the name of an operation of another run that was waiting on the communicator when this
  /// object was made, or an empty string.
  const std::string& beside() const { return beside_; }

 private:
  WaitingOps::iterator place_;
  std::string beside_;
};

}  // namespace hccl::tf
