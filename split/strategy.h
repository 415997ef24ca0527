// Strategies that cut a list of gradients into segments: by index, by size, and HCCL's default.
// Pure functions; all sizes are bytes, in the order in which the gradients become ready.
//
// A list of segments is written as the index of the last gradient of each segment, so it ascends
// strictly and ends with (number of gradients - 1): {107, 159} is [0,107] [108,159]. Every function
// here returns such a list or a Status; no gradient is ever left out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/mutex.h"
#include "hccl/base/status.h"

namespace hccl::split {

/// HCCL documents this many segments. More work too; callers may warn.
inline constexpr std::size_t kDocumentedSegments = 8;
/// The most that the automatic plan takes, which nobody has to write down.
inline constexpr std::size_t kMostSegments = 64;
/// The default strategy: shares of the bytes in the first and the second segment, in percent.
inline constexpr double kDefaultFirstPercent = 96.54;
inline constexpr double kDefaultSecondPercent = 3.46;
/// How far the sum of percentages may be from 100.
inline constexpr double kPercentTolerance = 1e-3;

using Segments = std::vector<std::uint32_t>;

/// kPara: empty or not strictly ascending. What can be checked before the gradients are known.
Status check_last_indices(std::span<const std::uint32_t> last_indices);
/// kPara: empty, a value that is negative or not a finite number, or a sum that is not 100.
Status check_percentages(std::span<const float> percentages);

/// The given list, checked. kPara: no gradients, not strictly ascending, or the last index is not
/// that of the last gradient.
Result<Segments> segments_by_index(std::span<const std::uint64_t> bytes,
                                   std::span<const std::uint32_t> last_indices);

/// HCCL's rule (README.md describes it): each percentage claims its share of the bytes, cut at a
/// gradient near the share; what a segment took too much or too little is carried into the next
/// one. One percentage may give several segments, and there may be fewer segments than percentages.
/// The last percentage takes all that is left. kPara: no gradients, or percentages that
/// check_percentages refuses.
///
/// unknown_shape_buffer is given for gradients of unknown shape: the bytes of the communication
/// buffer. Then every cut lies at or below its share, and no segment exceeds the buffer less 1 MiB
/// unless one gradient alone does; a buffer of 1 MiB or less makes every gradient a segment.
Result<Segments> segments_by_size(std::span<const std::uint64_t> bytes,
                                  std::span<const float> percentages,
                                  std::optional<std::uint64_t> unknown_shape_buffer = {});

/// HCCL's default. Known shape: one cut near 96.54 % of the bytes, or one segment if that is the
/// end. Unknown shape: the rule by size with 96.54 % and 3.46 %. kPara: no gradients.
Result<Segments> default_segments(std::span<const std::uint64_t> bytes,
                                  std::optional<std::uint64_t> unknown_shape_buffer = {});

/// "segment num: 2, segment index list: [0,107] [108,159]"
std::string segments_text(std::span<const std::uint32_t> last_indices);

/// Whose strategy applies when a group has a setting by index.
enum class Force {
  kNone,  ///< by size, else by index, else the default
  kSize,  ///< by size, else the default: a setting by index is not even looked at
};

struct Resolved {
  enum class Source { kDefault, kIndex, kSize, kAuto };
  Segments last_indices;
  Source source = Source::kDefault;
  /// The group has a setting by index too, and the one by size was used: worth a line in the log.
  bool index_ignored = false;
  bool is_default() const { return source == Source::kDefault; }
};

/// The strategies that users set, by group name. Any name is taken: whether the group exists is for
/// the caller to check. Thread-safe.
class StrategyTable {
 public:
  /// kPara as check_last_indices; then the earlier setting stays. A second call replaces the first.
  Status set_by_index(std::string_view group, std::span<const std::uint32_t> last_indices);
  /// kPara as check_percentages; then the earlier setting stays. A second call replaces the first.
  Status set_by_size(std::string_view group, std::span<const float> percentages);

  /// Where the group has no setting by index or size, an automatic plan takes the default's place.
  void set_auto(std::string_view group);
  bool is_auto(std::string_view group) const;

  /// The segments for these gradients of the group. A setting by index that does not fit the
  /// gradients is kPara even if one by size is set (as in HCCL), unless force is kSize.
  /// unknown_shape_buffer: as for segments_by_size.
  Result<Resolved> resolve(std::string_view group, std::span<const std::uint64_t> bytes,
                           Force force = Force::kNone,
                           std::optional<std::uint64_t> unknown_shape_buffer = {}) const;

  /// Forgets the settings of one group, or of all.
  void clear(std::string_view group);
  void clear();

 private:
  struct Setting {
    std::vector<std::uint32_t> last_indices;  // empty: not set
    std::vector<float> percentages;           // empty: not set
    bool automatic = false;
  };
  Setting& entry(std::string_view group) HCCL_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::string, Setting, std::less<>> settings_ HCCL_GUARDED_BY(mutex_);
};

}  // namespace hccl::split
