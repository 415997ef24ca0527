// Strategies that cut a list of gradients into segments: by index, by size, and HCCL's default. All
// functions are pure. Sizes are in bytes, in the order in which the gradients become ready.
//
// A list of segments contains the index of each segment's last gradient. So the list ascends
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
/// The most segments of the automatic plan. No user writes this list, so it may exceed
/// kDocumentedSegments.
inline constexpr std::size_t kMostSegments = 64;
/// The default strategy cuts at this percentage of the bytes.
inline constexpr double kDefaultFirstPercent = 96.54;
inline constexpr double kDefaultSecondPercent = 3.46;
/// The sum of percentages may differ from 100 by this much.
inline constexpr double kPercentTolerance = 1e-3;

using Segments = std::vector<std::uint32_t>;

/// Makes the checks that need no gradients. Fails with kPara if the list is empty or does not
/// ascend strictly.
Status check_last_indices(std::span<const std::uint32_t> last_indices);
/// Fails with kPara if the list is empty, if a value is negative or not finite, or if the sum is
/// not 100.
Status check_percentages(std::span<const float> percentages);

/// Checks and returns the given list. Fails with kPara if there are no gradients, if the list does
/// not ascend strictly, or if it does not end with the last gradient's index.
Result<Segments> segments_by_index(std::span<const std::uint64_t> bytes,
                                   std::span<const std::uint32_t> last_indices);

/// Applies HCCL's rule (README.md describes it). Each percentage claims its share of the bytes, and
/// the cut goes to a gradient near the end of the share. If a segment takes more or fewer bytes
/// than its share, the difference is carried into the next share. One percentage may give several
/// segments, and there may be fewer segments than percentages. The last percentage takes all
/// remaining gradients. Fails with kPara if there are no gradients, or if check_percentages()
/// fails.
///
/// For gradients of unknown shape, `unknown_shape_buffer` must give the bytes of the communication
/// buffer. Then no cut lies behind the end of its share, unless the segment would have no gradient.
/// A segment of several gradients never exceeds the buffer less 1 MiB; a single gradient may. With
/// a buffer of 1 MiB or less every gradient is a segment.
Result<Segments> segments_by_size(std::span<const std::uint64_t> bytes,
                                  std::span<const float> percentages,
                                  std::optional<std::uint64_t> unknown_shape_buffer = {});

/// Applies HCCL's default. If the shape is known, makes one cut near 96.54 % of the bytes, or one
/// segment if that cut is at the end. If the shape is unknown, applies the rule by size with 96.54
/// % and 3.46 %. Fails with kPara if there are no gradients.
Result<Segments> default_segments(std::span<const std::uint64_t> bytes,
                                  std::optional<std::uint64_t> unknown_shape_buffer = {});

/// Returns "segment num: 2, segment index list: [0,107] [108,159]".
std::string segments_text(std::span<const std::uint32_t> last_indices);

/// Chooses which of a group's settings counts.
enum class Force {
  kNone,  ///< by size, else by index, else the default
  kSize,  ///< by size, else the default; ignores a setting by index
};

struct Resolved {
  Segments last_indices;
  bool is_default = true;  ///< neither a setting nor an automatic plan made the segments
};

/// The strategies that users set, by the name of the group. The table accepts every name, so the
/// caller must check that the group exists. Thread-safe.
class StrategyTable {
 public:
  /// A second call replaces the setting. Fails with kPara as check_last_indices() does; then the
  /// earlier setting stays.
  Status set_by_index(std::string_view group, std::span<const std::uint32_t> last_indices);
  /// A second call replaces the setting. Fails with kPara as check_percentages() does; then the
  /// earlier setting stays.
  Status set_by_size(std::string_view group, std::span<const float> percentages);

  /// Makes an automatic plan replace the default strategy of a group that has no setting by index
  /// or size.
  void set_auto(std::string_view group);
  bool is_auto(std::string_view group) const;

  /// Returns the segments for these gradients of the group. As in HCCL, fails with kPara if a
  /// setting by index does not fit the gradients, even if a setting by size exists; force kSize
  /// ignores the setting by index. `unknown_shape_buffer` is as for segments_by_size().
  Result<Resolved> resolve(std::string_view group, std::span<const std::uint64_t> bytes,
                           Force force = Force::kNone,
                           std::optional<std::uint64_t> unknown_shape_buffer = {}) const;

  /// Removes the settings of all groups.
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
