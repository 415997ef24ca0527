// Calls for a group of ranks that were refused on one rank, as their arguments were wrong, while
// others wait for it to come. For one thread.
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
  /// These ranks have made a group: what they refused before is forgiven among them.
  void met(const Ranks& ranks);
  /// These ranks were told of one refusal of `rank`.
  void told(const Ranks& ranks, std::uint32_t rank);
  /// One of `absent` that has refused, not after `until`, more often than one of `present` since
  /// the two last met: where all make the same wrong call, all refuse it, and go on.
  std::optional<Found> find(const Ranks& present, const Ranks& absent, Time until) const;

 private:
  struct Refusal {
    std::int64_t number = 0;
    std::string text;  // of the last one
    Time at{};
  };
  using Pair = std::pair<std::uint32_t, std::uint32_t>;

  std::int64_t number(std::uint32_t rank) const;
  // By how much more the first of two ranks has refused that is not forgiven, or told.
  std::int64_t excess(std::uint32_t first, std::uint32_t second) const;
  void forgive(std::uint32_t first, std::uint32_t second, std::int64_t excess);

  std::map<std::uint32_t, Refusal> refusals_;
  // By how much more the first, lower rank has refused, of what is past; other pairs: 0.
  std::map<Pair, std::int64_t> past_;
};

}  // namespace hccl::join
