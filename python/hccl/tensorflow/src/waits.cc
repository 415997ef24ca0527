#include "waits.h"

#include <cstdint>
#include <mutex>
#include <set>

#include "hccl/hccl_framework.h"

namespace hccl::tf {
namespace {

struct Waits {
  std::mutex mutex;
  WaitingOps ops;
  std::uint64_t ended = 0;
};

// Never destroyed: TensorFlow may run ops until the process ends.
Waits& waits() {
  static Waits* const made = new Waits;
  return *made;
}

}  // namespace

Waiting::Waiting(HcclComm comm, WaitingOp op) {
  const std::lock_guard lock(waits().mutex);
  const auto [begin, end] = waits().ops.equal_range(comm);
  for (auto each = begin; op.run != kAnyRun && each != end; ++each) {
    const auto& [run, name] = each->second;
    if (run != kAnyRun && run != op.run) beside_ = name;
  }
  place_ = waits().ops.emplace(comm, op);
}

Waiting::~Waiting() {
  const std::lock_guard lock(waits().mutex);
  waits().ops.erase(place_);
  ++waits().ended;
}

}  // namespace hccl::tf

/// Returns 0 if no operation waits. Otherwise returns a number that changes when an operation ends.
extern "C" __attribute__((visibility("default"))) std::uint64_t hccl_tf_waits() {
  auto& waits = hccl::tf::waits();
  const std::lock_guard lock(waits.mutex);
  return waits.ops.empty() ? 0 : waits.ended + 1;
}

/// Ends the waiting operations, on all ranks.
extern "C" __attribute__((visibility("default"))) void hccl_tf_abort_waits(const char* reason) {
  auto& waits = hccl::tf::waits();
  std::set<HcclComm> comms;
  {
    const std::lock_guard lock(waits.mutex);
    for (const auto& [comm, op] : waits.ops) comms.insert(comm);
  }
  for (HcclComm comm : comms) static_cast<void>(HcclCommAbort(comm, reason));
}
