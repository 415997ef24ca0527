// Runs collectives between the ranks of one host: announces the operation, waits for the peers,
// lets the selector choose, and runs the local algorithm (hccl/local).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "hccl/base/host_memory.h"
#include "hccl/kernels/store_rule.h"
#include "hccl/local/algorithm.h"
#include "hccl/memory/heap.h"
#include "hccl/select/local_selector.h"

namespace hccl::exec {

/// Belongs to one communicator, all of whose ranks of this host take part; used by one thread at a
/// time, but for lost() and wake(). Allocates nothing in an operation.
class LocalEngine {
 public:
  static std::size_t region_bytes(int ranks) { return local::Region::bytes(ranks); }

  /// `memory` outlives it. `heap`: this process's device heap, or null. `streams`: when a result is
  /// worth storing past the caches; need not be the same on all ranks. The rest as Region's.
  LocalEngine(const HostMemory& memory, std::shared_ptr<const memory::Heap> heap,
              const kernels::StoreRule& streams, Waiter waiter, WaitPolicy background);

  /// Maps what the ranks share, and finds out whether the kernel may copy between their memory,
  /// unless `kernel_copies` is false. Collective, once every rank has its engine. A failure is that
  /// of a wait.
  Status open(bool kernel_copies);
  /// Of the operations that begin from now on.
  void set_timeout(std::chrono::nanoseconds timeout) { region_.set_timeout(timeout); }
  /// The same on all ranks, from open() on.
  const local::Topology& topology() const { return topology_; }
  /// From the next operation on; all ranks set the same between the same operations.
  void set_selector(select::LocalSelector selector);
  const select::LocalSelector& selector() const { return selector_; }
  /// In place of the selector's: a probe that compares.
  void set_tuning(const local::Tuning& tuning) { tuning_ = tuning; }

  /// Runs a collective to its end; `envelope` is the call's. It runs by `forced` where that is
  /// given and can run the case; else by the selector's choice. kPara: the ranks disagree;
  /// kTimeout; or the reason of the abort. After a failure it is of no more use.
  Status run(const Call& call, const Envelope& envelope, const local::Algorithm* forced = nullptr) {
    begin(call, envelope, forced);
    return finish();
  }
  /// The same in two steps, for a caller that has something to do while its peers learn that this
  /// rank has come. `call` and `envelope` outlive the second step.
  void begin(const Call& call, const Envelope& envelope, const local::Algorithm* forced = nullptr);
  Status finish();

  /// As Waiter::progress, of every wait until this is set anew.
  void set_progress(const std::function<Status()>& progress) { region_.set_progress(progress); }
  /// This rank of the communicator, if it is of this host, is dead and uses no buffers any more.
  /// Any thread.
  void lost(int rank) { region_.lost(rank); }
  /// Lets an operation that sleeps look at the abort flag. Any thread.
  void wake() { region_.wake(); }

  int ranks() const { return region_.size(); }
  /// What the last operation ran by, and why; null where it failed before that was chosen.
  const select::LocalChoice* last_choice() const { return choice_; }
  /// Whether the operation that has just ended took a few microseconds at most: its input was short
  /// and its peers were there. Never where cores are shared: a rank that gets the core keeps it.
  bool quick() const;

 private:
  /// A few recent choices, so that operations that take turns are not chosen for again.
  struct Remembered {
    local::Case of{.bytes = ~std::uint64_t{0}};
    select::LocalChoice choice;
  };
  struct Expectation : Remembered {
    bool depends = true;  ///< on the memory
  };
  template <class Entry>
  class Recent {
   public:
    Entry& at(Op op, std::uint64_t bytes) {
      // The product's upper bits spread sizes that are multiples of one another.
      const std::uint64_t hash = (bytes + static_cast<std::uint64_t>(op)) * 0x9E3779B97F4A7C15u;
      return table_[hash >> 60 & (table_.size() - 1)];
    }
    void forget() { table_.fill({}); }

   private:
    std::array<Entry, 16> table_;
  };

  void choose_eager();
  void describe();
  Status rendezvous();
  Status run_rendezvous();
  local::Case read_descriptors();
  void tell_memory();
  void learn_memory();
  void expect(bool inputs_reachable, bool outputs_reachable);
  void map_peers();
  bool reachable(int place, std::uint64_t heap_at, std::uint64_t bytes) const;
  std::byte* mapped(int place, std::uint64_t address, std::uint64_t heap_at, std::uint64_t bytes);
  Status check_pairs() const;

  const HostMemory& memory_;
  std::shared_ptr<const memory::Heap> heap_;
  kernels::StoreRule streams_;
  local::Region region_;
  local::Topology topology_;
  bool one_process_;
  select::LocalSelector selector_;
  local::Tuning tuning_;
  Recent<Expectation> expected_;        // by the memory of the last operation of that kind and size
  Recent<Remembered> known_;            // by the descriptors
  Expectation* expectation_ = nullptr;  // of this operation; null: the memory does not matter
  const select::LocalChoice* choice_ = nullptr;
  const local::Algorithm* forced_ = nullptr;  // of this operation
  select::LocalChoice by_force_;
  std::optional<local::Operation> op_;      // under way
  std::vector<local::PeerBuffers> peers_;   // by place
  std::vector<const std::byte*> inputs_;    // room for a fold
  std::vector<std::vector<bool>> touched_;  // blocks of each peer's heap that are faulted in
};

}  // namespace hccl::exec
