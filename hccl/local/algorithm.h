// Local algorithms: how the ranks of one host run a collective by load and store. Each is an entry
// of one table and two functions in a file of its own. All fold in rank order, so the bits of a
// result depend on the inputs alone.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "hccl/base/status.h"
#include "hccl/base/types.h"
#include "hccl/local/operation.h"
#include "hccl/local/region.h"

namespace hccl::local {

/// The ranks and cores of a host; the same on all its ranks.
struct Topology {
  int ranks = 1;
  bool shared_cores = false;   ///< more ranks than cores
  bool kernel_copies = false;  ///< the kernel may copy between the ranks' memory (kernel_copy.h)
  bool operator==(const Topology&) const = default;
};

/// What decides whether an algorithm can run an operation, and how long it takes. The same on all
/// ranks, once they know each other's buffers.
struct Case {
  Op op = Op::kBarrier;
  DataType type = DataType::kFp32;
  std::uint64_t bytes = 0;        ///< of the longest input of a rank
  bool inputs_reachable = false;  ///< every input lies in memory that all ranks share
  bool outputs_reachable = false;
  bool operator==(const Case&) const = default;
};

/// A set of operations.
class Operations {
 public:
  constexpr Operations(std::initializer_list<Op> operations) {
    for (const Op each : operations) bits_ |= bit(each);
  }
  constexpr bool contains(Op op) const { return (bits_ & bit(op)) != 0; }

 private:
  static constexpr unsigned bit(Op op) { return 1u << static_cast<unsigned>(op); }
  unsigned bits_ = 0;
};

struct Algorithm {
  std::string_view name;     ///< as in HCCL_ALGO and hccl_perf --algo
  std::string_view summary;  ///< one sentence
  Operations operations;
  /// Data travels with the announcement, before this rank knows its peers' buffers: the algorithm
  /// runs whatever memory they are. Otherwise (rendezvous) it waits for the Descriptors of all.
  bool eager;
  /// Why it cannot run this case here; "" if it can. Eager algorithms do not look at reachability.
  std::string (*refuse)(const Case&, const Topology&);
  /// Before the peers are known to be there; ends with Region::announce(). Eager ones only.
  void (*announce)(Region&, Operation&);
  /// Runs with every look at the slot of a rank that is waited for; null: nothing.
  void (*prefetch)(const Region&, const Operation&, int peer);
  /// Once all ranks have announced the operation.
  Status (*run)(Region&, const Operation&);
};

/// All of them. Names are unique for each operation.
std::span<const Algorithm> algorithms();
/// Null: no such algorithm for this operation.
const Algorithm* find(Op op, std::string_view name);

}  // namespace hccl::local
