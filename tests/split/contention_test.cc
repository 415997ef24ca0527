// What is taken for contention, and what for noise: measurements whose truth is known.
#include "split/contention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "split/statistics.h"

namespace hccl::split {
namespace {

// Segments run for 100 ms beside compute of 200 ms.
ApartAndBeside measured(double compute, double communication, double error) {
  ApartAndBeside out;
  out.busy = 0.1;
  out.compute_alone = 0.2;
  out.compute_beside = 0.2 + (1 - compute) * out.busy;
  out.work = communication * out.busy;
  out.compute_error = out.work_error = error * out.busy;
  return out;
}

TEST(ErrorOfMedian, IsThatOfRepeatedSampling) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(5, 1);
  std::vector<double> medians, told;
  for (int round = 0; round < 2000; ++round) {
    std::vector<double> values(9);
    for (double& each : values) each = noise(random);
    told.push_back(error_of_median(values));
    std::nth_element(values.begin(), values.begin() + 4, values.end());
    medians.push_back(values[4]);
  }
  double square = 0, mean = 0;
  for (const double each : medians) square += (each - 5) * (each - 5) / 2000;
  for (const double each : told) mean += each / 2000;
  EXPECT_NEAR(mean / std::sqrt(square), 1, 0.2);
}

TEST(ErrorOfMedian, AnOutlierDoesNotCount) {
  const double quiet = error_of_median({10, 11, 12, 13, 14, 15, 16});
  EXPECT_NEAR(error_of_median({10, 11, 12, 13, 14, 15, 1000}), quiet, 0.5 * quiet);
  EXPECT_EQ(error_of_median({3}), 0);
  EXPECT_EQ(error_of_median({3, 5}), 2);
}

TEST(ContentionEstimate, NothingWithoutOverlap) {
  ContentionEstimate estimate;
  ApartAndBeside little = measured(0.5, 0.5, 0);
  little.busy = 0.004;
  estimate.add(little);
  EXPECT_FALSE(estimate.contention().has_value());
  EXPECT_FALSE(estimate.is_settled());
}

TEST(ContentionEstimate, ClearLossesAreTakenAtOnce) {
  ContentionEstimate estimate;
  estimate.add(measured(0.7, 0.9, 0.01));
  EXPECT_NEAR(estimate.contention()->compute, 0.7, 1e-9);
  EXPECT_NEAR(estimate.contention()->communication, 0.9, 1e-9);
  EXPECT_TRUE(estimate.is_settled());
}

TEST(ContentionEstimate, WhatNoiseExplainsIsFullSpeedUntilItShowsAgainAndAgain) {
  ContentionEstimate estimate;
  estimate.add(measured(0.7, 0.9, 0.3));
  EXPECT_TRUE(estimate.contention()->none());
  EXPECT_FALSE(estimate.is_settled());
  for (int i = 0; i < 20; ++i) estimate.add(measured(0.5, 0.9, 0.3));
  EXPECT_NEAR(estimate.contention()->compute, 0.5, 0.05);
  EXPECT_EQ(estimate.contention()->communication, 1);
}

TEST(ContentionEstimate, PureNoiseIsHardlyEverTakenForALoss) {
  std::mt19937_64 random(2);
  std::normal_distribution<double> noise(0, 0.2);
  int wrong = 0;
  for (int training = 0; training < 500; ++training) {
    ContentionEstimate estimate;
    for (int window = 0; window < 3; ++window)
      estimate.add(measured(1 + noise(random), 1 + noise(random), 0.2));
    wrong += !estimate.contention()->none();
  }
  EXPECT_LT(wrong, 50);
}

TEST(ContentionEstimate, AChangedWorldReplacesWhatWasKnown) {
  ContentionEstimate estimate;
  for (int i = 0; i < 10; ++i) estimate.add(measured(0.4, 0.5, 0.01));
  estimate.add(measured(1, 1, 0.01));
  EXPECT_TRUE(estimate.contention()->none());
}

TEST(ContentionEstimate, SegmentsTellLossAndDelayApart) {
  ApartAndBeside times;
  times.compute_alone = times.compute_beside = 0.2;
  times.compute_error = times.work_error = 1e-4;
  std::vector<SegmentApartAndBeside> segments;
  for (int i = 0; i < 16; ++i) {
    const double alone = 1e-3 * (1 + i % 8);
    segments.push_back({alone, alone / 0.8 + 0.6e-3, alone / 0.8 + 0.6e-3});
  }
  // Half of the last one runs behind compute, at full speed.
  segments.push_back({8e-3, 0.6e-3 + 5e-3 + 4e-3, 0.6e-3 + 5e-3});
  ContentionEstimate estimate;
  estimate.add(times, segments);
  EXPECT_NEAR(estimate.contention()->communication, 0.8, 1e-6);
  EXPECT_NEAR(estimate.contention()->delay, 0.6e-3, 1e-9);
  EXPECT_EQ(estimate.contention()->compute, 1);
  estimate.forget_delay();
  EXPECT_EQ(estimate.contention()->delay, 0);
}

TEST(Contention, ADelayOfEachStartIsToldFromALossOfSpeed) {
  std::mt19937 random(5);
  std::normal_distribution<double> noise(0, 0.1e-3);
  std::vector<double> alone, delayed, slower, both;
  for (int i = 0; i < 40; ++i) {
    alone.push_back(1e-3 * (1 + i % 8));
    delayed.push_back(alone.back() + 0.6e-3 + noise(random));
    slower.push_back(alone.back() / 0.8 + noise(random));
    both.push_back(alone.back() / 0.8 + 0.6e-3 + noise(random));
  }
  EXPECT_NEAR(delay_beside(alone, delayed).value(), 0.6e-3, 0.1e-3);
  EXPECT_LT(delay_beside(alone, slower).value(), 0.1e-3);
  EXPECT_NEAR(delay_beside(alone, both).value(), 0.6e-3, 0.15e-3);
  const std::vector<double> alike(10, 1e-3), late(10, 1.5e-3);  // of one size: it may as well be
  EXPECT_NEAR(delay_beside(alike, late).value(), 0.5e-3, 1e-9);
  EXPECT_FALSE(delay_beside(std::span(alone).first(5), std::span(delayed).first(5)).has_value());
}

}  // namespace
}  // namespace hccl::split
