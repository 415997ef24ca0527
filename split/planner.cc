#include "split/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace hccl::split {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

bool is_time(double value) { return std::isfinite(value) && value >= 0; }

/// The problem in the form the recurrences use.
struct Model {
  std::vector<std::uint64_t> sum;  // sum[e]: bytes of the first e gradients
  std::vector<double> ready;  // ready[e]: when the first e gradients are all ready; ready[0] = 0
  std::size_t size() const { return sum.size() - 1; }
};

Result<Model> make_model(std::span<const std::uint64_t> bytes, std::span<const double> ready) {
  if (bytes.empty()) return Status(Code::kPara, "no gradients: there is nothing to plan");
  if (bytes.size() > std::numeric_limits<std::uint32_t>::max())
    return Status(Code::kPara, "more than 2^32-1 gradients");
  if (bytes.size() != ready.size())
    return Status(Code::kPara, std::to_string(bytes.size()) + " gradient sizes, but " +
                                   std::to_string(ready.size()) + " ready times");
  Model model{{0}, {0}};
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
Status check(const TableCost&) { return {}; }  // checked when it was made

/// end[k][e]: earliest end of the first e gradients in at most k segments, one row at a time.
/// begin[k][e]: where the last of these segments begins; kSame: k segments are no better than k
/// - 1.
class Table {
 public:
  static constexpr std::uint32_t kSame = std::numeric_limits<std::uint32_t>::max();

  explicit Table(std::size_t size)
      : size_(size), end_(size + 1, kNever), before_(size + 1, kNever) {
    end_[0] = 0;
  }
  /// Goes on to plans of one segment more.
  void next_row() {
    before_ = end_;
    changed_ = false;
    begin_.insert(begin_.end(), size_ + 1, kSame);
  }
  double before(std::size_t e) const { return before_[e]; }
  double end(std::size_t e) const { return end_[e]; }
  void offer(std::size_t e, std::size_t begin, double end) {
    if (end >= end_[e]) return;
    changed_ = true;
    end_[e] = end;
    begin_[begin_.size() - (size_ + 1) + e] = static_cast<std::uint32_t>(begin);
  }
  double result() const { return end_[size_]; }
  /// Whether this row gained anything; if not, no later one does.
  bool changed() const { return changed_; }

  /// The plan of at most `segments` segments.
  Segments trace_back(std::size_t segments) const {
    Segments last_indices;
    std::size_t e = size_;
    for (std::size_t k = segments; e > 0; --k) {
      const std::uint32_t begin = begin_[(k - 1) * (size_ + 1) + e];
      if (begin == kSame) continue;
      last_indices.push_back(static_cast<std::uint32_t>(e - 1));
      e = begin;
    }
    std::reverse(last_indices.begin(), last_indices.end());
    return last_indices;
  }

 private:
  std::size_t size_;
  std::vector<double> end_;
  std::vector<double> before_;
  std::vector<std::uint32_t> begin_;
  bool changed_ = true;
};

template <class Cost>
double end_of(const Model& model, const Cost& cost, double before, std::size_t b, std::size_t e) {
  return std::max(before, model.ready[e]) + cost(model.sum[e] - model.sum[b]);
}

// Both rows rest on this: before(b), the earliest end of the first b gradients, never falls with b,
// so of all b whose segments end before gradient e is ready, only the largest matters. It is
// `idle`.

/// One row in O(m). For b > idle the wire is busy until before(b), and the end is
/// start + per_byte * sum[e] + (before(b) - per_byte * sum[b]): the minimum over a sliding window
/// of b.
void fill_row(const Model& model, const AffineCost& cost, Table& table,
              std::vector<std::uint32_t>& window) {
  const auto key = [&](std::size_t b) {
    return table.before(b) - cost.per_byte * static_cast<double>(model.sum[b]);
  };
  window.clear();        // candidates b > idle, keys ascending
  std::size_t head = 0;  // window[head..] are alive
  std::size_t idle = 0;
  for (std::size_t e = 1; e <= model.size(); ++e) {
    while (idle + 1 < e && table.before(idle + 1) <= model.ready[e]) ++idle;
    if (const std::size_t b = e - 1; b > idle && table.before(b) < kNever) {
      while (window.size() > head && key(window.back()) >= key(b)) window.pop_back();
      window.push_back(static_cast<std::uint32_t>(b));
    }
    while (head < window.size() && window[head] <= idle) ++head;
    table.offer(e, idle, end_of(model, cost, table.before(idle), idle, e));
    if (head < window.size())
      table.offer(e, window[head],
                  end_of(model, cost, table.before(window[head]), window[head], e));
  }
}

/// One row for any cost, O(m^2) at worst. Upwards from `idle` the wire is busy ever longer, so it
/// stops when that, and the last gradient alone, already take longer than the best found.
void fill_row(const Model& model, const TableCost& cost, Table& table,
              std::vector<std::uint32_t>& /*window*/) {
  std::size_t idle = 0;
  for (std::size_t e = 1; e <= model.size(); ++e) {
    while (idle + 1 < e && table.before(idle + 1) <= model.ready[e]) ++idle;
    const double least = cost(model.sum[e] - model.sum[e - 1]);
    for (std::size_t b = idle; b < e && table.before(b) + least < table.end(e); ++b)
      table.offer(e, b, end_of(model, cost, table.before(b), b, e));
  }
}

/// The bytes of the gradients i.. cannot start before gradient i is ready, and cost at least
/// `least`.
template <class Least>
double bound(const Model& model, const Least& least) {
  double result = 0;
  for (std::size_t i = 0; i < model.size(); ++i)
    result = std::max(result, model.ready[i + 1] + least(model.sum.back() - model.sum[i]));
  return result;
}

double lower_bound(const Model& model, const AffineCost& cost, std::size_t /*max_segments*/) {
  return bound(model, cost);
}

/// n bytes in at most K segments: one of them has n / K, and none is cheaper a byte than the
/// cheapest size.
double lower_bound(const Model& model, const TableCost& cost, std::size_t max_segments) {
  const std::uint64_t total = std::max<std::uint64_t>(model.sum.back(), 1);
  const auto rate = [&](std::uint64_t bytes) { return cost(bytes) / static_cast<double>(bytes); };
  double least_rate = rate(total);
  for (const auto& point : cost.points())  // between two points the rate is monotone
    if (point.bytes < total) least_rate = std::min(least_rate, rate(point.bytes));
  return bound(model, [&](std::uint64_t bytes) {
    const std::uint64_t part = bytes / max_segments + (bytes % max_segments != 0 ? 1 : 0);
    return std::max(cost(part), least_rate * static_cast<double>(bytes));
  });
}

template <class Cost>
Result<Plan> plan_with(const Problem& problem, const Cost& cost) {
  HCCL_RETURN_IF_ERROR(check(cost));
  if (problem.max_segments == 0) return Status(Code::kPara, "max_segments is 0: allow at least 1");
  if (!is_time(problem.slack))
    return Status(Code::kPara,
                  "slack is " + std::to_string(problem.slack) + ": it must not be negative");
  HCCL_ASSIGN_OR_RETURN(const Model model, make_model(problem.bytes, problem.ready));

  const std::size_t rows = std::min<std::size_t>(problem.max_segments, model.size());
  Table table(model.size());
  std::vector<std::uint32_t> window;
  std::vector<double> ends;  // ends[k]: the best end with at most k + 1 segments
  for (std::size_t k = 0; k < rows && table.changed(); ++k) {
    table.next_row();
    fill_row(model, cost, table, window);
    ends.push_back(table.result());
  }
  Plan plan;
  plan.best_end = ends.back();
  if (!std::isfinite(plan.best_end))
    return Status(Code::kPara, "the predicted times exceed the range of a double");
  constexpr double kRounding = 1e-12;  // one more segment must gain more than the sums' rounding
  const double enough = (1 + problem.slack + kRounding) * plan.best_end;
  const auto chosen =
      std::find_if(ends.begin(), ends.end(), [&](double end) { return end <= enough; });
  plan.end = *chosen;
  plan.last_indices = table.trace_back(static_cast<std::size_t>(chosen - ends.begin()) + 1);
  plan.lower_bound = lower_bound(model, cost, rows);
  return plan;
}

template <class Cost>
Result<double> end_with(std::span<const std::uint64_t> bytes, std::span<const double> ready,
                        std::span<const std::uint32_t> last_indices, const Cost& cost) {
  HCCL_RETURN_IF_ERROR(check(cost));
  HCCL_ASSIGN_OR_RETURN(const Model model, make_model(bytes, ready));
  HCCL_ASSIGN_OR_RETURN(const Segments segments, segments_by_index(bytes, last_indices));
  double end = 0;
  std::size_t begin = 0;
  for (const std::uint32_t last : segments) {
    end = end_of(model, cost, end, begin, last + std::size_t{1});
    begin = last + std::size_t{1};
  }
  return end;
}

}  // namespace

Result<TableCost> TableCost::create(std::vector<Point> points) {
  if (points.empty()) return Status(Code::kPara, "cost table: no points");
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Point before = i == 0 ? Point{0, 0} : points[i - 1];
    const std::string name = "cost table: point " + std::to_string(i) + " (" +
                             std::to_string(points[i].bytes) + " bytes, " +
                             std::to_string(points[i].seconds) + " s) ";
    if (points[i].bytes <= before.bytes)
      return Status(Code::kPara, name + "must have more bytes than the one before it, or than 0");
    if (!is_time(points[i].seconds) || points[i].seconds < before.seconds)
      return Status(Code::kPara, name + "must take at least as long as the one before it, or 0 s");
  }
  return TableCost(std::move(points));
}

double TableCost::operator()(std::uint64_t bytes) const {
  const Point& first = points_.front();
  if (bytes <= first.bytes) return first.seconds;
  const auto n = static_cast<double>(bytes);
  if (points_.size() == 1) return first.seconds / static_cast<double>(first.bytes) * n;
  auto right =
      std::lower_bound(points_.begin(), points_.end(), bytes,
                       [](const Point& point, std::uint64_t b) { return point.bytes < b; });
  if (right == points_.end()) --right;
  const Point& left = *std::prev(right);
  const double slope =
      (right->seconds - left.seconds) / static_cast<double>(right->bytes - left.bytes);
  return left.seconds + slope * (n - static_cast<double>(left.bytes));
}

Result<Plan> plan_segments(const Problem& problem, const AffineCost& cost) {
  return plan_with(problem, cost);
}
Result<Plan> plan_segments(const Problem& problem, const TableCost& cost) {
  return plan_with(problem, cost);
}

Result<double> predicted_end(std::span<const std::uint64_t> bytes, std::span<const double> ready,
                             std::span<const std::uint32_t> last_indices, const AffineCost& cost) {
  return end_with(bytes, ready, last_indices, cost);
}
Result<double> predicted_end(std::span<const std::uint64_t> bytes, std::span<const double> ready,
                             std::span<const std::uint32_t> last_indices, const TableCost& cost) {
  return end_with(bytes, ready, last_indices, cost);
}

}  // namespace hccl::split
