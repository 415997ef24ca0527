// What waits for other ranks: for Ctrl-C, which TensorFlow does not look at while it runs.
#pragma once

#include "hccl/hccl_comm.h"

namespace hccl::tf {

/// While it lives, an operation of the communicator may wait for other ranks.
class Waiting {
 public:
  explicit Waiting(HcclComm comm);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  HcclComm comm_;
};

}  // namespace hccl::tf
