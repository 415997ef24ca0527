#pragma once

#include <functional>
#include <string>
#include <utility>

#include "hccl/hccl_comm.h"

namespace hccl::pytorch {

/// Throws torch.distributed.DistBackendError with the library's text if `result` is a failure.
void check(HcclResult result, const char* operation);
/// Returns the text that the exception of check() would have.
std::string failure_text(HcclResult result, const char* operation);

/// Rejects arguments. c10d's assertions call this object with their text. The call throws a
/// RuntimeError that names the operation.
class Refusal {
 public:
  using Report = std::function<void(const std::string& text)>;
  /// `report` sends the text to the other ranks.
  explicit Refusal(const char* operation, Report report = {})
      : operation_(operation), report_(std::move(report)) {}
  void operator()(const std::string& text) const;

 private:
  const char* operation_;
  Report report_;
};

/// A member of objects that a forked child must not use. If the guard was made before the fork,
/// in_child() is true in the child, and check() throws there.
class ForkGuard {
 public:
  ForkGuard();
  bool in_child() const;
  void check() const;

 private:
  int forks_;
};

}  // namespace hccl::pytorch
