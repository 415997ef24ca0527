#include "split/contention.h"

#include <algorithm>

namespace hccl::split {
namespace {

constexpr double kLeastOverlap = 0.05;  // of compute
constexpr double kSlowest = 0.05;
constexpr double kFull = 0.98;  // above that, nothing is lost that could be told from noise

}  // namespace

std::optional<Contention> contention_of(const ApartAndBeside& measured) {
  const double busy = measured.busy;
  if (!(busy > 0) || busy < kLeastOverlap * measured.compute_alone) return std::nullopt;
  const auto fraction = [](double value) { return value > kFull ? 1 : std::max(value, kSlowest); };
  const double lost = measured.compute_beside - measured.compute_alone;
  return Contention{fraction(1 - lost / busy), fraction(measured.work / busy)};
}

}  // namespace hccl::split
