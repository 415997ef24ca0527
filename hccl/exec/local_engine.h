// Runs collectives between the ranks of one host: announces the operation, waits for the peers,
// asks the selector for a local algorithm (hccl/local), and runs it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "hccl/base/host_memory.h"
#include "hccl/kernels/store_rule.h"
#include "hccl/local/algorithm.h"
#include "hccl/memory/heap.h"
#include "hccl/select/local_selector.h"

namespace hccl::exec {

/// Belongs to one communicator; all ranks of the communicator on this host take part. One thread at
/// a time may use the engine, except that any thread may call lost() and waits().wake(). Operations
/// allocate nothing.
class LocalEngine {
 public:
  /// `memory` must outlive the engine. `heap`: this process's device heap, or null. `streams`
  /// decides when a result is stored past the caches (non-temporal); ranks may have different
  /// rules. The other arguments are those of Region.
  LocalEngine(const HostMemory& memory, std::shared_ptr<const memory::Heap> heap,
              const kernels::StoreRule& streams, Waiter waiter, WaitPolicy background);

  /// Maps the memory that the ranks share. If `kernel_copies`, tests whether the kernel may copy
  /// between the ranks' memory. Collective: all ranks call open() after they have created their
  /// engines. The errors are those of a wait.
  Status open(bool kernel_copies);
  /// After open() the topology is the same on all ranks.
  const local::Topology& topology() const { return topology_; }
  /// Sets the selector for the next operations. All ranks must set the same selector between the
  /// same operations.
  void set_selector(select::LocalSelector selector);
  const select::LocalSelector& selector() const { return selector_; }
  /// Overrides the selector's tuning. A probe uses this to compare tunings.
  void set_tuning(const local::Tuning& tuning) { tuning_ = tuning; }

  /// Runs a collective to its end. `envelope` describes the call. The algorithm is `forced` if that
  /// is not null and can run the call, otherwise the selector's choice. kPara: the ranks' calls
  /// differ; kTimeout; or the reason of the abort. After a failure the engine cannot be used again.
  Status run(const Call& call, const Envelope& envelope, const local::Algorithm* forced = nullptr) {
    begin(call, envelope, forced);
    return finish();
  }
  /// run() in two steps, for a caller that has other work while the announcement reaches its peers.
  /// `call` and `envelope` must outlive the second step.
  void begin(const Call& call, const Envelope& envelope, const local::Algorithm* forced = nullptr);
  Status finish();

  local::HostWaits& waits() { return region_.waits(); }
  /// Marks `rank` as dead: it uses no buffers any more. Ranks of other hosts are ignored. Any
  /// thread may call.
  void lost(int rank) { region_.lost(rank); }
  int ranks() const { return region_.size(); }
  /// The algorithm of the last operation and the reason for it; null if the operation failed before
  /// the choice.
  const select::LocalChoice* last_choice() const { return choice_; }
  /// Returns whether the last operation took at most a few microseconds, because its input was
  /// short and its peers had arrived. Always false if ranks share cores: then even a short wait may
  /// take long, because another rank may keep the core.
  bool quick() const;

 private:
  /// A few recent choices, so that operations that alternate need no new choice.
  struct Remembered {
    local::Case of{.bytes = ~std::uint64_t{0}};
    select::LocalChoice choice;
  };
  struct Expectation : Remembered {
    bool depends = true;  ///< whether the choice depends on the buffers' memory
  };
  template <class Entry>
  class Recent {
   public:
    Entry& at(Op op, std::uint64_t bytes) {
      // Multiples of the same size differ in the upper bits of the product.
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
  void put_memory_flags();
  void learn_memory();
  void expect(bool inputs_reachable, bool outputs_reachable);
  void map_peers();
  bool reachable(int local_rank, std::uint64_t heap_at, std::uint64_t bytes) const;
  std::byte* mapped(int local_rank, std::uint64_t address, std::uint64_t heap_at,
                    std::uint64_t bytes);
  Status check_pairs() const;

  const HostMemory& memory_;
  std::shared_ptr<const memory::Heap> heap_;
  kernels::StoreRule streams_;
  local::Region region_;
  local::Topology topology_;
  bool one_process_;
  select::LocalSelector selector_;
  local::Tuning tuning_;
  // By operation and size: the choice for the memory that the last such operation used.
  Recent<Expectation> expected_;
  Recent<Remembered> known_;            // choices that the ranks' descriptors led to
  Expectation* expectation_ = nullptr;  // for this operation; null if memory does not matter
  const select::LocalChoice* choice_ = nullptr;
  const local::Algorithm* forced_ = nullptr;  // of this operation
  select::LocalChoice by_force_;
  std::optional<local::Operation> op_;     // the operation under way
  std::vector<local::PeerBuffers> peers_;  // by local rank
  std::vector<const std::byte*> inputs_;   // memory for the arguments of a fold
  // For each peer: the blocks of its heap that this process has faulted in.
  std::vector<std::vector<bool>> touched_;
};

}  // namespace hccl::exec
