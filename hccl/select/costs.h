// The table of costs: what local algorithms and messages take, by what they were measured with.
// Pure; everything that comes from elsewhere is checked.
#pragma once

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

/// Operations that cost alike.
enum class Kind : std::uint8_t { kFold, kMove, kBroadcast };
inline constexpr std::size_t kKinds = 3;
constexpr std::string_view words(Kind kind) {
  return kind == Kind::kFold ? "fold" : kind == Kind::kMove ? "move" : "broadcast";
}
Kind kind_of(Op op);

/// What a local algorithm takes by the bytes of a rank's input, in a loop in which each rank writes
/// its input anew before each operation, less the writing.
struct Curve {
  struct Point {
    std::uint64_t bytes = 0;
    std::uint64_t ns = 0;
    bool operator==(const Point&) const = default;
  };
  std::string algorithm;
  Kind kind = Kind::kFold;
  std::vector<Point> points;  ///< by rising bytes, at least one

  /// Straight lines between the points; beyond the last one, on at the pace of the last two.
  double ns(std::uint64_t bytes) const;
  bool operator==(const Curve&) const = default;
};

struct LocalCosts {
  std::vector<Curve> curves;
  local::Tuning tuning;

  /// Null: unknown.
  const Curve* find(std::string_view algorithm, Kind kind) const;
  /// Whether the ranks' cores are far from each other.
  bool far() const { return tuning.stream_from != local::Tuning{}.stream_from; }
  bool operator==(const LocalCosts&) const;
};

/// How many times as long as by the reference the measured points of curves take, on average.
double slowdown(const LocalCosts& reference, const std::vector<Curve>& measured);
/// `base`, with each curve as much higher or lower as `measured`, points of some curves, is than
/// `reference`, the curves for what was measured. Curves that were not measured move by the mean.
LocalCosts fit(LocalCosts base, const LocalCosts& reference, const std::vector<Curve>& measured);

/// What a measurement holds for.
struct CostKey {
  std::string library;    ///< version of this library
  std::string cpu;        ///< of rank 0's host: model and number of cores
  std::string transport;  ///< Mesh::name()
  std::uint32_t hosts = 1;
  std::uint32_t ranks_per_host = 1;  ///< of the host with the most
  bool shared_cores = false;         ///< some machine has fewer cores than ranks
  bool kernel_copies = false;        ///< one host, between whose ranks the kernel may copy
  bool operator==(const CostKey&) const = default;
};
/// "tcp, 2 hosts with 4 ranks each, AMD EPYC with 2 cores, hccl 0.1.0".
std::string words(const CostKey& key);

struct CostEntry {
  CostKey key;
  std::optional<LocalCosts> local = {};
  std::optional<MessageCosts> messages = {};
  bool operator==(const CostEntry&) const = default;
};

struct CostTable {
  /// 2: curves of local algorithms, where version 1 had sizes up to which each was best.
  static constexpr std::uint32_t kVersion = 2;
  static constexpr std::size_t kMostEntries = 256;
  static constexpr std::size_t kMostCurves = 256;
  static constexpr std::size_t kLongestText = 256;

  std::vector<CostEntry> entries;  ///< the newest last

  /// Null if there is none.
  const CostEntry* find(const CostKey& key) const;
  /// Of the entries with costs of messages on such a machine and transport, the one whose numbers
  /// of ranks and hosts are nearest; null if there is none.
  const CostEntry* nearest(const CostKey& key) const;
  /// In place of the one with the same key, if any. The oldest give way beyond kMostEntries.
  void put(CostEntry entry);
  /// kPara: numbers that cannot be.
  Status check() const;
  bool operator==(const CostTable&) const = default;
};

}  // namespace hccl::select
