// Strategies that cut a list of gradients into segments: by index, by size, and HCCL's default.
// Pure functions. Sizes are bytes, in the order in which the gradients become ready.
//
// A list of segments contains the index of the last gradient of each segment. So it ascends
// strictly and ends with (number of gradients - 1): {107, 159} means [0,107] [108,159]. Every
// function here returns such a list or a Status. No gradient is ever left out.
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

/// HCCL documents this limit. More segments work too; callers may warn.
inline constexpr std::size_t kDocumentedSegments = 8;
/// The most segments of the automatic plan, whose list no user has to write.
inline constexpr std::size_t kMostSegments = 64;
/// The default strategy: the percentages of the bytes in the first and the second segment.
inline constexpr double kDefaultFirstPercent = 96.54;
inline constexpr double kDefaultSecondPercent = 3.46;
/// The largest difference of the sum of percentages from 100.
inline constexpr double kPercentTolerance = 1e-3;

using Segments = std::vector<std::uint32_t>;

/// The checks that need no gradients. kPara: empty or not strictly ascending.
Status check_last_indices(std::span<const std::uint32_t> last_indices);
/// kPara: empty, a value that is negative or not a finite number, or a sum other than 100.
Status check_percentages(std::span<const float> percentages);

/// Checks and returns the given list. kPara: no gradients, not strictly ascending, or the last
/// index is not that of the last gradient.
Result<Segments> segments_by_index(std::span<const std::uint64_t> bytes,
                                   std::span<const std::uint32_t> last_indices);

/// HCCL's rule (README.md describes it). Each percentage claims its share of the bytes, and the cut
/// goes to a gradient near the end of the share. Bytes that a segment took too much or too little
/// are carried into the next one. One percentage may give several segments, and there may be fewer
/// segments than percentages. The last percentage takes all remaining gradients. kPara: no
/// gradients, or percentages that check_percentages rejects.
///
/// unknown_shape_buffer must be given for gradients of unknown shape: the bytes of the
/// communication buffer. Then every cut lies at or below its share, and no segment exceeds the
/// buffer less 1 MiB, except a single gradient that does. With a buffer of 1 MiB or less every
/// gradient is a segment.
Result<Segments> segments_by_size(std::span<const std::uint64_t> bytes,
                                  std::span<const float> percentages,
                                  std::optional<std::uint64_t> unknown_shape_buffer = {});

/// HCCL's default. Known shape: one cut near 96.54 % of the bytes, or one segment if that cut is at
/// the end. Unknown shape: the rule by size with 96.54 % and 3.46 %. kPara: no gradients.
Result<Segments> default_segments(std::span<const std::uint64_t> bytes,
                                  std::optional<std::uint64_t> unknown_shape_buffer = {});

/// "segment num: 2, segment index list: [0,107] [108,159]"
std::string segments_text(std::span<const std::uint32_t> last_indices);

/// Chooses between the settings of a group.
enum class Force {
  kNone,  ///< by size, else by index, else the default
  kSize,  ///< by size, else the default; ignores a setting by index
};

struct Resolved {
  enum class Source { kDefault, kIndex, kSize, kAuto };
  Segments last_indices;
  Source source = Source::kDefault;
  /// The group has settings by index and by size, and the setting by size was used. Callers log
  /// this.
  bool index_ignored = false;
  bool is_default() const { return source == Source::kDefault; }
};

/// The strategies that users set, by name of the group. The table accepts every name; the caller
/// must check that the group exists. Thread-safe.
class StrategyTable {
 public:
  /// A second call replaces the setting. kPara as for check_last_indices; then the earlier setting
  /// stays.
  Status set_by_index(std::string_view group, std::span<const std::uint32_t> last_indices);
  /// A second call replaces the setting. kPara as for check_percentages; then the earlier setting
  /// stays.
  Status set_by_size(std::string_view group, std::span<const float> percentages);

  /// If the group has no setting by index or size, an automatic plan replaces the default.
  void set_auto(std::string_view group);
  bool is_auto(std::string_view group) const;

  /// Returns the segments for these gradients of the group. A setting by index that does not fit
  /// the gradients is kPara even if a setting by size exists (as in HCCL), unless force is kSize.
  /// unknown_shape_buffer: as for segments_by_size.
  Result<Resolved> resolve(std::string_view group, std::span<const std::uint64_t> bytes,
                           Force force = Force::kNone,
                           std::optional<std::uint64_t> unknown_shape_buffer = {}) const;

  /// Removes the settings of one group, or of all groups.
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
