// The estimate of contention, from measurements whose true contention is known.
#include <gtest/gtest.h>

#include "split/planner.h"

namespace hccl::split {
namespace {

// Segments run for 100 ms beside compute of 200 ms.
ApartAndBeside measured(double compute, double communication) {
  return {0.2, 0.2 + (1 - compute) * 0.1, 0.1, communication * 0.1};
}

TEST(Contention, IsWhatBothLose) {
  const auto found = contention_of(measured(0.7, 0.9));
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(found->compute, 0.7, 1e-9);
  EXPECT_NEAR(found->communication, 0.9, 1e-9);
}

TEST(Contention, NothingWithoutOverlap) {
  ApartAndBeside little = measured(0.5, 0.5);
  little.busy = 0.004;
  EXPECT_FALSE(contention_of(little).has_value());
  EXPECT_FALSE(contention_of({0.2, 0.3, 0, 0}).has_value());
}

TEST(Contention, WhatIsTooLittleToTellIsFullSpeedAndSoIsAGain) {
  EXPECT_TRUE(contention_of(measured(0.99, 0.985))->none());
  EXPECT_TRUE(contention_of(measured(1.2, 1.1))->none());
}

TEST(Contention, NothingComesToAStandstill) {
  const auto found = contention_of(measured(-3, 0));
  EXPECT_GT(found->compute, 0);
  EXPECT_GT(found->communication, 0);
  EXPECT_FALSE(found->overlap_pays());
}

}  // namespace
}  // namespace hccl::split
