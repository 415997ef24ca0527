#pragma once

#include <functional>
#include <string>
#include <utility>

#include "hccl/hccl_comm.h"

namespace hccl::pytorch {

/// Throws torch.distributed.DistBackendError with the library's text, unless the call succeeded.
void check(HcclResult result, const char* operation);
/// What check() throws, as text.
std::string failure_text(HcclResult result, const char* operation);

/// What c10d's assertions call with their text: a RuntimeError that names the operation.
class Refusal {
 public:
  using Tell = std::function<void(const std::string& text)>;
  /// `tell` lets the other ranks know.
  explicit Refusal(const char* operation, Tell tell = {})
      : operation_(operation), tell_(std::move(tell)) {}
  void operator()(const std::string& text) const;

 private:
  const char* operation_;
  Tell tell_;
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
