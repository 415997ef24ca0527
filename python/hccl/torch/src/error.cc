#include "error.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <atomic>

namespace hccl::pytorch {
namespace {

// The number of forks between the process that loaded the module and this process.
std::atomic<int> forks = 0;

void count_forks() {
  static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  TORCH_CHECK(registered == 0, "hccl: pthread_atfork failed");
}

}  // namespace

std::string failure_text(HcclResult result, const char* operation) {
  std::string text = HcclGetLastErrorText();
  if (text.empty()) text = HcclGetErrorString(result);
  // Programs and PyTorch's tests search for " Timed out ".
  const char* prefix = result == HCCL_E_TIMEOUT ? ": Timed out in " : ": ";
  return std::string("hccl ") + operation + prefix + text;
}

void check(HcclResult result, const char* operation) {
  if (result == HCCL_SUCCESS) return;
  TORCH_CHECK_WITH(DistBackendError, false, failure_text(result, operation));
}

void Refusal::operator()(const std::string& text) const {
  const std::string all = std::string("ProcessGroupHccl::") + operation_ + ": " + text;
  if (report_) report_(all);
  TORCH_CHECK(false, all);
}

ForkGuard::ForkGuard() {
  count_forks();
  forks_ = forks.load(std::memory_order_relaxed);
}

bool ForkGuard::in_child() const { return forks.load(std::memory_order_relaxed) != forks_; }

void ForkGuard::check() const {
  TORCH_CHECK(!in_child(),
              "hccl: this process group was made before a fork and belongs to the parent. Make a "
              "new one in the child (init_process_group), or start processes with \"spawn\".");
}

}  // namespace hccl::pytorch
