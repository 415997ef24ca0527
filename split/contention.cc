#include "split/contention.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace hccl::split {
namespace {

constexpr double kLeastOverlap = 0.05;  // of compute
constexpr double kSlowest = 0.05;
constexpr double kSignificant = 2;  // times the error
constexpr double kSurprise = 4;     // times the error: the world has changed
constexpr double kFade = 1.5;       // of the variance of what is known, at each new measurement
constexpr double kLeastError = 0.01;
constexpr double kSettled = 0.1;
constexpr std::size_t kLeastSegments = 8;
constexpr double kAlike = 1e-4;
constexpr double kWholly = 1 - 1e-9;
constexpr double kNewDelay = 0.5;  // weight of a new measurement beside what was known

}  // namespace

std::optional<Contention> contention_of(const ApartAndBeside& measured) {
  const double busy = measured.busy;
  if (!(busy > 0) || busy < kLeastOverlap * measured.compute_alone) return std::nullopt;
  const double lost = measured.compute_beside - measured.compute_alone;
  return Contention{std::clamp(1 - lost / busy, kSlowest, 1.0),
                    std::clamp(measured.work / busy, kSlowest, 1.0)};
}

std::optional<double> delay_beside(std::span<const double> alone, std::span<const double> beside) {
  const std::size_t count = std::min(alone.size(), beside.size());
  if (count < kLeastSegments) return std::nullopt;
  const auto n = static_cast<double>(count);
  double x = 0, y = 0;
  for (std::size_t i = 0; i < count; ++i) {
    x += alone[i] / n;
    y += (beside[i] - alone[i]) / n;
  }
  double xx = 0, xy = 0;
  for (std::size_t i = 0; i < count; ++i) {
    xx += (alone[i] - x) * (alone[i] - x);
    xy += (alone[i] - x) * (beside[i] - alone[i] - y);
  }
  const bool alike = xx <= kAlike * n * x * x;  // of one size: a line says nothing
  const double slope = alike ? 0 : std::max(0.0, xy / xx);
  const double delay = y - slope * x;
  double rest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double error = beside[i] - alone[i] - delay - slope * alone[i];
    rest += error * error;
  }
  const double spread = slope > 0 ? x * x / xx : 0;
  const double error = std::sqrt(rest / (n - 2) * (1 / n + spread));
  return delay > kSignificant * error ? delay : 0;
}

void ContentionEstimate::Fraction::add(double next, double error, bool first) {
  const double mine = error * error + kLeastError * kLeastError;
  const double known = kFade * variance;
  if (first || std::abs(next - value) > kSurprise * std::sqrt(mine + known)) {
    value = next;
    variance = mine;
    return;
  }
  value += (next - value) * known / (known + mine);
  variance = known * mine / (known + mine);
}

double ContentionEstimate::Fraction::significant() const {
  return 1 - value >= kSignificant * std::sqrt(variance) ? value : 1;
}

void ContentionEstimate::add(const ApartAndBeside& measured) {
  const auto next = contention_of(measured);
  if (!next) return;
  compute_.add(next->compute, measured.compute_error / measured.busy, !measured_);
  communication_.add(next->communication, measured.work_error / measured.busy, !measured_);
  measured_ = true;
}

void ContentionEstimate::add(ApartAndBeside measured,
                             std::span<const SegmentApartAndBeside> segments) {
  std::vector<double> apart, together;  // of those that ran wholly beside compute
  for (const auto& each : segments) {
    if (each.overlap < kWholly * each.beside) continue;
    apart.push_back(each.alone);
    together.push_back(each.beside);
  }
  if (const auto delay = delay_beside(apart, together))
    delay_ = delay_ ? *delay_ + kNewDelay * (*delay - *delay_) : *delay;
  for (const auto& each : segments) {
    const double busy = each.overlap - delay_.value_or(0);
    if (busy <= 0) continue;
    measured.busy += busy;
    measured.work += std::max(0.0, each.alone - (each.beside - each.overlap));
  }
  add(measured);
}

std::optional<Contention> ContentionEstimate::contention() const {
  if (!measured_) return std::nullopt;
  return Contention{compute_.significant(), communication_.significant(), delay_.value_or(0)};
}

bool ContentionEstimate::is_settled() const {
  return measured_ && std::max(compute_.variance, communication_.variance) < kSettled * kSettled;
}

}  // namespace hccl::split
