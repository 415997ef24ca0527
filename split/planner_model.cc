#include "split/planner_model.h"

#include <algorithm>
#include <limits>
#include <string>

namespace hccl::split {
namespace {

constexpr double kLeastOverlap = 0.05;  // as a share of compute
constexpr double kSlowest = 0.05;
constexpr double kFull = 0.98;  // a loss of speed above this value may be noise

Status check(const Contention& contention) {
  const auto fraction = [](double value) { return value > 0 && value <= 1; };
  if (!fraction(contention.compute) || !fraction(contention.communication))
    return Status(Code::kPara, "contention: compute " + std::to_string(contention.compute) +
                                   " and communication " +
                                   std::to_string(contention.communication) +
                                   " must be above 0 and at most 1");
  return {};
}

}  // namespace

std::optional<Contention> contention_of(const ApartAndBeside& measured) {
  const double busy = measured.busy;
  if (!(busy > 0) || busy < kLeastOverlap * measured.compute_alone) return std::nullopt;
  const auto fraction = [](double value) { return value > kFull ? 1 : std::max(value, kSlowest); };
  const double lost = measured.compute_beside - measured.compute_alone;
  return Contention{fraction(1 - lost / busy), fraction(measured.work / busy)};
}

Result<Model> make_model(const Problem& problem) {
  const auto bytes = problem.bytes;
  const auto ready = problem.ready;
  if (bytes.empty()) return Status(Code::kPara, "no gradients: there is nothing to plan");
  if (bytes.size() > std::numeric_limits<std::uint32_t>::max())
    return Status(Code::kPara, "more than 2^32-1 gradients");
  if (bytes.size() != ready.size())
    return Status(Code::kPara, std::to_string(bytes.size()) + " gradient sizes, but " +
                                   std::to_string(ready.size()) + " ready times");
  HCCL_RETURN_IF_ERROR(check(problem.contention));
  Model model{{0}, {0}, problem.contention};
  model.sum.reserve(bytes.size() + 1);
  model.ready.reserve(bytes.size() + 1);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (!is_time(ready[i]))
      return Status(Code::kPara, "ready[" + std::to_string(i) + "] is " + std::to_string(ready[i]) +
                                     ": it must be a time that is not negative");
    if (bytes[i] > std::numeric_limits<std::uint64_t>::max() - model.sum.back())
      return Status(Code::kPara, "gradient sizes[" + std::to_string(i) +
                                     "]: the sum of the bytes exceeds 64 bits");
    model.sum.push_back(model.sum.back() + bytes[i]);
    model.ready.push_back(std::max(model.ready.back(), ready[i]));
  }
  return model;
}

Status check(const AffineCost& cost) {
  if (is_time(cost.start) && is_time(cost.per_byte)) return {};
  return Status(Code::kPara, "cost model: start " + std::to_string(cost.start) +
                                 " s and per_byte " + std::to_string(cost.per_byte) +
                                 " s must not be negative");
}

}  // namespace hccl::split
