#include "split/cost_model.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "split/statistics.h"

namespace hccl::split {
namespace {

constexpr double kUnit = 1e6;  // sizes are in this unit, so that both unknowns are of similar size
constexpr double kLeastTime = 1e-9;
constexpr double kLeastError = 0.01;  // clocks and caches alone cause this error
constexpr std::size_t kLast = 9;      // the number of samples kept for each size
constexpr int kRounds = 20;
constexpr double kMostBytes = 0x1p62;  // larger sizes count as this size
constexpr int kFits = 3;

Status check(const CostSample& sample, std::size_t i) {
  if (std::isfinite(sample.seconds) && sample.seconds > 0) return {};
  return Status(Code::kPara, "cost sample " + std::to_string(i) + " (" +
                                 std::to_string(sample.bytes) + " bytes) takes " +
                                 std::to_string(sample.seconds) + " s: it must be above 0");
}

int size_class(std::uint64_t bytes) {
  return bytes == 0 ? -1 : std::ilogb(std::min(static_cast<double>(bytes), kMostBytes));
}

double time_of(const AffineCost& line, double bytes) {
  return std::max(line.start + line.per_byte * bytes, kLeastTime);
}

// Returns the line with the least sum of squared errors among the lines without negative
// coefficients. xx and xy are sums over rows (1, bytes / kUnit).
AffineCost solve(const double (&xx)[3], const double (&xy)[2]) {
  const AffineCost only_start{xy[0] / xx[0], 0};
  if (xx[2] <= 0) return only_start;  // all vectors are empty
  const AffineCost only_bytes{0, xy[1] / xx[2] / kUnit};
  const double determinant = xx[0] * xx[2] - xx[1] * xx[1];
  if (determinant <= 1e-9 * xx[0] * xx[2]) return only_bytes;  // one size does not separate start
                                                               // from bytes
  const double start = (xy[0] * xx[2] - xy[1] * xx[1]) / determinant;
  const double per_unit = (xy[1] * xx[0] - xy[0] * xx[1]) / determinant;
  if (start < 0) return only_bytes;
  // Bytes cost something, even if noise hides the cost: half of the time counts for the bytes.
  if (per_unit < 0) return {only_start.start / 2, only_bytes.per_byte / 2};
  return {start, per_unit / kUnit};
}

}  // namespace

Result<CostModel> CostModel::create(std::span<const CostSample> samples) {
  if (samples.empty()) return Status(Code::kPara, "no cost samples");
  CostModel model;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    HCCL_RETURN_IF_ERROR(check(samples[i], i));
    model.first_[size_class(samples[i].bytes)].push_back(samples[i]);
  }
  model.fit();
  model.first_line_ = model.line_;
  return model;
}

Status CostModel::add(const CostSample& sample) {
  HCCL_RETURN_IF_ERROR(check(sample, 0));
  auto& last = learnt_[size_class(sample.bytes)];
  last.push_back(sample);
  if (last.size() > kLast) last.pop_front();
  fit();
  return {};
}

// The time of the mean size depends on the line, and the line depends on that time, so fit
// repeatedly.
void CostModel::fit() {
  for (int i = 0; i < kFits; ++i) line_ = line_through(points());
}

CostModel::Points CostModel::points_of(const Samples& samples, const AffineCost& line) {
  Points points;
  for (const auto& [key, last] : samples) {
    std::vector<double> to_line;
    double bytes = 0;
    for (const CostSample& each : last) {
      const auto size = std::min(static_cast<double>(each.bytes), kMostBytes);
      bytes += size;
      to_line.push_back(each.seconds / time_of(line, size));
    }
    bytes /= static_cast<double>(last.size());
    points[key] = {bytes, median(std::move(to_line)) * time_of(line, bytes)};
  }
  return points;
}

// Corrects the times of the probe, which may be too short: after a pause, a network sends the first
// bytes at once. The ratio that training measures for one size also corrects the neighbouring
// sizes.
CostModel::Points CostModel::points() const {
  if (learnt_.empty()) return points_of(first_, line_);
  const Points learnt = points_of(learnt_, line_);
  Points all = learnt;
  for (auto [key, each] : points_of(first_, first_line_)) {
    auto near = learnt.lower_bound(key);
    if (near == learnt.end() ||
        (near != learnt.begin() && key - std::prev(near)->first <= near->first - key))
      --near;
    each.seconds *= near->second.seconds / time_of(first_line_, near->second.bytes);
    all.emplace(key, each);
  }
  return all;
}

// Minimises the absolute relative errors by repeated weighted least squares, so that an outlier
// does not count by its square.
AffineCost CostModel::line_through(const Points& points) {
  AffineCost line;
  for (int round = 0; round < kRounds; ++round) {
    double xx[3] = {}, xy[2] = {};
    for (const auto& [key, each] : points) {
      const double error = round == 0 ? 1 : time_of(line, each.bytes) / each.seconds - 1;
      const double weight =
          1 / std::max(std::abs(error), kLeastError) / each.seconds / each.seconds;
      const double size = each.bytes / kUnit;
      xx[0] += weight;
      xx[1] += weight * size;
      xx[2] += weight * size * size;
      xy[0] += weight * each.seconds;
      xy[1] += weight * size * each.seconds;
    }
    line = solve(xx, xy);
  }
  return line;
}

double CostModel::misfit() const {
  const Points all = points();
  double sum = 0;
  for (const auto& [key, each] : all)
    sum += std::abs(time_of(line_, each.bytes) / each.seconds - 1);
  return sum / static_cast<double>(all.size());
}

TableCost CostModel::table_of(const Points& points, const AffineCost& line) {
  // Isotonic regression: adjacent sizes whose times fall get their mean time.
  struct Step {
    double sum;
    std::size_t points;
    double seconds() const { return sum / static_cast<double>(points); }
  };
  std::vector<Step> steps;
  std::vector<TableCost::Point> table;
  for (const auto& [key, each] : points) {
    if (key < 0) continue;
    table.push_back({static_cast<std::uint64_t>(std::round(each.bytes)), 0});
    steps.push_back({each.seconds, 1});
    while (steps.size() > 1 && steps[steps.size() - 2].seconds() > steps.back().seconds()) {
      const Step right = steps.back();
      steps.pop_back();
      steps.back().sum += right.sum;
      steps.back().points += right.points;
    }
  }
  auto next = table.begin();
  for (const Step& step : steps)
    for (std::size_t i = 0; i < step.points; ++i) (next++)->seconds = step.seconds();
  // Beyond the measured sizes, the line gives the time.
  if (table.empty()) table.push_back({1, line(1)});
  if (table.front().bytes > 1 && line(1) < table.front().seconds)
    table.insert(table.begin(), {1, line(1)});
  const TableCost::Point last = table.back();
  if (last.bytes < std::uint64_t{1} << 60) {
    table.push_back(
        {4 * last.bytes, last.seconds + 3 * line.per_byte * static_cast<double>(last.bytes)});
  }
  return TableCost::create(std::move(table)).value();
}

}  // namespace hccl::split
