#include "split/contention.h"

#include <algorithm>
#include <cmath>

namespace hccl::split {
namespace {

constexpr double kLeastOverlap = 0.05;  // of compute
constexpr double kSlowest = 0.05;
constexpr double kSignificant = 2;  // times the error
constexpr double kSurprise = 4;     // times the error: the world has changed
constexpr double kFade = 1.5;       // of the variance of what is known, at each new measurement
constexpr double kLeastError = 0.01;
constexpr double kSettled = 0.1;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::optional<Contention> contention_of(const ApartAndBeside& measured) {
  const double busy = measured.busy;
  if (!(busy > 0) || busy < kLeastOverlap * measured.compute_alone) return std::nullopt;
  const double lost = measured.compute_beside - measured.compute_alone;
  return Contention{std::clamp(1 - lost / busy, kSlowest, 1.0),
                    std::clamp(measured.work / busy, kSlowest, 1.0)};
}

double error_of_median(std::vector<double> values) {
  if (values.size() < 2) return 0;
  if (values.size() < 3) return std::abs(values[0] - values[1]);
  const double middle = median(values);
  for (double& each : values) each = std::abs(each - middle);
  const double deviation = 1.4826 * median(values);  // as that of a normal distribution
  const auto n = static_cast<double>(values.size());
  return 1.2533 * deviation / std::sqrt(n - 1);
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

std::optional<Contention> ContentionEstimate::contention() const {
  if (!measured_) return std::nullopt;
  return Contention{compute_.significant(), communication_.significant()};
}

bool ContentionEstimate::is_settled() const {
  return measured_ && std::max(compute_.variance, communication_.variance) < kSettled * kSettled;
}

}  // namespace hccl::split
