// The roster: all hosts, processes and ranks of a world, and the tree in which the processes
// joined. A relay collects the processes below it in a draft; the root finishes its draft, and
// sends the roster to all processes once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "hccl/base/bytes.h"
#include "hccl/base/status.h"
#include "hccl/control/rank_set.h"

namespace hccl::control {

inline constexpr std::uint32_t kNodesCap = 2 * kRanksCap;  ///< a process may have no rank
inline constexpr std::size_t kMachineCap = 256;            ///< bytes of a host's identity
inline constexpr std::size_t kCoresCap = 32768;            ///< bytes: 2^18 cores
inline constexpr std::size_t kAddressCap = 64;             ///< bytes of an address

/// The launcher's agent that has started a process, and the number of the agent's attempt to run
/// the job. Each agent counts its own attempts.
struct Attempt {
  std::uint32_t agent = 0;  ///< 0: no agent
  std::uint32_t number = 0;
};

struct Roster {
  struct Host {
    std::string machine;  ///< hosts of one `machine` may share memory
    std::string cores;    ///< cores that its processes may run on, one bit each
    std::string address;  ///< for data and control
  };
  /// A process, which is a node of the tree.
  struct Node {
    std::uint32_t host = 0;    ///< index in hosts
    std::uint32_t parent = 0;  ///< the root is its own parent
    std::uint32_t pid = 0;
    std::uint16_t port = 0;     ///< on which the process listens
    std::uint64_t started = 0;  ///< see Process::started; 0: not known
    RankSet ranks;
    Attempt attempt = {};
  };

  std::vector<Host> hosts;
  std::vector<Node> nodes;             ///< node 0 is the root of the tree
  std::vector<std::uint32_t> node_of;  ///< by rank; empty in the roster of a part of the world

  /// By node: its children, in ascending order.
  std::vector<std::vector<std::uint32_t>> children() const;
  /// The ancestors of a node, from its parent up to the root; empty for the root.
  std::vector<std::uint32_t> ancestors(std::uint32_t node) const;
  /// For people: the address and process of a node.
  std::string name(std::uint32_t node) const;
};

void put(ByteWriter& out, const Roster& roster);
/// Returns nothing if the bytes end early or pass a limit, or if the nodes are not a tree. If a
/// rank is missing or two nodes have it, node_of is empty. Uses memory in proportion to the number
/// of bytes, not to the numbers that the bytes encode.
std::optional<Roster> get_roster(ByteReader& in);

/// One node, and the processes below it that have joined so far. Not thread-safe.
class RosterDraft {
 public:
  /// Begins with the node itself: `own` has one host and one node.
  explicit RosterDraft(Roster own);
  /// Adds the processes that a child has announced: node 0 of `sub` is the child, the other nodes
  /// are below the child. The parent of a new process may be a process that the draft has already.
  /// If a known process has more ranks now, `grown` gets the number of the process. Two processes
  /// may claim one rank; the root decides between them. Fails, and adds nothing, if there are too
  /// many processes.
  Status add(const Roster& sub, std::vector<std::uint32_t>* grown = nullptr);
  const Roster& roster() const { return roster_; }
  const RankSet& ranks() const { return ranks_; }
  /// The roster of a whole world of `size` ranks. The root is node 0; the others follow by their
  /// lowest ranks, nodes without ranks last. The error names the absent ranks; the ranks in
  /// `refused`, which only refused processes claim, count as absent.
  Result<Roster> finished(std::uint32_t size, const RankSet& refused = {}) const;

 private:
  using Process = std::tuple<std::uint32_t, std::uint32_t, std::uint16_t>;  // host, pid, port
  std::uint32_t host_of(const Roster::Host& host);

  Roster roster_;
  RankSet ranks_;
  std::map<std::string, std::uint32_t> hosts_;
  std::map<Process, std::uint32_t> nodes_;
};

}  // namespace hccl::control
