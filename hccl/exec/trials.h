// Times one thing after another on all ranks alike, within a budget. Whether there is time for
// another one, and how often it is repeated, depends only on numbers that the ranks have agreed on,
// so that no rank waits for one that has stopped.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "hccl/base/status.h"

namespace hccl::exec {

class Trials {
 public:
  using Clock = std::chrono::steady_clock;
  struct Ranks {
    std::function<Status()> meet;                      ///< returns once all ranks have called it
    std::function<Status(std::span<double>)> largest;  ///< each number becomes the largest of all
    std::function<Clock::time_point()> now = Clock::now;
  };
  static constexpr std::size_t kMostRounds = 9;

  /// The budget counts from here.
  Trials(std::chrono::nanoseconds budget, Ranks ranks)
      : ranks_(std::move(ranks)),
        budget_(static_cast<double>(budget.count())),
        start_(ranks_.now()) {}

  /// Nanoseconds that body() takes: the median of several rounds, of the slowest rank in each.
  /// prepare() runs before each round, outside of the time. Nothing, without a call, where the
  /// budget has no room for what is expected. All ranks pass the same `expected_ns`.
  template <class Prepare, class Body>
  Result<std::optional<double>> time(double expected_ns, Prepare&& prepare, Body&& body) {
    // Warming up, and one round at least.
    if (spent_ + 2 * expected_ns > budget_) return std::optional<double>();
    std::vector<double> rounds;
    const double before = since(start_);
    HCCL_RETURN_IF_ERROR(round(rounds, prepare, body));
    rounds.push_back(since(start_) - before);
    HCCL_RETURN_IF_ERROR(agree(rounds));
    const double cold = rounds[0], with_all = rounds[1];
    rounds.clear();
    const double room = std::min(budget_ / kShare, budget_ - spent_);
    const auto count = static_cast<std::size_t>(
        std::clamp(room / std::max(with_all, 1.0), 0.0, static_cast<double>(kMostRounds)));
    if (count == 0 && spent_ + with_all > budget_) return std::optional<double>(cold);
    while (rounds.size() < std::max<std::size_t>(count, 1)) {
      HCCL_RETURN_IF_ERROR(round(rounds, prepare, body));
    }
    HCCL_RETURN_IF_ERROR(agree(rounds));
    const auto middle = rounds.begin() + static_cast<std::ptrdiff_t>(rounds.size() / 2);
    std::nth_element(rounds.begin(), middle, rounds.end());
    return std::optional<double>(*middle);
  }

  /// Nanoseconds since the start, as the ranks last agreed.
  double spent() const { return spent_; }

 private:
  // No trial takes more of the budget than one part of so many, if a single round does not.
  static constexpr double kShare = 50;

  double since(Clock::time_point then) const {
    return static_cast<double>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(ranks_.now() - then).count());
  }
  template <class Prepare, class Body>
  Status round(std::vector<double>& rounds, Prepare&& prepare, Body&& body) {
    prepare();
    HCCL_RETURN_IF_ERROR(ranks_.meet());
    const auto then = ranks_.now();
    HCCL_RETURN_IF_ERROR(body());
    rounds.push_back(since(then));
    // Who is done first does not prepare the next round in the time of those who share its core.
    return ranks_.meet();
  }
  Status agree(std::vector<double>& rounds) {
    rounds.push_back(since(start_));
    HCCL_RETURN_IF_ERROR(ranks_.largest(rounds));
    spent_ = rounds.back();
    rounds.pop_back();
    return {};
  }

  Ranks ranks_;
  double budget_;
  Clock::time_point start_;
  double spent_ = 0;
};

}  // namespace hccl::exec
