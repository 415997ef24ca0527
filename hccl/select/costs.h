// The table of costs: times of local algorithms and of messages, with a key that describes where
// they were measured. The code does no I/O; check() checks data from outside.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/status.h"
#include "hccl/base/types.h"
#include "hccl/local/algorithm.h"
#include "hccl/select/message_costs.h"

namespace hccl::select {

/// A group of operations with similar costs: an algorithm has one curve for the group.
enum class CurveKind : std::uint8_t { kFold, kMove, kBroadcast, kPart };
inline constexpr std::size_t kKinds = 4;
constexpr std::string_view to_string(CurveKind kind) {
  constexpr std::array<std::string_view, kKinds> kWords = {"fold", "move", "broadcast", "part"};
  return kWords[static_cast<std::size_t>(kind)];
}
CurveKind kind_of(Op op);

/// The local algorithm that runs every operation in any memory. Other algorithms are compared with
/// it.
inline constexpr std::string_view kStandard = "staged";

/// The time of a local algorithm by the bytes of a rank's input. It was measured in a loop in which
/// each rank writes its input anew before each operation; the time of that writing is subtracted.
struct Curve {
  struct Point {
    std::uint64_t bytes = 0;
    std::uint64_t ns = 0;
    bool operator==(const Point&) const = default;
  };
  std::string algorithm;
  CurveKind kind = CurveKind::kFold;
  std::vector<Point> points;  ///< by rising bytes; at least one

  /// Interpolates linearly between points. Beyond the last point, continues the line through the
  /// last two.
  double ns(std::uint64_t bytes) const;
  bool operator==(const Curve&) const = default;
};

struct LocalCosts {
  std::vector<Curve> curves;
  local::Tuning tuning;

  /// Null if no such curve exists. The curve of kFold serves for an algorithm without a curve of
  /// kPart.
  const Curve* find(std::string_view algorithm, CurveKind kind) const;
  /// Whether these are the costs of ranks whose cores are far from each other.
  bool far() const { return tuning.stream_from != local::Tuning{}.stream_from; }
  bool operator==(const LocalCosts&) const;
};

/// The geometric mean, over all measured points, of measured time divided by the time of
/// `reference`.
double slowdown(const LocalCosts& reference, const std::vector<Curve>& measured);
/// Returns `base` with each curve scaled by the ratio of `measured` to `reference`. `reference` has
/// the curves that were expected where `measured` was measured. Curves that were not measured are
/// scaled by the mean ratio. Measured curves that `base` lacks are added and keep their ratio to
/// kStandard.
LocalCosts fit(LocalCosts base, const LocalCosts& reference, const std::vector<Curve>& measured);

/// The setting for which a measurement is valid.
struct CostKey {
  std::string library;    ///< version of this library
  std::string cpu;        ///< of rank 0's host: model and number of cores
  std::string transport;  ///< Mesh::name()
  std::uint32_t hosts = 1;
  std::uint32_t ranks_per_host = 1;  ///< of the host with the most ranks
  bool shared_cores = false;         ///< some host has fewer cores than ranks
  bool kernel_copies = false;        ///< one host, and the kernel may copy between its ranks
  bool operator==(const CostKey&) const = default;
};
/// "tcp, 2 hosts with 4 ranks each, AMD EPYC with 2 cores, hccl <version>".
std::string to_string(const CostKey& key);

struct CostEntry {
  CostKey key;
  std::optional<LocalCosts> local = {};
  std::optional<MessageCosts> messages = {};
  bool operator==(const CostEntry&) const = default;
};

struct CostTable {
  /// Version 2 has curves of local algorithms. Version 1 had sizes up to which each algorithm was
  /// best.
  static constexpr std::uint32_t kVersion = 2;
  static constexpr std::size_t kMostEntries = 256;
  static constexpr std::size_t kMostCurves = 256;
  static constexpr std::size_t kLongestText = 256;

  std::vector<CostEntry> entries;  ///< the newest last

  /// Null if no entry has this key.
  const CostEntry* find(const CostKey& key) const;
  /// The entry with the nearest numbers of hosts and ranks, among the entries that have costs of
  /// messages for the same machine and transport; null if there is none.
  const CostEntry* nearest(const CostKey& key) const;
  /// Adds the entry, in place of an entry with the same key. Beyond kMostEntries, removes the
  /// oldest entries.
  void put(CostEntry entry);
  /// Fails with kPara if a number is impossible.
  Status check() const;
  bool operator==(const CostTable&) const = default;
};

}  // namespace hccl::select
