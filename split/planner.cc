#include "split/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "split/planner_model.h"

namespace hccl::split {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// end[k][e] is the earliest end of the first e gradients in at most k segments; next_row()
/// computes one row. begin[k][e] is the first gradient of the last of these segments, or kSame if k
/// segments are no better than k - 1.
class Table {
 public:
  static constexpr std::uint32_t kSame = std::numeric_limits<std::uint32_t>::max();

  explicit Table(std::size_t size)
      : size_(size), end_(size + 1, kNever), before_(size + 1, kNever) {
    end_[0] = 0;
  }
  /// Computes the row for one more segment. If `exactly` is set, drops plans with fewer segments.
  void next_row(bool exactly = false) {
    before_ = end_;
    if (exactly) std::fill(end_.begin(), end_.end(), kNever);
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
  /// Whether this row gained anything. If not, no later row does.
  bool changed() const { return changed_; }

  /// Returns the plan of at most `segments` segments.
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

template <class C>
double end_of(const Model& model, const C& cost, double before, std::size_t b, std::size_t e) {
  return std::max(before, model.ready[e]) + cost(model.sum[e] - model.sum[b]);
}

// Both forms of fill_row use the following fact: before(b), the earliest end of the first b
// gradients, never falls as b grows. So of all b with before(b) not later than the ready time of
// gradient e, only the largest matters. Its name is `idle`.

/// Computes one row in O(m). For b > idle the wire is busy until before(b), and the end is start +
/// per_byte * sum[e] + (before(b) - per_byte * sum[b]). The row needs the minimum over a sliding
/// window of b.
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

/// Computes one row for any cost, O(m^2) at worst. From `idle` upwards before(b) rises. So the
/// search stops when before(b) plus the cost of the last gradient alone exceeds the best end found.
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

/// Computes a lower bound of the end: end >= compute + work - gain * overlap, where `gain` is the
/// share of the overlapped time that overlap saves. The bytes of gradient i and later ones cannot
/// start before gradient i is ready. So if they take longer than the rest of compute, the excess is
/// not overlapped. `least(i)` is the least time of these bytes. README.md has the derivation. If
/// overlap does not pay, the best plan runs all segments after compute.
template <class Least>
double bound(const Model& model, const Least& least) {
  const Contention& speed = model.contention;
  const double compute = model.ready.back(), all = least(0);
  if (!speed.overlap_pays()) return compute + all;
  double late = 0;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const double rest = (compute - model.ready[i + 1]) * speed.communication / speed.compute;
    late = std::max(late, least(i) - rest);
  }
  const double gain = speed.compute + speed.communication - 1;
  return compute + ((1 - speed.compute) * all + gain * late) / speed.communication;
}

double lower_bound(const Model& model, const AffineCost& cost, std::size_t /*max_segments*/) {
  return bound(model, [&](std::size_t i) { return cost(model.sum.back() - model.sum[i]); });
}

/// Computes the least cost of bytes in several segments, from the lower convex hull of a table's
/// costs. The hull begins with 0 bytes (no cost) and ends with all bytes. No segment costs less
/// than the hull.
class Hull {
 public:
  Hull(const TableCost& cost, std::uint64_t most) : cost_(cost) {
    for (const auto& point : cost.points())
      if (point.bytes < most) add(point.bytes);
    add(most);
  }

  /// Returns a lower bound for the cost of `bytes` in at most `segments` segments. The bound also
  /// holds for plans with fewer segments, because the hull begins with 0 bytes at no cost.
  double least(double bytes, std::size_t segments) const {
    if (segments == 0) return bytes > 0 ? std::numeric_limits<double>::infinity() : 0;
    const double each = bytes / static_cast<double>(segments);
    auto right = std::lower_bound(corners_.begin() + 1, corners_.end(), each,
                                  [](const Corner& corner, double b) { return corner.bytes < b; });
    if (right == corners_.end()) --right;
    const Corner& left = *std::prev(right);
    const double slope = (right->seconds - left.seconds) / (right->bytes - left.bytes);
    return static_cast<double>(segments) * (left.seconds + slope * (each - left.bytes));
  }

  /// Returns the least cost if one segment has at least `largest` bytes. The cost of this segment
  /// plus the cost of all other segments is piecewise linear, with bends where either cost bends.
  double least(std::uint64_t bytes, std::uint64_t largest, std::size_t segments) const {
    largest = std::max(largest, bytes / segments + (bytes % segments != 0 ? 1 : 0));
    const auto with = [&](std::uint64_t size) {
      return cost_(size) + least(static_cast<double>(bytes - size), segments - 1);
    };
    double found = std::min(with(largest), with(bytes));
    const auto try_size = [&](std::uint64_t size) {
      if (size > largest && size < bytes) found = std::min(found, with(size));
    };
    for (const auto& point : cost_.points()) try_size(point.bytes);
    for (const Corner& corner : corners_) {
      const double others = corner.bytes * static_cast<double>(segments - 1);
      if (others >= static_cast<double>(bytes)) continue;
      const std::uint64_t size = bytes - static_cast<std::uint64_t>(others);
      try_size(size);
      try_size(size - 1);
    }
    return found;
  }

 private:
  struct Corner {
    double bytes = 0;
    double seconds = 0;
  };

  void add(std::uint64_t bytes) {
    const Corner next{static_cast<double>(bytes), cost_(bytes)};
    const auto above = [&](const Corner& left, const Corner& middle) {
      return (middle.seconds - left.seconds) * (next.bytes - left.bytes) >=
             (next.seconds - left.seconds) * (middle.bytes - left.bytes);
    };
    while (corners_.size() > 1 && above(corners_[corners_.size() - 2], corners_.back()))
      corners_.pop_back();
    corners_.push_back(next);
  }

  const TableCost& cost_;
  std::vector<Corner> corners_{{0, 0}};
};

double lower_bound(const Model& model, const TableCost& cost, std::size_t max_segments) {
  const Hull hull(cost, std::max<std::uint64_t>(model.sum.back(), 1));
  std::vector<std::uint64_t> largest(model.size() + 1, 0);  // [i]: largest gradient from i on
  for (std::size_t i = model.size(); i-- > 0;)
    largest[i] = std::max(largest[i + 1], model.sum[i + 1] - model.sum[i]);
  return bound(model, [&](std::size_t i) {
    const std::size_t segments = std::min(max_segments, model.size() - i);
    return hull.least(model.sum.back() - model.sum[i], largest[i], segments);
  });
}

/// Runs the recurrence without contention, for at most `rows` segments. Fills `ends` and the table.
template <class C>
void plan_alone(const Model& model, const C& cost, std::size_t rows, Table& table,
                std::vector<double>& ends) {
  std::vector<std::uint32_t> window;
  for (std::size_t k = 0; k < rows && table.changed(); ++k) {
    table.next_row();
    fill_row(model, cost, table, window);
    ends.push_back(table.result());
  }
}

/// With contention, the state after the first e gradients in exactly k segments is their end and
/// the time that compute has lost until then. While compute runs and the cost is affine, k and e
/// alone determine the loss, because all communication ran during compute. After compute has ended,
/// nothing more is lost. So an early end is never worse than a late one, and the result is exact.
/// For other costs the loss depends on the earlier cuts; the cuts with the earliest end count.
template <class C>
void plan_beside(const Model& model, const C& cost, std::size_t rows, Table& table,
                 std::vector<double>& ends) {
  std::vector<double> lost(model.size() + 1, 0), lost_before;
  for (std::size_t k = 0; k < rows; ++k) {
    table.next_row(true);
    lost_before = lost;
    for (std::size_t e = k + 1; e <= model.size(); ++e) {
      for (std::size_t b = e; b-- > k;) {
        if (table.before(b) >= table.end(e)) continue;
        const Run run =
            run_beside(model, std::max(table.before(b), model.ready[e] + lost_before[b]),
                       lost_before[b], cost(model.sum[e] - model.sum[b]));
        if (run.end >= table.end(e)) continue;
        table.offer(e, b, run.end);
        lost[e] = run.lost;
      }
    }
    ends.push_back(table.result());
  }
}

template <class C>
Result<Plan> plan_with(const Problem& problem, const C& cost) {
  HCCL_RETURN_IF_ERROR(check(cost));
  if (problem.max_segments == 0) return Status(Code::kPara, "max_segments is 0: allow at least 1");
  if (!is_time(problem.slack))
    return Status(Code::kPara,
                  "slack is " + std::to_string(problem.slack) + ": it must not be negative");
  HCCL_ASSIGN_OR_RETURN(const Model model, make_model(problem));

  const bool pays = problem.contention.overlap_pays();
  const std::size_t rows = pays ? std::min<std::size_t>(problem.max_segments, model.size()) : 1;
  Table table(model.size());
  std::vector<double> ends;  // ends[k]: the best end with k + 1 segments, or at most k + 1
  (problem.contention.none() ? plan_alone<C> : plan_beside<C>)(model, cost, rows, table, ends);
  Plan plan;
  plan.best_end = *std::min_element(ends.begin(), ends.end());
  if (!std::isfinite(plan.best_end))
    return Status(Code::kPara, "the predicted times exceed the range of a double");
  // One more segment must gain more than the rounding error of the sums; with contention the sums
  // are longer.
  const double rounding = problem.contention.none() ? 1e-12 : 1e-10;
  const double enough = (1 + problem.slack + rounding) * plan.best_end;
  const auto chosen =
      std::find_if(ends.begin(), ends.end(), [&](double end) { return end <= enough; });
  plan.end = *chosen;
  plan.last_indices = table.trace_back(static_cast<std::size_t>(chosen - ends.begin()) + 1);
  plan.lower_bound =
      lower_bound(model, cost, std::min<std::size_t>(problem.max_segments, model.size()));
  return plan;
}

template <class C>
Result<Prediction> predict_with(const Problem& problem, std::span<const std::uint32_t> last_indices,
                                const C& cost) {
  HCCL_RETURN_IF_ERROR(check(cost));
  HCCL_ASSIGN_OR_RETURN(const Model model, make_model(problem));
  HCCL_ASSIGN_OR_RETURN(const Segments segments, segments_by_index(problem.bytes, last_indices));
  Prediction out;
  // The points at which the speed of compute changes: the progress of compute, and the time.
  std::vector<std::pair<double, double>> bends;
  double lost = 0;
  std::size_t begin = 0;
  for (const std::uint32_t last : segments) {
    const std::size_t e = last + std::size_t{1};
    const double start = std::max(out.end, model.ready[e] + lost);
    const Run run = run_beside(model, start, lost, cost(model.sum[e] - model.sum[begin]));
    bends.emplace_back(start - lost, start);
    bends.emplace_back(run.apart - run.lost, run.apart);
    out.segments.push_back({start, run.end});
    out.end = run.end;
    lost = run.lost;
    begin = e;
  }
  const auto when = [&](double work) {
    double from = 0, at = 0;  // full speed up to the first bend
    for (const auto& [done, time] : bends) {
      if (done >= work) {
        return done > from ? at + (time - at) * (work - from) / (done - from) : at;
      }
      from = done;
      at = time;
    }
    return at + (work - from);
  };
  for (const double ready : problem.ready) out.ready.push_back(when(ready));
  out.compute_end = when(model.ready.back());
  return out;
}

}  // namespace

Result<Plan> plan_segments(const Problem& problem, const Cost& cost) {
  return std::visit([&](const auto& each) { return plan_with(problem, each); }, cost);
}

Result<Prediction> predict(const Problem& problem, std::span<const std::uint32_t> last_indices,
                           const Cost& cost) {
  return std::visit([&](const auto& each) { return predict_with(problem, last_indices, each); },
                    cost);
}

}  // namespace hccl::split
