// Calls for a group of ranks that one rank refused, because their arguments were wrong, while other
// ranks wait for that rank. For one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hccl::join {

class GroupRefusals {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Ranks = std::vector<std::uint32_t>;
  struct Found {
    std::uint32_t witness, rank;
    std::string text;
  };

  bool empty() const { return refusals_.empty(); }
  void refused(std::uint32_t rank, std::string text, Time now);
  /// These ranks have made a group: their earlier refusals no longer count among them.
  void met(const Ranks& ranks);
  /// These ranks got the error of one refusal of `rank`.
  void told(const Ranks& ranks, std::uint32_t rank);
  /// One of `absent` that has refused more calls than one of `present` since the two last made a
  /// group, none of them after `until`. If all ranks make the same wrong call, all refuse it, and
  /// none waits.
  std::optional<Found> find(const Ranks& present, const Ranks& absent, Time until) const;

 private:
  struct Refusal {
    std::int64_t number = 0;
    std::string text;  // of the last one
    Time at{};
  };
  using Pair = std::pair<std::uint32_t, std::uint32_t>;

  std::int64_t number(std::uint32_t rank) const;
  // How many more calls the first of two ranks has refused, without those that no longer count.
  std::int64_t excess(std::uint32_t first, std::uint32_t second) const;
  void forgive(std::uint32_t first, std::uint32_t second, std::int64_t excess);

  std::map<std::uint32_t, Refusal> refusals_;
  // How many more calls the first, lower rank has refused, of those that no longer count; 0 for
  // other pairs.
  std::map<Pair, std::int64_t> past_;
};

}  // namespace hccl::join
