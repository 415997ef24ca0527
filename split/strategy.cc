#include "split/strategy.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace hccl::split {
namespace {

constexpr std::uint64_t kMaxTotal = std::uint64_t{1}
                                    << 53;  // doubles hold every integer up to here
constexpr std::uint64_t kBufferReserve = std::uint64_t{1} << 20;

/// Percentages come as floats: 14.3 arrives as 14.30000019, which would miss a boundary at 14.3 %
/// by a few bytes. Returns the shortest decimal that gives the same float: that is the number that
/// the user wrote.
double as_written(float value) {
  char text[32];
  const auto printed = std::to_chars(text, text + sizeof text, value);
  double decimal = value;
  std::from_chars(text, printed.ptr, decimal);
  return decimal;
}

std::string item(const char* list, std::size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

/// Returns ends[i]: the bytes of the gradients 0..i.
Result<std::vector<std::uint64_t>> running_sums(std::span<const std::uint64_t> bytes) {
  if (bytes.empty()) return Status(Code::kPara, "no gradients: there is nothing to cut");
  if (bytes.size() > std::numeric_limits<std::uint32_t>::max())
    return Status(Code::kPara, "more than 2^32-1 gradients");
  std::vector<std::uint64_t> ends;
  ends.reserve(bytes.size());
  std::uint64_t total = 0;
  for (const std::uint64_t size : bytes) {
    if (size > kMaxTotal - total)
      return Status(Code::kPara, item("gradient sizes", ends.size()) + " is " +
                                     std::to_string(size) + " bytes: the sum exceeds 2^53 bytes");
    total += size;
    ends.push_back(total);
  }
  return ends;
}

/// Takes shares of the bytes one after another, and collects the cuts.
class Cutter {
 public:
  /// If gradients have unknown shape, `most` is the most bytes of a segment, and the cuts are
  /// rounded down.
  Cutter(std::vector<std::uint64_t> ends, std::optional<double> most)
      : ends_(std::move(ends)), most_(most) {
    // Ten times the rounding error of the few operations that compute a target; far below one byte
    // up to 10 TB.
    tolerance_ = std::max(1e-6, total() * 1e-14);
  }

  double total() const { return end(last()); }
  double remaining() const { return total() - allocated_; }
  double left() const { return left_; }
  bool done() const { return !cuts_.empty() && cuts_.back() == last(); }

  /// Cuts until the next gradient does not fit into the rest of `size` bytes.
  void take(double size) {
    const double begin = allocated_;
    double rest = size;
    do {
      std::size_t cut = near(std::min(rest, most_.value_or(rest)) + allocated_);
      // Every cut takes at least one gradient.
      if (!cuts_.empty()) cut = std::max<std::size_t>(cut, cuts_.back() + std::size_t{1});
      cuts_.push_back(static_cast<std::uint32_t>(cut));
      allocated_ = end(cut);
      rest = size + begin - allocated_;
    } while (!done() && end(cuts_.back() + std::size_t{1}) - allocated_ - rest <= tolerance_);
    left_ = rest;
  }

  Segments finish() && { return std::move(cuts_); }

 private:
  std::size_t last() const { return ends_.size() - 1; }
  double end(std::size_t index) const { return static_cast<double>(ends_[index]); }

  /// Returns the gradient whose end is near `target`. As in HCCL, the last probe of a binary search
  /// decides, and may lie on either side. So the result is not always the nearest gradient. The
  /// rule stays, because users rely on these cuts.
  std::size_t near(double target) const {
    std::size_t low = 0;
    std::size_t high = ends_.size();
    std::size_t probe = 0;
    while (low < high) {
      probe = (low + high - 1) / 2;
      if (std::abs(end(probe) - target) < tolerance_) return probe;
      if (end(probe) < target) {
        low = probe + 1;
      } else {
        high = probe;
      }
    }
    if (most_ && end(probe) < target) return probe;
    if (probe == 0) return 0;
    if (most_) return probe - 1;
    const bool earlier = target - end(probe - 1) <= end(probe) - target + tolerance_;
    return earlier ? probe - 1 : probe;
  }

  std::vector<std::uint64_t> ends_;
  std::optional<double> most_;
  double tolerance_;
  double allocated_ = 0;
  double left_ = 0;
  Segments cuts_;
};

Result<Cutter> cutter_of(std::span<const std::uint64_t> bytes,
                         std::optional<std::uint64_t> unknown_shape_buffer) {
  HCCL_ASSIGN_OR_RETURN(auto ends, running_sums(bytes));
  if (!unknown_shape_buffer) return Cutter(std::move(ends), {});
  const std::uint64_t buffer = std::max(*unknown_shape_buffer, kBufferReserve);
  return Cutter(std::move(ends), static_cast<double>(buffer - kBufferReserve));
}

/// `shares` are percentages. The last share takes all remaining gradients, for any sum of the
/// shares, so no gradient is lost.
Segments cut_by_shares(Cutter cutter, std::span<const double> shares) {
  for (std::size_t k = 0; k < shares.size() && !cutter.done(); ++k) {
    const bool final_share = k + 1 == shares.size();
    cutter.take(final_share ? cutter.remaining()
                            : shares[k] / 100 * cutter.total() + cutter.left());
  }
  return std::move(cutter).finish();
}

}  // namespace

Status check_last_indices(std::span<const std::uint32_t> last_indices) {
  if (last_indices.empty()) return Status(Code::kPara, "the segment index list is empty");
  for (std::size_t k = 1; k < last_indices.size(); ++k) {
    if (last_indices[k] > last_indices[k - 1]) continue;
    return Status(Code::kPara,
                  item("segment index list", k) + " is " + std::to_string(last_indices[k]) +
                      ", not above " + item("segment index list", k - 1) + ", which is " +
                      std::to_string(last_indices[k - 1]) + ": the list must ascend strictly");
  }
  return {};
}

Status check_percentages(std::span<const float> percentages) {
  if (percentages.empty()) return Status(Code::kPara, "the list of percentages is empty");
  double sum = 0;
  for (std::size_t k = 0; k < percentages.size(); ++k) {
    if (!std::isfinite(percentages[k]) || percentages[k] < 0)
      return Status(Code::kPara, item("percentages", k) + " is " + std::to_string(percentages[k]) +
                                     ": it must be a number from 0 to 100");
    sum += as_written(percentages[k]);
  }
  constexpr double kRounding = 1e-9;
  if (std::abs(sum - 100) > kPercentTolerance + kRounding)
    return Status(Code::kPara, "the " + std::to_string(percentages.size()) +
                                   " percentages sum to " + std::to_string(sum) +
                                   ": the sum must be 100");
  return {};
}

Result<Segments> segments_by_index(std::span<const std::uint64_t> bytes,
                                   std::span<const std::uint32_t> last_indices) {
  if (bytes.empty()) return Status(Code::kPara, "no gradients: there is nothing to cut");
  const std::string expected = "the last index must be " + std::to_string(bytes.size() - 1) + " (" +
                               std::to_string(bytes.size()) + " gradients)";
  if (last_indices.size() > bytes.size())
    return Status(Code::kPara, "segment index list has " + std::to_string(last_indices.size()) +
                                   " segments, more than there are gradients; " + expected);
  if (Status status = check_last_indices(last_indices); !status.ok())
    return Status(status.code(), status.message() + "; " + expected);
  if (last_indices.back() != bytes.size() - 1)
    return Status(Code::kPara, item("segment index list", last_indices.size() - 1) + " is " +
                                   std::to_string(last_indices.back()) + ": " + expected);
  return Segments(last_indices.begin(), last_indices.end());
}

Result<Segments> segments_by_size(std::span<const std::uint64_t> bytes,
                                  std::span<const float> percentages,
                                  std::optional<std::uint64_t> unknown_shape_buffer) {
  HCCL_RETURN_IF_ERROR(check_percentages(percentages));
  HCCL_ASSIGN_OR_RETURN(Cutter cutter, cutter_of(bytes, unknown_shape_buffer));
  std::vector<double> shares(percentages.size());
  std::transform(percentages.begin(), percentages.end(), shares.begin(), as_written);
  return cut_by_shares(std::move(cutter), shares);
}

Result<Segments> default_segments(std::span<const std::uint64_t> bytes,
                                  std::optional<std::uint64_t> unknown_shape_buffer) {
  HCCL_ASSIGN_OR_RETURN(Cutter cutter, cutter_of(bytes, unknown_shape_buffer));
  constexpr double kShares[] = {kDefaultFirstPercent, kDefaultSecondPercent};
  if (unknown_shape_buffer) return cut_by_shares(std::move(cutter), kShares);
  cutter.take(kDefaultFirstPercent / 100 * cutter.total());
  Segments cuts = std::move(cutter).finish();
  cuts.resize(1);
  const auto last = static_cast<std::uint32_t>(bytes.size() - 1);
  if (cuts.front() != last) cuts.push_back(last);
  return cuts;
}

std::string segments_text(std::span<const std::uint32_t> last_indices) {
  std::string text =
      "segment num: " + std::to_string(last_indices.size()) + ", segment index list:";
  std::uint64_t first = 0;
  for (const std::uint32_t last : last_indices) {
    text += " [" + std::to_string(first) + "," + std::to_string(last) + "]";
    first = std::uint64_t{last} + 1;
  }
  return text;
}

StrategyTable::Setting& StrategyTable::entry(std::string_view group) {
  const auto found = settings_.find(group);
  return found != settings_.end() ? found->second : settings_[std::string(group)];
}

Status StrategyTable::set_by_index(std::string_view group,
                                   std::span<const std::uint32_t> last_indices) {
  HCCL_RETURN_IF_ERROR(check_last_indices(last_indices));
  const MutexLock lock(mutex_);
  entry(group).last_indices.assign(last_indices.begin(), last_indices.end());
  return {};
}

Status StrategyTable::set_by_size(std::string_view group, std::span<const float> percentages) {
  HCCL_RETURN_IF_ERROR(check_percentages(percentages));
  const MutexLock lock(mutex_);
  entry(group).percentages.assign(percentages.begin(), percentages.end());
  return {};
}

Result<Resolved> StrategyTable::resolve(std::string_view group,
                                        std::span<const std::uint64_t> bytes, Force force,
                                        std::optional<std::uint64_t> unknown_shape_buffer) const {
  Setting setting;
  {
    const MutexLock lock(mutex_);
    if (const auto found = settings_.find(group); found != settings_.end()) setting = found->second;
  }
  Resolved resolved;
  const auto take = [&](Result<Segments>&& segments, const char* kind) -> Status {
    if (!segments.ok()) {
      return segments.status().with_context("split strategy " + std::string(kind) + " of group " +
                                            std::string(group));
    }
    resolved.last_indices = std::move(segments).value();
    return {};
  };
  const bool by_index = !setting.last_indices.empty() && force != Force::kSize;
  const bool by_size = !setting.percentages.empty();
  resolved.is_default = !by_index && !by_size;
  if (by_index) {
    HCCL_RETURN_IF_ERROR(take(segments_by_index(bytes, setting.last_indices), "by index"));
  }
  if (by_size) {
    HCCL_RETURN_IF_ERROR(
        take(segments_by_size(bytes, setting.percentages, unknown_shape_buffer), "by size"));
  }
  if (resolved.is_default) {
    HCCL_RETURN_IF_ERROR(take(default_segments(bytes, unknown_shape_buffer), "(default)"));
  }
  return resolved;
}

void StrategyTable::set_auto(std::string_view group) {
  const MutexLock lock(mutex_);
  entry(group).automatic = true;
}

bool StrategyTable::is_auto(std::string_view group) const {
  const MutexLock lock(mutex_);
  const auto found = settings_.find(group);
  return found != settings_.end() && found->second.automatic;
}

void StrategyTable::clear() {
  const MutexLock lock(mutex_);
  settings_.clear();
}

}  // namespace hccl::split
