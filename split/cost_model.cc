#include "split/cost_model.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "split/statistics.h"

namespace hccl::split {
namespace {

constexpr double kForget = 0.98;
constexpr double kUnit = 1e6;  // bytes are counted in this, so that both unknowns are of like size
constexpr double kLeastTime = 1e-9;
constexpr double kClip = 3;           // times the usual error
constexpr double kLeastError = 0.01;  // clocks and caches alone make so much
constexpr std::size_t kErrors = 16;
constexpr int kRounds = 20;
constexpr std::size_t kTrusted = 3;
constexpr double kPriorWeight = 3;  // of all first samples together
constexpr double kLeastLevel = 1e-6;

Status check(const CostSample& sample, std::size_t i) {
  if (std::isfinite(sample.seconds) && sample.seconds > 0) return {};
  return Status(Code::kPara, "cost sample " + std::to_string(i) + " (" +
                                 std::to_string(sample.bytes) + " bytes) takes " +
                                 std::to_string(sample.seconds) + " s: it must be above 0");
}

int size_class(double bytes) { return bytes < 1 ? -1 : std::ilogb(bytes); }

}  // namespace

void CostModel::Normal::add(double bytes, double reference, double seconds, double weight) {
  const double one = 1 / reference, size = bytes / kUnit / reference, time = seconds / reference;
  xx[0] += weight * one * one;
  xx[1] += weight * one * size;
  xx[2] += weight * size * size;
  xy[0] += weight * one * time;
  xy[1] += weight * size * time;
}

void CostModel::Normal::fade(double factor) {
  for (double& each : xx) each *= factor;
  for (double& each : xy) each *= factor;
}

void CostModel::Normal::stretch(double factor) {
  for (double& each : xx) each /= factor * factor;
  for (double& each : xy) each /= factor;
}

void CostModel::Normal::add(const Normal& other) {
  for (int i = 0; i < 3; ++i) xx[i] += other.xx[i];
  for (int i = 0; i < 2; ++i) xy[i] += other.xy[i];
}

// The line that fits best, of those that are nowhere negative.
AffineCost CostModel::solve(const Normal& sums) {
  const auto& [xx, xy] = sums;
  const AffineCost only_start{xx[0] > 0 ? xy[0] / xx[0] : 0, 0};
  if (xx[2] <= 0) return only_start;  // nothing but empty vectors
  const AffineCost only_bytes{0, xy[1] / xx[2] / kUnit};
  const double determinant = xx[0] * xx[2] - xx[1] * xx[1];
  if (determinant <= 1e-9 * xx[0] * xx[2]) return only_bytes;  // one size: no telling
  const double start = (xy[0] * xx[2] - xy[1] * xx[1]) / determinant;
  const double per_unit = (xy[1] * xx[0] - xy[0] * xx[1]) / determinant;
  if (start < 0) return only_bytes;
  // Bytes cost something, whatever noise hides: they get half of it.
  if (per_unit < 0) return {only_start.start / 2, only_bytes.per_byte / 2};
  return {start, per_unit / kUnit};
}

Result<CostModel> CostModel::create(std::span<const CostSample> samples) {
  if (samples.empty()) return Status(Code::kPara, "no cost samples");
  for (std::size_t i = 0; i < samples.size(); ++i) HCCL_RETURN_IF_ERROR(check(samples[i], i));
  CostModel model;
  std::map<int, std::vector<double>> times;
  for (const CostSample& each : samples)
    times[size_class(static_cast<double>(each.bytes))].push_back(each.seconds);
  // What is usual for the size, and not the sample itself, is the measure of its error: one that is
  // too low by far would be relatively further off than any that is too high.
  std::map<int, double> usual;
  for (auto& [key, seconds] : times) usual[key] = median(std::move(seconds));
  const auto reference = [&](const CostSample& each) {
    return usual.at(size_class(static_cast<double>(each.bytes)));
  };
  // Least absolute relative errors, by least squares that weigh again and again: an outlier counts
  // once, and not squared.
  std::vector<double> weights(samples.size(), 1);
  for (int round = 0; round < kRounds; ++round) {
    model.prior_ = Normal();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      model.prior_.add(static_cast<double>(samples[i].bytes), reference(samples[i]),
                       samples[i].seconds, weights[i]);
    }
    model.line_ = solve(model.prior_);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const double error =
          (model.line_(samples[i].bytes) - samples[i].seconds) / reference(samples[i]);
      weights[i] = 1 / std::max(std::abs(error), kLeastError);
    }
  }
  double total = 0;
  for (const double weight : weights) total += weight;
  model.prior_.fade(kPriorWeight / total);
  model.prior_line_ = model.line_;
  // A class may hold sizes that are far apart: its time is that of its mean size.
  const auto line_at = [&](double bytes) {
    return std::max(model.line_.start + model.line_.per_byte * bytes, kLeastTime);
  };
  std::map<int, std::vector<double>> to_line;
  for (const CostSample& sample : samples) {
    const auto bytes = static_cast<double>(sample.bytes);
    const double ratio = sample.seconds / line_at(bytes);
    model.errors_.push_back(ratio - 1);
    if (model.errors_.size() > kErrors) model.errors_.pop_front();
    SizeClass& known = model.probed_[size_class(bytes)];
    known.weight += 1;
    known.bytes += (bytes - known.bytes) / known.weight;
    to_line[size_class(bytes)].push_back(ratio);
  }
  for (auto& [key, known] : model.probed_) {
    known.seconds = median(std::move(to_line[key])) * line_at(known.bytes);
  }
  model.samples_ = samples.size();
  return model;
}

double CostModel::usual_error() const {
  std::vector<double> sizes;
  for (const double error : errors_) sizes.push_back(std::abs(error));
  return std::max(kLeastError, median(std::move(sizes)));
}

Status CostModel::add(const CostSample& sample, std::size_t runs) {
  HCCL_RETURN_IF_ERROR(check(sample, samples_));
  const auto bytes = static_cast<double>(sample.bytes);
  const double expected = std::max(line_(sample.bytes), kLeastTime);
  const double error = sample.seconds / expected - 1;
  const bool trusted = runs >= kTrusted;
  const double most = trusted ? std::abs(error) : kClip * usual_error();
  // If all of a sudden every sample is far off, the usual error grows with them, and they count.
  const double seconds = expected * (1 + std::clamp(error, -std::min(most, 1.0), most));
  errors_.push_back(error);
  if (errors_.size() > kErrors) errors_.pop_front();
  sums_.fade(kForget);
  // Where the line was far too low, its time must not be the measure of the error.
  const double reference = trusted ? std::max(seconds, kLeastTime) : expected;
  sums_.add(bytes, reference, std::max(seconds, kLeastTime), 1);
  level_weight_ = kForget * level_weight_ + 1;
  level_ += (seconds / std::max(prior_line_(sample.bytes), kLeastTime) - level_) / level_weight_;
  Normal all = prior_;
  all.stretch(std::max(level_, kLeastLevel));
  all.add(sums_);
  line_ = solve(all);
  SizeClass& known = learnt_[size_class(bytes)];
  // Its own neighbours are a better judge than the line where the line does not fit.
  const double limit = !trusted && known.weight > 0 ? known.seconds * (1 + most) : sample.seconds;
  known.weight = kForget * known.weight + 1;
  known.bytes += (bytes - known.bytes) / known.weight;
  known.seconds += (std::min(sample.seconds, limit) - known.seconds) / known.weight;
  ++samples_;
  return {};
}

// A short probe may flatter: a network lets the first bytes after a pause pass at once. What
// training measures of one size tells by how much, of its neighbours, too; of a size beyond those
// probed only if not even bytes at the rate of the last one explain it.
CostModel::Classes CostModel::known() const {
  if (learnt_.empty()) return probed_;
  Classes classes = learnt_;
  const TableCost probed = table_of(probed_, prior_line_);
  const SizeClass& last = probed_.rbegin()->second;
  const auto stretch = [&](const SizeClass& each) {
    if (each.bytes <= last.bytes)
      return each.seconds / std::max(probed(static_cast<std::uint64_t>(each.bytes)), kLeastTime);
    return std::max(1.0, each.seconds / (last.seconds / last.bytes * each.bytes));
  };
  for (auto [key, each] : probed_) {
    const auto above = learnt_.lower_bound(key);
    const bool from_below =
        above == learnt_.end() ||
        (above != learnt_.begin() && key - std::prev(above)->first <= above->first - key);
    each.seconds *= stretch(from_below ? std::prev(above)->second : above->second);
    classes.emplace(key, each);
  }
  return classes;
}

bool CostModel::has_learnt(std::uint64_t bytes) const {
  return learnt_.count(size_class(static_cast<double>(bytes))) > 0;
}

double CostModel::misfit() const {
  double sum = 0;
  const Classes classes = known();
  for (const auto& [key, each] : classes) {
    const double line = line_.start + line_.per_byte * each.bytes;
    sum += std::abs(line / each.seconds - 1);
  }
  return sum / static_cast<double>(classes.size());
}

TableCost CostModel::table() const { return table_of(known(), line_); }

TableCost CostModel::table_of(const Classes& classes, const AffineCost& line) {
  struct Step {
    double weight, bytes, seconds;
    std::size_t points;
  };
  // Isotonic regression: neighbours that fall are drawn together to their mean.
  std::vector<Step> steps;
  std::vector<double> bytes;
  for (const auto& [key, known] : classes) {
    if (key < 0) continue;
    bytes.push_back(known.bytes);
    steps.push_back({known.weight, known.bytes, known.seconds, 1});
    while (steps.size() > 1 && steps[steps.size() - 2].seconds > steps.back().seconds) {
      const Step right = steps.back();
      steps.pop_back();
      Step& left = steps.back();
      left.seconds = (left.weight * left.seconds + right.weight * right.seconds) /
                     (left.weight + right.weight);
      left.weight += right.weight;
      left.points += right.points;
    }
  }
  std::vector<TableCost::Point> points;
  std::size_t at = 0;
  for (const Step& step : steps) {
    for (std::size_t i = 0; i < step.points; ++i, ++at) {
      points.push_back({static_cast<std::uint64_t>(bytes[at]), step.seconds});
    }
  }
  // Outside of what was measured, the line.
  if (points.empty()) points.push_back({1, line(1)});
  if (points.front().bytes > 1 && line(1) < points.front().seconds) {
    points.insert(points.begin(), {1, line(1)});
  }
  const TableCost::Point last = points.back();
  if (last.bytes < std::uint64_t{1} << 60) {
    points.push_back(
        {4 * last.bytes, last.seconds + 3 * line.per_byte * static_cast<double>(last.bytes)});
  }
  return TableCost::create(std::move(points)).value();
}

}  // namespace hccl::split
