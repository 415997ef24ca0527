// The library's wait loop: its end, its error, and its wake-up.
#include "hccl/base/waiter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "hccl/base/doorbell.h"

namespace hccl {
namespace {

using std::chrono::milliseconds;

WaitingCall pending() { return {7, "an allreduce", {1, 3}}; }

TEST(Waiter, EndsAtOnceWhenReady) {
  Doorbell bell;
  EXPECT_TRUE(Waiter{}.wait([] { return true; }, pending, bell).ok());
  EXPECT_EQ(Waiter{}.until([] { return true; }, bell), Waited::kReady);
}

TEST(Waiter, TellsOfAStallAndNamesTheLate) {
  Doorbell bell;
  int told = 0;
  Waiter waiter{.timeout = milliseconds(450), .policy = kSleepAtOnce};
  waiter.stalled = [&](const WaitingCall& what) {
    ++told;
    EXPECT_EQ(what.sequence, 7U);
    EXPECT_EQ(what.late, (std::vector<int>{1, 3}));
  };
  const Status status = waiter.wait([] { return false; }, pending, bell);
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(status.message(),
            "EI0002: an allreduce did not end in time; no matching call has come from rank 1, 3");
  EXPECT_GE(told, 2);
}

TEST(Waiter, TellsOfAStallWhileItSpins) {
  Doorbell bell;
  int told = 0;
  Waiter waiter{.timeout = milliseconds(450), .policy = {.spin = std::chrono::hours(1)}};
  waiter.stalled = [&](const WaitingCall&) { ++told; };
  EXPECT_EQ(waiter.wait([] { return false; }, pending, bell).code(), Code::kTimeout);
  EXPECT_GE(told, 2);
}

TEST(Waiter, GivesTheReasonOfAnAbort) {
  Doorbell bell;
  AbortFlag abort;
  abort.raise(Status(Code::kRemote, "rank 3 has died", 3));
  const Status status = Waiter{.abort = &abort}.wait([] { return false; }, pending, bell);
  EXPECT_EQ(status.code(), Code::kRemote);
  EXPECT_EQ(status.culprit(), 3);
}

TEST(Waiter, ProgressRunsAndItsFailureEndsTheWait) {
  Doorbell bell;
  int runs = 0;
  Waiter waiter;
  waiter.progress = [&] { return ++runs < 100 ? Status() : Status(Code::kPara, "enough"); };
  EXPECT_EQ(waiter.wait([] { return false; }, pending, bell).code(), Code::kPara);
  EXPECT_EQ(runs, 100);
  EXPECT_TRUE(waiter.wait([&] { return runs >= 100; }, pending, bell).ok());
  EXPECT_EQ(runs, 100);
}

TEST(Waiter, NapsUntilItsEndOrTheDeadline) {
  const auto begin = Deadline::Clock::now();
  nap(milliseconds(20), Deadline::never());
  EXPECT_GE(Deadline::Clock::now() - begin, milliseconds(20));
  nap(std::chrono::hours(1), Deadline::after(milliseconds(20)));  // otherwise ctest times out
}

// Two threads answer each other. A lost wake-up would cost a nap of a minute.
void ping_pong(Doorbell& bell) {
  constexpr int kTurns = 2000;
  std::atomic<int> turn{0};
  const Waiter waiter{
      .timeout = std::chrono::minutes(2),
      .policy = {.spin = std::chrono::nanoseconds(0), .longest_nap = std::chrono::minutes(1)}};
  const auto play = [&](int mine) {
    for (int i = 0; i < kTurns; ++i) {
      ASSERT_EQ(
          waiter.until([&] { return turn.load(std::memory_order_relaxed) % 2 == mine; }, bell),
          Waited::kReady);
      turn.fetch_add(1, std::memory_order_relaxed);
      bell.ring();
    }
  };
  const auto begin = Deadline::Clock::now();
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  EXPECT_EQ(turn.load(), 2 * kTurns);
  EXPECT_LT(Deadline::Clock::now() - begin, waiter.policy.longest_nap);
}

TEST(Doorbell, LosesNoWakeUpBetweenThreads) {
  Doorbell bell;
  ping_pong(bell);
}

TEST(Doorbell, LosesNoWakeUpInZeroedMemory) {
  alignas(Doorbell) std::byte memory[sizeof(Doorbell)] = {};
  auto& bell = *reinterpret_cast<Doorbell*>(memory);
  bell.join();
  ping_pong(bell);
}

}  // namespace
}  // namespace hccl
