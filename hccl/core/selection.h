// Chooses the algorithms that a communicator runs: remembers the choices of its selectors, logs
// them with HCCL_LOG=info, and holds the costs on which they depend.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/mutex.h"
#include "hccl/base/waiter.h"
#include "hccl/core/known_costs.h"
#include "hccl/core/membership.h"
#include "hccl/exec/executor.h"
#include "hccl/exec/local_engine.h"
#include "hccl/exec/two_level.h"
#include "hccl/select/local_selector.h"
#include "hccl/select/message_costs.h"
#include "transport/transport.h"

namespace hccl::core {

class Selection {
 public:
  /// `is` must outlive the object. `parent`: the selection of the communicator from which this
  /// group was made, or null. A group uses the costs of its world.
  Selection(const Membership& is, const Selection* parent);

  // ---- opening ----

  /// Returns whether accept() must be called with the result of rank 0's offer().
  bool asks() const { return known_ == nullptr; }
  std::string offer() const { return KnownCosts::offer(is_.config, is_.log); }
  Status accept(std::string_view offer);

  struct Engines {
    std::string_view transport;
    exec::Executor& executor;
    exec::LocalEngine* local;   ///< null: the ranks of a host do not share memory
    exec::TwoLevel* two_level;  ///< null: `local` joins all ranks
    memory::Heap* heap;         ///< for trials in device memory; may be null
  };
  /// Probes the ranks of a host, unless the parent communicator has probed them. Measures messages
  /// if the file that HCCL_TUNE_FILE names lacks their costs. Collective. The errors are those of
  /// operations.
  Status open(const Engines& engines, const Waiter& limits);

  // ---- choosing; by the thread that runs operations ----

  /// Returns whether the ranks run the operation by load and store. If HCCL_ALGO names an algorithm
  /// at level 1, which is remote, the result is false.
  bool is_local(Op op) const { return local_ops_[index(op)]; }
  const schedule::Choice& choose(const Call& call, bool strict);
  /// Records the local algorithm of a finished operation, which may be the local part of an
  /// operation between hosts.
  void ran(const Call& call, std::uint64_t sequence, const select::LocalChoice& choice);
  void ran_between(const Call& call, const schedule::Choice& choice);
  /// Returns true if the kernel refused in the last operation to copy between the ranks of this
  /// host. All ranks of the host return the same, and later operations avoid such copies.
  bool lost_kernel_copies(exec::LocalEngine& engine);

  // ---- any thread, once the selection is open ----

  /// Returns the algorithm of the last collective of this kind; "" before the first.
  std::string algorithm(Op op) const;
  /// Returns whether predict_ns() uses costs that were measured on this machine.
  bool is_measured(Op op) const {
    return is_local(op) ? measured_.has_value() : messages_.has_value();
  }
  /// Returns the predicted time of an operation whose longest input has this many bytes; 0:
  /// unknown. reachable: the buffers are device memory, or belong to ranks of one process.
  double predict_ns(Op op, std::uint64_t bytes, bool reachable) const;
  /// An algorithm, with the fields of HcclAlgorithmInfo.
  struct Described {
    std::string_view name;
    bool local;
    bool eligible;
    bool chosen;
    double predicted_ns;  ///< 0: unknown
    std::string reason;   ///< why it was chosen or refused
  };
  /// Describes all algorithms for an operation. The arguments are those of predict_ns().
  std::vector<Described> describe(Op op, std::uint64_t bytes, bool reachable) const;

 private:
  static std::size_t index(Op op) { return static_cast<std::size_t>(op); }
  Status open_local(const Engines& engines, const select::CostKey& key);
  Result<select::LocalCosts> local_costs(const Engines& engines, const select::CostKey& key);
  Status measure(const Engines& engines, const select::CostKey& key, const Waiter& limits);
  schedule::Choice choose_remote(Op op, std::uint64_t bytes, std::string_view wanted,
                                 bool round_once = false) const;
  std::uint64_t vector_bytes(Op op, std::uint64_t input) const;
  bool is_news(std::array<std::uint32_t, 65>& told, std::uint64_t bytes, std::uint32_t mark);

  const Membership& is_;
  std::shared_ptr<KnownCosts> known_;
  struct Local {
    local::Topology topology;
    select::LocalCosts costs;
  };
  std::optional<Local> measured_;  // costs of these ranks
  // The costs that the parent's ranks have measured. They do not depend on when the parent opens,
  // so all ranks of a group have the same.
  std::optional<Local> inherited_;
  using Selector = std::shared_ptr<const select::LocalSelector>;
  Selector local() const {
    const MutexLock lock(mutex_);
    return local_;
  }
  void set_local(exec::LocalEngine& engine, const select::LocalCosts& costs);
  mutable Mutex mutex_;
  Selector local_ HCCL_GUARDED_BY(mutex_);  // a copy of the engine's; null: no shared memory
  std::optional<select::MessageCosts> messages_;
  select::MessageCosts usual_messages_;  // for predictions if no costs were measured
  std::string source_;
  std::array<bool, select::kOps> local_ops_{};

  struct Chosen {
    std::uint64_t bytes = ~std::uint64_t{0};
    bool strict = false;
    bool rounds = false;
    schedule::Choice choice;
  };
  // The choices for a few sizes of each operation, so that a program that alternates between sizes
  // does not repeat the choice.
  static constexpr std::size_t kRemembered = 8;
  std::array<std::array<Chosen, kRemembered>, select::kOps> chosen_;
  // Names of the last algorithms. Each ends with a zero byte, as literals do.
  std::array<std::atomic<const char*>, select::kOps> last_{};
  // The last choice that was logged for each operation and power of two of bytes.
  std::array<std::array<std::uint32_t, 65>, select::kOps> told_{};
  std::array<std::uint32_t, 65> told_between_{};
};

}  // namespace hccl::core
