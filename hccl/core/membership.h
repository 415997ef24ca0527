// The constant data of a communicator: its ranks, this rank's number among them, and its settings.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/base/log.h"
#include "hccl/core/placement.h"
#include "hccl/join/world.h"

namespace hccl::memory {
class Heap;
}
namespace hccl::transport {
class Doors;
class Siblings;
}  // namespace hccl::transport

namespace hccl::core {

/// Derives an identity for the part `what` of `parent`. All ranks get the same identity.
Uuid identity(const Uuid& parent, std::string_view what);
/// Returns the scope of a communicator's messages with tags. Ranks use the scope as a key to summon
/// each other when one rank opens connections for these messages.
Uuid messages_of(const Uuid& communicator);
/// As messages_of(), for operations.
Uuid operations_of(const Uuid& communicator);

struct Membership {
  std::shared_ptr<join::World> control;
  std::string name;
  std::vector<int> ranks;  ///< world ranks, by rank of the communicator
  int rank;                ///< this rank's number in the communicator
  Uuid id;                 ///< the same on all ranks; no other communicator has it
  Config config;
  Logger log;
  std::shared_ptr<memory::Heap> heap;       ///< the heap of this process; may be null
  std::shared_ptr<transport::Doors> doors;  ///< of the world
  std::shared_ptr<transport::Siblings> siblings;
  bool shrunk = false;  ///< Communicator::shrink() made it
  Placement placement{control->hosts(), ranks, rank, config.spin};

  int size() const { return static_cast<int>(ranks.size()); }
  /// The world rank of a rank.
  int of_world(int peer) const { return ranks[static_cast<std::size_t>(peer)]; }
  /// Whether this is the communicator of all ranks that joined, not a group.
  bool is_world() const { return id == identity(control->info().id, "world"); }
  /// Whether groups can be made from this communicator. Only the world and communicators from
  /// shrink() have groups.
  bool has_groups() const { return shrunk || is_world(); }
};

}  // namespace hccl::core
