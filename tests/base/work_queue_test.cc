// WorkQueue: the order of work, and which thread runs it.
#include "hccl/base/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace hccl {
namespace {

WorkQueue::Work note(std::vector<int>& order, int number) {
  return [&order, number] {
    order.push_back(number);
    return Status();
  };
}

TEST(WorkQueueTest, CallersRunWhatTheWorkerHasNotBegun) {
  WorkQueue queue("test");
  std::promise<void> begun, go;
  const auto worker = queue.submit([&] {
    begun.set_value();
    go.get_future().wait();
    return Status();
  });
  begun.get_future().wait();
  std::vector<int> order;
  const auto place = queue.reserve();
  const auto behind = queue.submit(note(order, 2));
  EXPECT_FALSE(WorkQueue::Turn(queue));
  EXPECT_FALSE(behind->wait(Deadline::after(std::chrono::milliseconds(20))).ok());
  go.set_value();
  EXPECT_TRUE(queue.wait(worker).ok());
  EXPECT_FALSE(behind->wait(Deadline::after(std::chrono::milliseconds(20))).ok());
  EXPECT_TRUE(queue.run(place, note(order, 1)).ok());
  EXPECT_TRUE(queue.wait(behind).ok());
  EXPECT_EQ(order, (std::vector{1, 2}));
  EXPECT_FALSE(queue.busy());
  EXPECT_TRUE(WorkQueue::Turn(queue));
}

// The third piece of work ends only when a program has the result of the second one.
TEST(WorkQueueTest, ACallerRunsNoWorkBehindItsOwn) {
  constexpr int kRounds = 2000;
  WorkQueue queue("test");
  std::vector<WorkQueue::Ticket> places(3);
  std::atomic<int> got{0};  // the round of which the second result is there
  std::barrier<> all(3);
  const auto rounds = [&](std::size_t own, auto work) {
    for (int round = 1; round <= kRounds; ++round) {
      if (own == 0) {
        for (auto& place : places) place = queue.reserve();
      }
      all.arrive_and_wait();
      EXPECT_TRUE(queue.run(places[own], [&] { return work(round); }).ok());
      if (own == 1) got = round;
      all.arrive_and_wait();
    }
  };
  const auto brief = [](int) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));  // the waiting threads sleep, too
    return Status();
  };
  std::thread first([&] { rounds(0, brief); }), second([&] { rounds(1, brief); });
  rounds(2, [&](int round) {
    const Deadline end = Deadline::after(std::chrono::seconds(5));
    while (got < round && !end.expired()) std::this_thread::yield();
    return got < round ? Status(Code::kTimeout, "the second result is not there") : Status();
  });
  first.join();
  second.join();
}

TEST(WorkQueueTest, CallbacksWaitForOtherWorkAndSubmitAtTheMark) {
  WorkQueue queue("test");
  std::vector<int> order;
  std::promise<void> go;
  WorkQueue::Ticket first, awaited, inner, inner_too;
  first = queue.submit(
      [&] {
        go.get_future().wait();
        return Status();
      },
      [&](const Status&) {
        EXPECT_TRUE(queue.runs_here());
        inner = queue.submit(note(order, 4));
        inner_too = queue.submit(note(order, 5));
        EXPECT_TRUE(awaited->wait(Deadline::never()).ok());
        EXPECT_EQ(first->wait(Deadline::never()).code(), Code::kPara);
        order.push_back(3);
      });
  const auto before = queue.submit(note(order, 1), [&](const Status&) { order.push_back(-1); });
  awaited = queue.submit(note(order, 2), [&](const Status&) { order.push_back(-2); });
  first->mark();
  const auto last = queue.submit(note(order, 6));
  first->mark();  // only the first mark counts
  const auto given_up = queue.reserve();
  queue.cancel(given_up);
  go.set_value();
  EXPECT_TRUE(queue.wait(last).ok());
  EXPECT_EQ(order, (std::vector{1, 2, -2, 3, -1, 4, 5, 6}));
  for (const auto& each : {first, before, awaited, inner, inner_too}) EXPECT_TRUE(each->done());
  EXPECT_FALSE(queue.working());
}

TEST(WorkQueueTest, AnExceptionIsAFailure) {
  WorkQueue queue("test");
  const auto ticket = queue.submit([]() -> Status { throw std::runtime_error("thrown"); });
  EXPECT_EQ(queue.wait(ticket).message(), "thrown");
  EXPECT_TRUE(queue.wait(queue.defer([] { return Status(); })).ok());
}

TEST(WorkQueueTest, CallbacksMayDestroyTheQueue) {
  for (const bool now : {false, true}) {
    auto queue = std::make_shared<WorkQueue>("test");
    std::promise<void> ended;
    const auto nothing = [] { return Status(); };
    const auto destroy = [&](const Status&) {
      queue->end(false);
      queue.reset();
      ended.set_value();
    };
    if (now) {
      EXPECT_TRUE(queue->run_now(nothing, destroy));
    } else {
      queue->submit(nothing, destroy);
    }
    ended.get_future().wait();
  }
}

TEST(WorkQueueTest, WhatHasNotBegunIsDropped) {
  const auto held = std::make_shared<int>();
  std::promise<void> begun, go;
  WorkQueue queue("test");
  const auto first = queue.submit([&] {
    begun.set_value();
    go.get_future().wait();
    return Status();
  });
  begun.get_future().wait();
  queue.submit([held] { return Status(); });
  EXPECT_EQ(held.use_count(), 2);
  std::thread ender([&] { queue.end(true); });
  while (held.use_count() == 2) std::this_thread::yield();
  go.set_value();
  ender.join();
  EXPECT_TRUE(first->done());
}

// ---- work that never ends ----

WorkQueue::Bound bound(std::chrono::milliseconds patience) {
  return {[patience] { return patience; }, [] { return Status(Code::kTimeout, "overdue"); }, {}};
}

TEST(WorkQueueTest, AWaitBehindAnOperationThatNeverEndsIsGivenUp) {
  WorkQueue queue("test", bound(std::chrono::milliseconds(20)));
  const auto turn = std::make_unique<WorkQueue::Turn>(queue);
  EXPECT_TRUE(queue.runs_here());
  bool ran = false;
  Status result;
  std::thread([&] {
    EXPECT_FALSE(queue.runs_here());
    const auto place = queue.reserve();
    result = queue.run(place, [&] {
      ran = true;
      return Status();
    });
  }).join();
  EXPECT_EQ(result.code(), Code::kTimeout);
  EXPECT_FALSE(ran);
}

// A submitted call may run for long; a wait is given up only if an operation in the call never
// ends.
TEST(WorkQueueTest, AWaitBehindACallWhoseOperationNeverEndsIsGivenUp) {
  WorkQueue operations("test");
  auto limit = bound(std::chrono::milliseconds(20));
  limit.of = [&operations] { return &operations; };
  const auto calls = std::make_shared<WorkQueue>("test", limit);
  auto call = std::make_unique<WorkQueue::Turn>(*calls);
  std::atomic<int> ran = 0, told = 0;
  const auto submit = [&] {
    return calls->submit([&] { return ++ran, Status(); }, [&](const Status&) { ++told; });
  };
  const auto wait = [](const WorkQueue::Ticket& ticket, std::chrono::nanoseconds at_most) {
    Status waited;
    std::thread([&] { waited = ticket->wait(Deadline::after(at_most)); }).join();
    return waited.code();
  };
  const auto patient = submit();
  EXPECT_EQ(wait(patient, std::chrono::milliseconds(300)), Code::kTimeout);  // of this wait
  EXPECT_FALSE(patient->done());
  const WorkQueue::Turn operation(operations);
  for (const auto& each : {patient, submit()}) {
    EXPECT_EQ(wait(each, std::chrono::minutes(1)), Code::kSuccess);
    ASSERT_TRUE(each->done());
    EXPECT_EQ(each->status().message(), "overdue");
  }
  EXPECT_EQ(told, 2);
  call.reset();
  EXPECT_FALSE(calls->busy());
  EXPECT_EQ(ran, 0);
  calls->end(true);
}

// The worker gives up, in order, the work that no other thread waits for.
TEST(WorkQueueTest, WorkThatNobodyWaitsForIsGivenUp) {
  const auto queue = std::make_shared<WorkQueue>("test", bound(std::chrono::milliseconds(20)));
  std::promise<void> both;
  std::string told;
  const auto turn = std::make_unique<WorkQueue::Turn>(*queue);
  queue->submit([] { return Status(); },
                [&](const Status& why) { told += why.message() + " 1, "; });
  queue->submit([] { return Status(); },
                [&](const Status& why) {
                  told += why.message() + " 2";
                  both.set_value();
                });
  both.get_future().wait();
  EXPECT_EQ(told, "overdue 1, overdue 2");
  queue->end(true);
}

TEST(WorkQueueTest, AWaitBehindAPlaceThatGetsNoWorkIsGivenUp) {
  WorkQueue queue("test", bound(std::chrono::milliseconds(200)));
  const auto place = queue.reserve();
  EXPECT_EQ(queue.wait(queue.defer([] { return Status(); })).code(), Code::kTimeout);
  const auto submitted = queue.submit([] { return Status(); });
  EXPECT_TRUE(submitted->wait(Deadline::after(std::chrono::minutes(1))).ok());
  EXPECT_EQ(submitted->status().code(), Code::kTimeout);
  EXPECT_TRUE(queue.run(place, [] { return Status(); }).ok());
  EXPECT_FALSE(queue.busy());
}

TEST(WorkQueueTest, AWaitBehindAPlaceThatGetsItsWorkIsNotGivenUp) {
  // Each of the two places takes less than the patience, both together take more.
  WorkQueue queue("test", bound(std::chrono::seconds(3)));
  const auto place = queue.reserve();
  const auto second = queue.reserve();
  const auto last = queue.defer([] { return Status(); });
  std::thread fills([&] {
    for (const auto& each : {place, second}) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1600));  // nothing runs
      EXPECT_TRUE(queue.run(each, [] { return Status(); }).ok());
    }
  });
  EXPECT_TRUE(queue.wait(last).ok());
  fills.join();
  EXPECT_FALSE(queue.busy());
}

}  // namespace
}  // namespace hccl
