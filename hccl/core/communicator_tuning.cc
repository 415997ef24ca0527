// What a communicator's choices come from: costs that were measured, now or before.
#include <map>
#include <string_view>

#include "hccl/core/communicator.h"
#include "hccl/join/host.h"

namespace hccl::core {

// Only the world measures for HCCL_TUNE_FILE. Its groups take what is known: a measurement is
// collective, and groups are made while others compute.
Status Communicator::tune(const transport::Exchange& exchange, Deadline deadline) {
  bool shared_cores = false;
  std::map<std::string_view, std::vector<std::string>> cores;  // by machine
  for (const int rank : ranks_) {
    const join::wire::Member& member = control_->members()[static_cast<std::size_t>(rank)];
    cores[join::machine_of(member.host)].push_back(member.cores);
  }
  for (const auto& [machine, masks] : cores) {
    if (masks.size() > static_cast<std::size_t>(join::count_cores(masks))) shared_cores = true;
  }
  // On one host all ranks know the same of it.
  const bool cma = local_ != nullptr && two_level_ == nullptr && local_->topology().kernel_copies;
  const TuningKey key = tuner_->key(placement_.hosts, mesh_->name(), shared_cores, cma);
  if (size() > 1 && is_world() && tuner_->wants(key)) {
    const auto failed = [this](const Status& why) {
      return why.with_context(name_ + ": measuring for HCCL_TUNE_FILE");
    };
    const auto measured =
        tuner_->measure(key, size(), *executor_, nullptr, heap_.get(), limits(false));
    if (!measured.ok()) return failed(failure_.fail(measured.status()));
    // All ranks have agreed on the numbers; what rank 0 keeps is nevertheless what counts.
    const auto told = exchange(rank_ == 0 ? Tuner::encode(*measured) : "", deadline);
    if (!told.ok()) return failed(told.status());
    const auto entry = Tuner::decode(told.value().front());
    if (!entry.ok()) return failed(entry.status());
    tuner_->add(*entry, rank_ == 0, log_);
  }
  tuned_ = tuner_->use(key);
  if (two_level_ != nullptr) two_level_->set_costs(tuned_.messages);
  return {};
}

}  // namespace hccl::core
