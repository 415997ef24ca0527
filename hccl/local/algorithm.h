// Local algorithms run a collective between the ranks of one host by load and store. Each has
// entries in one table, and its functions in a file of its own. All algorithms fold in rank order,
// so the bits of a result depend only on the inputs.
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

/// Facts about a host's ranks and cores; the same on all ranks of the host.
struct Topology {
  int ranks = 1;
  bool shared_cores = false;   ///< more ranks than cores
  bool kernel_copies = false;  ///< the kernel may copy between the ranks' memory (kernel_copy.h)
  bool operator==(const Topology&) const = default;
};

/// The facts that decide whether an algorithm can run an operation, and how long it takes. They are
/// the same on all ranks, after the ranks have announced their buffers.
struct Case {
  Op op = Op::kBarrier;
  DataType type = DataType::kFp32;
  std::uint64_t bytes = 0;        ///< bytes of the longest input of any rank
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
  /// Returns the reason if the algorithm cannot run this case, "" if it can. For eager algorithms
  /// the reason does not depend on reachability.
  std::string (*refuse)(const Case&, const Topology&);
  /// Runs after all ranks have announced the operation.
  Status (*run)(Region&, const Operation&);
  /// Only eager algorithms have it. Runs before this rank knows whether its peers have arrived, and
  /// ends with Region::announce().
  void (*announce)(Region&, Operation&) = nullptr;
  /// Runs each time this rank checks the slot of a peer that is late; may be null.
  void (*prefetch)(const Region&, const Operation&, int peer) = nullptr;

  /// Whether data travels with the announcement. If so, this rank does not know its peers' buffers
  /// yet, and the algorithm must run with any memory. A rendezvous algorithm, in contrast, waits
  /// for the Descriptors of all ranks.
  constexpr bool eager() const { return announce != nullptr; }
};

/// All algorithms. Names are unique for each operation.
std::span<const Algorithm> algorithms();
/// Null if the operation has no such algorithm.
const Algorithm* find(Op op, std::string_view name);

}  // namespace hccl::local
