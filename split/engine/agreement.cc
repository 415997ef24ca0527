#include "split/engine/agreement.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <optional>

#include "hccl/base/auth.h"
#include "hccl/select/probe.h"
#include "split/plan_search.h"

namespace hccl::split {
namespace {

// Sizes are timed from small to large until this time has passed, then from large to small.
constexpr std::chrono::milliseconds kUpwards{25};
constexpr std::chrono::milliseconds kDownwards{40};
constexpr std::uint64_t kSizes[] = {4096, 65536, 1 << 20, 16 << 20};

Status broadcast(core::Communicator& communicator, void* data, std::size_t count, DataType type) {
  return communicator.operations().run({Op::kBroadcast, data, data, count, type});
}

// Finds, for each value, the smallest and the largest over all ranks.
Status range(core::Communicator& communicator, std::span<const double> values,
             std::vector<double>& least, std::vector<double>& most) {
  std::vector<double> both(values.begin(), values.end());
  for (const double value : values) both.push_back(-value);
  HCCL_RETURN_IF_ERROR(minimum(communicator, both));
  const auto middle = both.begin() + static_cast<std::ptrdiff_t>(values.size());
  least.assign(both.begin(), middle);
  most.clear();
  for (auto at = middle; at != both.end(); ++at) most.push_back(-*at);
  return {};
}

std::string text(double value) { return std::to_string(static_cast<std::uint64_t>(value)); }

Status differ(const std::string& what, double mine, double least, double most) {
  return Status(Code::kPara, "the ranks differ in " + what + ": " + text(mine) + " here, " +
                                 text(least) + " to " + text(most) + " among all of them");
}

// A digest as a whole number that a double holds exactly.
double short_digest(const std::string& text) {
  const Key key = digest(text);
  std::uint64_t bits = 0;
  std::memcpy(&bits, key.data(), sizeof bits);
  return static_cast<double>(bits >> 12);
}

Result<Order> order_of(const Trace& trace, std::size_t element) {
  HCCL_ASSIGN_OR_RETURN(Profile known, profile({&trace, 1}));
  AffineCost cost;  // initially the cost with a single rank
  if (known.rank_size > 1) {
    HCCL_ASSIGN_OR_RETURN(const CostModel costs, cost_model(known));
    cost = costs.affine();
  }
  // Counts sizes in elements: no message may begin within an element.
  cost.per_byte *= static_cast<double>(element);
  for (std::uint64_t& each : known.bytes) each /= element;
  HCCL_ASSIGN_OR_RETURN(const NewestFirst found, newest_first(known, known.last_indices, cost));
  return Order{ranges(found.plan, known.bytes), found.in_order, found.plan.late};
}

}  // namespace

Status minimum(core::Communicator& communicator, std::span<double> values) {
  if (communicator.size() == 1) return {};
  return communicator.operations().run({Op::kAllReduce, values.data(), values.data(), values.size(),
                                        DataType::kFp64, ReduceOp::kMin});
}

Status agree(core::Communicator& communicator, const GradientList& mine) {
  if (communicator.size() == 1) return {};
  const double head[] = {static_cast<double>(mine.counts.size()), static_cast<double>(mine.type),
                         static_cast<double>(mine.op), static_cast<double>(mine.mode),
                         static_cast<double>(mine.parallel)};
  constexpr const char* kWhat[] = {"the number of gradients", "the gradients' data type (number)",
                                   "the reduction (number)",
                                   "whether the plan is automatic (0 no, 1 traced, 2 yes)",
                                   "hcom_parallel, of an automatic plan"};
  std::vector<double> least, most;
  HCCL_RETURN_IF_ERROR(range(communicator, head, least, most));
  for (std::size_t i = 0; i < std::size(head); ++i)
    if (least[i] != most[i]) return differ(kWhat[i], head[i], least[i], most[i]);

  // For each gradient: its elements, and whether a segment ends with the gradient.
  std::vector<double> list;
  std::size_t segment = 0;
  for (std::size_t i = 0; i < mine.counts.size(); ++i) {
    const bool ends = segment < mine.last_indices.size() && mine.last_indices[segment] == i;
    if (ends) ++segment;
    list.push_back(2 * static_cast<double>(mine.counts[i]) + (ends ? 1 : 0));
  }
  // Then the digest of each name, and a digest of all names, sorted. If the sorted names are equal
  // on all ranks but a name differs, the ranks have swapped gradients. If the sorted names differ,
  // each rank uses names of its own, which is allowed.
  std::vector<std::string> sorted(mine.names.begin(), mine.names.end());
  std::sort(sorted.begin(), sorted.end());
  std::string all;
  for (const std::string& name : sorted) all += name + '\n';
  for (const std::string& name : mine.names) list.push_back(short_digest(name));
  list.push_back(short_digest(all));
  HCCL_RETURN_IF_ERROR(range(communicator, list, least, most));
  const std::size_t count = mine.counts.size();
  const auto named = [&](std::size_t i) {
    return "gradient " + std::to_string(i) +
           (mine.names[i].empty() ? "" : " (" + mine.names[i] + ")");
  };
  for (std::size_t i = 0; i < count; ++i) {
    if (least[i] == most[i]) continue;
    const std::string name = named(i);
    const double low = std::floor(least[i] / 2), high = std::floor(most[i] / 2);
    if (low != high) return differ("the elements of " + name, std::floor(list[i] / 2), low, high);
    return Status(Code::kPara, "the ranks differ in their segments: one ends with " + name +
                                   " on some ranks, but not on others; here: " +
                                   segments_text(mine.last_indices));
  }
  if (least.back() != most.back()) return {};
  for (std::size_t i = 0; i < count; ++i) {
    if (least[count + i] == most[count + i]) continue;
    return Status(Code::kPara, "the ranks have the same gradients in different orders: here " +
                                   named(i) + ", on other ranks another name at this place");
  }
  return {};
}

Result<std::vector<CostSample>> cost_samples(core::Communicator& communicator,
                                             std::uint64_t bytes) {
  std::vector<CostSample> samples;
  if (communicator.size() == 1) return samples;
  std::vector<std::uint64_t> sizes;
  for (const std::uint64_t size : kSizes) {
    if (size <= bytes || sizes.empty()) sizes.push_back(size);
  }
  const core::Selection& selection = communicator.operations().selection();
  if (selection.is_measured(Op::kAllReduce)) {
    for (const std::uint64_t size : sizes) {
      samples.push_back({size, 1e-9 * selection.predict_ns(Op::kAllReduce, size, false)});
    }
    return samples;
  }
  const std::unique_ptr<float[]> buffer(new (std::nothrow) float[sizes.back() / sizeof(float)]());
  // If this rank has no memory, the other ranks learn that here, so that they do not wait for it.
  double have = buffer ? 1 : 0;
  HCCL_RETURN_IF_ERROR(minimum(communicator, {&have, 1}));
  if (have == 0) return Status(Code::kOom, "no memory to measure the cost of an allreduce");
  select::ProbeRuns runs;
  runs.run = [&](const Call& call, std::string_view) {
    return communicator.operations().run(call);
  };
  Call call{Op::kAllReduce, buffer.get(), buffer.get()};
  std::chrono::nanoseconds spent{0};  // the same on all ranks
  const auto timed = [&](std::uint64_t size, double expected_ns,
                         std::chrono::nanoseconds until) -> Result<std::optional<double>> {
    call.count = size / sizeof(float);
    select::Timer timer(runs, std::max(until - spent, std::chrono::nanoseconds(0)));
    HCCL_ASSIGN_OR_RETURN(const auto ns, timer.time(call, {}, size, expected_ns));
    spent += std::chrono::nanoseconds(std::llround(timer.spent()));
    return ns;
  };
  double expected = 0;
  for (const std::uint64_t size : sizes) {
    HCCL_ASSIGN_OR_RETURN(const auto ns, timed(size, expected, kUpwards));
    if (!ns) break;
    samples.push_back({size, 1e-9 * *ns});
    // Two sizes are always timed, because one size does not separate the start cost from the cost
    // per byte. The time grows at most in proportion to the bytes.
    expected = samples.size() == 1 ? 0 : *ns * static_cast<double>(kSizes[1]) / kSizes[0];
  }
  // After a pause, a network sends the first bytes at once. The longest vectors have used up that
  // allowance, so measure the times of the shorter vectors again.
  for (std::size_t i = samples.size() - 1; i-- > 0;) {
    HCCL_ASSIGN_OR_RETURN(const auto ns, timed(samples[i].bytes, 0, kDownwards));
    if (ns) samples[i].seconds = 1e-9 * *ns;
  }
  return samples;
}

Status broadcast_decision(core::Communicator& communicator, Decision& decision,
                          std::size_t gradients) {
  if (communicator.size() == 1) return {};
  struct {
    Told told;
    std::uint32_t segments;
    std::uint32_t last_indices[kMostSegments];
  } message = {};
  auto& list = decision.last_indices;
  if (communicator.rank() == 0) {
    message.told = decision;
    // Unchanged segments are not sent.
    if (decision.changed)
      message.segments = static_cast<std::uint32_t>(std::min(list.size(), kMostSegments));
    std::copy_n(list.begin(), message.segments, message.last_indices);
  }
  HCCL_RETURN_IF_ERROR(broadcast(communicator, &message, sizeof message, DataType::kUint8));
  static_cast<Told&>(decision) = message.told;
  if (!decision.changed) return {};
  list.assign(message.last_indices,
              message.last_indices + std::min<std::size_t>(message.segments, kMostSegments));
  HCCL_RETURN_IF_ERROR(check_last_indices(decision.last_indices));
  if (decision.last_indices.back() + std::size_t{1} == gradients) return {};
  return Status(Code::kPara, "plan " + std::to_string(decision.version) +
                                 " is of another model: " + segments_text(decision.last_indices) +
                                 ", but there are " + std::to_string(gradients) + " gradients");
}

Result<Order> order_together(core::Communicator& communicator, const Trace& mine,
                             std::size_t element) {
  Order order;
  Status failure;
  if (communicator.rank() == 0) {
    auto planned = order_of(mine, element);
    failure = planned.status();
    if (planned.ok()) order = *std::move(planned);
  }
  double head[] = {static_cast<double>(order.messages.size()), order.in_order, order.late};
  HCCL_RETURN_IF_ERROR(broadcast(communicator, head, std::size(head), DataType::kFp64));
  HCCL_RETURN_IF_ERROR(failure);
  if (head[0] == 0)
    return Status(Code::kPara, "rank 0 cannot plan an order: its error has the reason");
  order.in_order = head[1];
  order.late = head[2];
  order.messages.resize(static_cast<std::size_t>(head[0]));
  HCCL_RETURN_IF_ERROR(
      broadcast(communicator, order.messages.data(), 2 * order.messages.size(), DataType::kUint64));
  communicator.membership().log->info(
      "gradient order: newest first in {} messages; the next forward waits {:.1f} ms, {:.1f} ms "
      "with all in order",
      order.messages.size(), 1e3 * order.late, 1e3 * order.in_order);
  return order;
}

Result<Segments> plan_together(core::Communicator& communicator,
                               std::span<const std::uint64_t> bytes, std::vector<double> ready) {
  const std::vector<std::string> names(bytes.size());
  HCCL_RETURN_IF_ERROR(agree(communicator, {bytes, names}));
  for (double& each : ready) each = -each;
  HCCL_RETURN_IF_ERROR(minimum(communicator, ready));
  for (double& each : ready) each = -each;
  HCCL_ASSIGN_OR_RETURN(
      const auto samples,
      cost_samples(communicator, std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0})));
  Decision decision;
  decision.changed = true;
  decision.last_indices = {static_cast<std::uint32_t>(bytes.size() - 1)};
  Status failure;
  if (!samples.empty() && communicator.rank() == 0) {  // a single rank has no samples
    HCCL_ASSIGN_OR_RETURN(const CostModel model, CostModel::create(samples));
    auto plan = best_plan({bytes, ready}, model.cost());
    failure = plan.status();
    if (plan.ok()) {
      communicator.membership().log->info("gradient plan: {}", to_string(*plan, 0));
      decision.last_indices = std::move(plan->last_indices);
    }
  }
  HCCL_RETURN_IF_ERROR(broadcast_decision(communicator, decision, bytes.size()));
  HCCL_RETURN_IF_ERROR(failure);
  return decision.last_indices;
}

}  // namespace hccl::split
