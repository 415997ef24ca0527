// What compute and communication lose to each other while both run, from measurements that are
// never quite alike: what noise could explain is not taken for a loss. Pure.
#pragma once

#include <optional>
#include <span>

#include "split/planner.h"

namespace hccl::split {

/// How long things take in iterations without segments beside compute, and in those with. Seconds;
/// medians, and their standard errors.
struct ApartAndBeside {
  double compute_alone = 0;
  double compute_beside = 0;
  double compute_error = 0;  ///< of the difference of both
  double busy = 0;           ///< how long segments ran beside compute, without delays
  double work = 0;           ///< how long that part of them takes alone
  double work_error = 0;     ///< of work - busy
};

/// One segment of both kinds of iterations. Seconds.
struct SegmentApartAndBeside {
  double alone = 0;    ///< it takes without compute
  double beside = 0;   ///< it takes in an iteration with segments beside compute
  double overlap = 0;  ///< of that, while compute ran
};

/// What is lost, noise and all. Nothing if busy is less than a twentieth of compute: too little to
/// tell.
std::optional<Contention> contention_of(const ApartAndBeside& measured);

/// How much longer the start of a segment takes beside compute, whatever its size: it waits for a
/// core that compute has. Seconds of the same segments, apart and beside each other; the line
/// through what they lose, over what they take, tells. 0 if noise explains it; nothing if there are
/// fewer than 8, which cannot tell.
std::optional<double> delay_beside(std::span<const double> alone, std::span<const double> beside);

/// What several measurements say together; the older, the less.
class ContentionEstimate {
 public:
  void add(const ApartAndBeside& measured);
  /// The same, of these segments: busy and work are theirs, and they tell the delay.
  void add(ApartAndBeside measured, std::span<const SegmentApartAndBeside> segments);
  /// Segments may begin in time again.
  void forget_delay() { delay_.reset(); }
  /// Nothing before the first measurement. A loss that is not at least twice its error counts as
  /// none: full speed.
  std::optional<Contention> contention() const;
  /// Measured well enough to rely on, whatever it says.
  bool is_settled() const;

 private:
  struct Fraction {
    double value = 1;
    double variance = 0;
    void add(double next, double error, bool first);
    double significant() const;
  };
  bool measured_ = false;
  Fraction compute_;
  Fraction communication_;
  std::optional<double> delay_;
};

}  // namespace hccl::split
