#pragma once

#include <string>

#include "hccl/hccl_comm.h"

namespace hccl::pytorch {

/// Throws torch.distributed.DistBackendError with the library's text, unless the call succeeded.
void check(HcclResult result, const char* operation);
/// What check() throws, as text.
std::string failure_text(HcclResult result, const char* operation);

/// What c10d's assertions call with their text: a RuntimeError that names the operation.
class Refusal {
 public:
  explicit Refusal(const char* operation) : operation_(operation) {}
  void operator()(const std::string& text) const;

 private:
  const char* operation_;
};

/// Refuses the use of what was made before a fork, in the child.
class ForkGuard {
 public:
  ForkGuard();
  bool in_child() const;
  void check() const;

 private:
  int forks_;
};

}  // namespace hccl::pytorch
