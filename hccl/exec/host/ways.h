// The ways to run a collective between the ranks of one host, and which of them pays when.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "hccl/base/status.h"
#include "hccl/schedule/schedule.h"

namespace hccl::exec::host {

enum class Way : std::uint8_t {
  kPost,   ///< the input travels with the rank's post, which announces the operation
  kRing,   ///< each rank copies its input into its ring, then every rank takes what it needs: one
           ///< hop
  kStage,  ///< the same in chunks, copying and taking at once
  kChain,  ///< allreduce and reduce: the ranks take turns to fold their inputs into the same chunk
           ///< of one ring, then copy it
  kCma,  ///< the kernel copies between the ranks' buffers, into others' memory where it can: a rank
         ///< stores what it has into their outputs, of allreduce and reduce its folded slice
  kPull,  ///< each rank takes straight from the others' inputs (of allreduce: folds its slice, then
          ///< copies the other slices from the others' outputs)
  kPush,  ///< each rank folds its slice and stores it into every output (of broadcast: the root
          ///< stores its slice, the others copy the rest; of others: each stores its blocks)
};
inline constexpr std::size_t kWays = 7;
/// Each ends with a zero byte, as all literals.
inline constexpr std::array<std::string_view, kWays> kWayWords = {"post", "ring", "stage", "chain",
                                                                  "cma",  "pull", "push"};
static_assert(!kWayWords.back().empty());
constexpr std::string_view words(Way way) { return kWayWords[static_cast<std::size_t>(way)]; }

/// A rank's input of up to so many bytes takes kPost; where ranks are bound to cores that they
/// share, even more (Post::kMost).
inline constexpr std::size_t kMostInLine = 56;

/// Up to how many bytes of a rank's input which of the other ways is best. All ranks must have the
/// same numbers.
struct Ways {
  std::size_t ring_most = 0;   ///< kRing whatever memory it is; above, where buffers lie decides
  std::size_t whole_most = 0;  ///< what would be staged takes kRing after all up to here
  std::size_t chain_from = 0;  ///< of memory that others do not reach: kChain from here; 0: never
  /// Of the same memory, if the ranks may copy so: kCma from here to there, in bytes of the longest
  /// buffer; of what folds nothing, and of what folds. From 0: never.
  std::size_t cma_moves_from = 0;
  std::size_t cma_moves_most = 0;
  std::size_t cma_folds_from = 0;
  std::size_t cma_folds_most = 0;
  std::size_t stage_most = 0;  ///< allreduce of reachable memory: kStage up to here
  std::size_t pull_most = 0;   ///< allreduce of reachable memory: kPull up to here, then kPush
  std::size_t chunk = 0;       ///< bytes of a rank's ring that one chunk of kStage takes
  /// Allreduce in chunks: each rank folds a slice and copies the others, rather than all of it,
  /// when there are more ranks than this.
  int most_that_fold_all = 2;

  bool operator==(const Ways&) const = default;

  /// What fits into a ring (Area::kRing): inputs of two runs beside a third, and the chunks that
  /// two hops need.
  static constexpr std::size_t kMostInRing = std::size_t{512} << 10;
  static constexpr std::size_t kLeastChunk = std::size_t{4} << 10;
  /// Of memory that others do not reach: whether kCma is worth it.
  bool takes_cma(bool folds, std::size_t bytes) const {
    const std::size_t from = folds ? cma_folds_from : cma_moves_from;
    return from != 0 && bytes >= from && bytes <= (folds ? cma_folds_most : cma_moves_most);
  }
  /// kPara: more than lines or rings hold. Numbers that come from a file are checked before use.
  Status check() const;

  /// Why a run over an input of so many bytes took this way, in words.
  std::string why(Way way, std::size_t bytes) const;

  /// Defaults for this many ranks on one host. shared_cores: there are fewer cores than ranks;
  /// bound: each rank stays on its own (HostPath::set_core_groups).
  static Ways for_host(int ranks, bool shared_cores, bool bound = false);
};

}  // namespace hccl::exec::host
