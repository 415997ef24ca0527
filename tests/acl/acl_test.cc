// The acl runtime: streams and events, callbacks of the program, and all of these from many
// threads.
#include "tests/support/acl.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/threads.h"

namespace hccl::testing {
namespace {

// ---- Streams ----

TEST_F(Acl, StreamKeepsOrderAndDoesNotHoldTheCaller) {
  struct Step {
    std::vector<int>* order;
    int number;
  };
  constexpr int kSteps = 2000;
  std::vector<int> order;
  std::vector<Step> steps;
  for (int i = 0; i < kSteps; ++i) steps.push_back({&order, i});
  Gate gate;
  OK(aclrtLaunchHostFunc(stream_, Gate::pass, &gate));
  for (Step& step : steps) {
    OK(aclrtLaunchHostFunc(
        stream_,
        [](void* p) {
          auto* const s = static_cast<Step*>(p);
          s->order->push_back(s->number);
        },
        &step));
  }
  EXPECT_EQ(query(stream_), ACL_STREAM_STATUS_NOT_READY);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 0), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 5), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  OK(aclrtSynchronizeStream(other_));  // does not wait for stream_
  gate.release();
  OK(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(query(stream_), ACL_STREAM_STATUS_COMPLETE);
  std::vector<int> expected(kSteps);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
  OK(aclrtSynchronizeStreamWithTimeout(stream_, 0));
}

// No thread synchronizes the stream: the worker alone runs its tasks.
TEST_F(Acl, StreamRunsByItself) {
  std::atomic<bool> done{false};
  OK(aclrtLaunchHostFunc(
      stream_,
      [](void* p) {
        auto* const flag = static_cast<std::atomic<bool>*>(p);
        *flag = true;
        flag->notify_all();
      },
      &done));
  done.wait(false);
  // A worker that waits at a gate does not block another stream: a second worker serves the other
  // stream.
  Gate gate;
  OK(aclrtLaunchHostFunc(stream_, Gate::pass, &gate));
  OK(aclrtLaunchHostFunc(other_, [](void* p) { static_cast<Gate*>(p)->release(); }, &gate));
  OK(aclrtSynchronizeStream(stream_));
}

TEST_F(Acl, StreamDestroyedWithWorkPendingDoesIt) {
  std::atomic<int> calls{0};
  aclrtStream stream = nullptr;
  OK(aclrtCreateStreamWithConfig(&stream, 7, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC));
  for (int i = 0; i < 1000; ++i) OK(aclrtLaunchHostFunc(stream, add_one, &calls));
  OK(aclrtDestroyStream(stream));
  EXPECT_EQ(calls, 1000);
}

TEST_F(Acl, StreamDestroyedByForceDropsIt) {
  std::atomic<int> calls{0};
  aclrtStream stream = nullptr;
  OK(aclrtCreateStream(&stream));
  OK(aclrtStreamWaitEvent(stream, event_));  // nobody records the event
  for (int i = 0; i < 10; ++i) OK(aclrtLaunchHostFunc(stream, add_one, &calls));
  OK(aclrtDestroyStreamForce(stream));
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_ERROR_RT_INVALID_HANDLE);
}

TEST_F(Acl, StreamDoesNotWaitForItself) {
  struct Seen {
    aclrtStream stream;
    aclError synchronized;
    aclError destroyed;
  } seen{stream_, 0, 0};
  OK(aclrtLaunchHostFunc(
      stream_,
      [](void* p) {
        auto* const s = static_cast<Seen*>(p);
        s->synchronized = aclrtSynchronizeStream(s->stream);
        s->destroyed = aclrtDestroyStream(s->stream);
      },
      &seen));
  OK(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(seen.synchronized, ACL_ERROR_RT_STREAM_CONTEXT);
  EXPECT_EQ(seen.destroyed, ACL_ERROR_RT_STREAM_CONTEXT);
}

TEST_F(Acl, StreamGoesOnAfterAFailure) {
  std::atomic<int> calls{0};
  fail(stream_);
  OK(aclrtLaunchHostFunc(stream_, add_one, &calls));
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_NE(std::string(aclGetRecentErrMsg()).find("destroyed"), std::string::npos);
  EXPECT_EQ(calls, 1);
  OK(aclrtSynchronizeStream(stream_));  // the failure is reported only once
}

TEST_F(Acl, StreamStopsAtAFailureAndLetsOthersGo) {
  std::atomic<int> calls{0};
  OK(aclrtSetStreamFailureMode(stream_, ACL_STOP_ON_FAILURE));
  EXPECT_EQ(aclrtSetStreamFailureMode(stream_, ACL_STOP_ON_FAILURE), ACL_ERROR_RT_PARAM_INVALID);
  Gate gate;
  OK(aclrtLaunchHostFunc(stream_, Gate::pass, &gate));
  fail(stream_);
  OK(aclrtLaunchHostFunc(stream_, add_one, &calls));
  OK(aclrtRecordEvent(event_, stream_));
  OK(aclrtStreamWaitEvent(other_, event_));
  gate.release();
  EXPECT_EQ(aclrtSynchronizeStream(other_), ACL_ERROR_RT_STREAM_ABORT);  // the wait does not hang
  EXPECT_EQ(aclrtSynchronizeEvent(event_), ACL_ERROR_RT_STREAM_ABORT);
  EXPECT_NE(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_EQ(calls, 0);
  OK(aclrtLaunchHostFunc(stream_, add_one,
                         &calls));  // the failure was reported: the stream goes on
  OK(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(calls, 1);
}

TEST_F(Acl, StreamHasANumberAndAMode) {
  std::int32_t numbers[3] = {-1, -1, -1};
  OK(aclrtStreamGetId(stream_, &numbers[0]));
  OK(aclrtStreamGetId(other_, &numbers[1]));
  OK(aclrtStreamGetId(nullptr, &numbers[2]));
  EXPECT_NE(numbers[0], numbers[1]);
  EXPECT_EQ(numbers[2], 0);
  EXPECT_GT(numbers[0], 0);
  EXPECT_GT(numbers[1], 0);
  std::atomic<int> calls{0};
  aclrtStreamAttrValue mode{};
  mode.failureMode = ACL_STOP_ON_FAILURE;
  OK(aclrtSetStreamAttribute(stream_, ACL_STREAM_ATTR_FAILURE_MODE, &mode));
  Gate gate;
  OK(aclrtLaunchHostFunc(stream_, Gate::pass, &gate));
  fail(stream_);
  OK(aclrtLaunchHostFunc(stream_, add_one, &calls));
  gate.release();
  EXPECT_NE(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_EQ(calls, 0);
}

// A program that ends without waiting for its streams ends at once.
TEST(AclDeathTest, TheEndOfTheProcessWaitsForNobody) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto end = [] {
    aclrtStream stream = nullptr;
    aclrtEvent never = nullptr;
    const bool made = aclrtCreateStream(&stream) == ACL_SUCCESS &&
                      aclrtCreateEventWithFlag(&never, ACL_EVENT_SYNC) == ACL_SUCCESS &&
                      aclrtStreamWaitEvent(stream, never) == ACL_SUCCESS;
    std::exit(made ? 7 : 1);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(7), "");
}

// ---- Events ----

TEST_F(Acl, EventIsCompleteWithWhatIsBeforeIt) {
  Gate gate;
  EXPECT_FALSE(complete(event_));
  OK(aclrtLaunchHostFunc(stream_, Gate::pass, &gate));
  OK(aclrtRecordEvent(event_, stream_));
  EXPECT_FALSE(complete(event_));
  EXPECT_EQ(aclrtSynchronizeEventWithTimeout(event_, 5), ACL_ERROR_RT_EVENT_SYNC_TIMEOUT);
  gate.release();
  OK(aclrtSynchronizeEvent(event_));
  EXPECT_TRUE(complete(event_));
  OK(aclrtRecordEvent(event_, nullptr));
  EXPECT_TRUE(complete(event_));
  OK(aclrtStreamWaitEvent(nullptr, event_));
  OK(aclrtResetEvent(event_, stream_));
  EXPECT_FALSE(complete(event_));
}

// As in hccl_test -t 1, a stream waits for an event that another stream records later; repeatedly.
TEST_F(Acl, EventThatWasNeverRecordedIsAGate) {
  for (const bool reset_late : {false, true}) {
    for (int round = 0; round < 20; ++round) {
      std::atomic<int> calls{0};
      OK(aclrtStreamWaitEvent(stream_, event_));
      if (!reset_late) OK(aclrtResetEvent(event_, stream_));
      OK(aclrtLaunchHostFunc(stream_, add_one, &calls));
      if (reset_late) OK(aclrtResetEvent(event_, stream_));
      if (round == 0) {
        EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 20), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
      }
      EXPECT_EQ(calls, 0);
      std::thread([&] { EXPECT_EQ(aclrtRecordEvent(event_, other_), ACL_SUCCESS); }).join();
      OK(aclrtSynchronizeStream(stream_));
      EXPECT_EQ(calls, 1);
    }
  }
  // The event is reset after it was recorded.
  OK(aclrtRecordEvent(event_, other_));
  OK(aclrtStreamWaitEvent(stream_, event_));
  OK(aclrtResetEvent(event_, stream_));
  OK(aclrtSynchronizeStream(stream_));
  OK(aclrtStreamWaitEvent(stream_, event_));
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 5), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  OK(aclrtRecordEvent(event_, other_));
  OK(aclrtSynchronizeStream(stream_));
}

// Once an event is recorded again, a wait refers to the second record.
TEST_F(Acl, EventStandsForItsLastRecord) {
  aclrtEvent event = nullptr;
  OK(aclrtCreateEvent(&event));
  EXPECT_EQ(aclrtResetEvent(event, stream_), ACL_ERROR_RT_PARAM_INVALID);
  OK(aclrtRecordEvent(event, stream_));
  OK(aclrtSynchronizeStream(stream_));
  Gate gate;
  std::atomic<int> calls{0};
  OK(aclrtLaunchHostFunc(stream_, Gate::pass, &gate));
  OK(aclrtRecordEvent(event, stream_));
  OK(aclrtStreamWaitEvent(other_, event));
  OK(aclrtLaunchHostFunc(other_, add_one, &calls));
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(other_, 5), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  EXPECT_EQ(calls, 0);
  gate.release();
  OK(aclrtSynchronizeStream(other_));
  EXPECT_EQ(calls, 1);
  OK(aclrtDestroyEvent(event));
}

TEST_F(Acl, EventDestroyedWithItsRecordInLineStillWorks) {
  Gate gate;
  std::atomic<int> calls{0};
  OK(aclrtLaunchHostFunc(stream_, Gate::pass, &gate));
  OK(aclrtRecordEvent(event_, stream_));
  OK(aclrtStreamWaitEvent(other_, event_));
  OK(aclrtLaunchHostFunc(other_, add_one, &calls));
  OK(aclrtDestroyEvent(event_));
  event_ = nullptr;
  EXPECT_EQ(calls, 0);
  gate.release();
  OK(aclrtSynchronizeStream(other_));
  EXPECT_EQ(calls, 1);
}

TEST_F(Acl, EventsMeasureTime) {
  aclrtEvent start = nullptr;
  aclrtEvent end = nullptr;
  OK(aclrtCreateEvent(&start));
  OK(aclrtCreateEvent(&end));
  float ms = -1;
  EXPECT_EQ(aclrtEventElapsedTime(&ms, start, end), ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID);
  Gate gate;
  const auto before = std::chrono::steady_clock::now();
  OK(aclrtRecordEvent(start, stream_));
  OK(aclrtLaunchHostFunc(stream_, Gate::pass, &gate));
  OK(aclrtRecordEvent(end, stream_));
  OK(aclrtSynchronizeEvent(start));
  EXPECT_EQ(aclrtEventElapsedTime(&ms, start, end), ACL_ERROR_RT_EVENT_NOT_COMPLETE);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(aclrtSynchronizeEventWithTimeout(end, 30), ACL_ERROR_RT_EVENT_SYNC_TIMEOUT);
  const float at_least =
      std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - begin).count();
  gate.release();
  OK(aclrtSynchronizeStream(stream_));
  OK(aclrtEventElapsedTime(&ms, start, end));
  const float at_most =
      std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - before).count();
  EXPECT_GE(ms, at_least);
  EXPECT_LE(ms, at_most);
  EXPECT_EQ(aclrtEventElapsedTime(&ms, end, start), ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL);
  OK(aclrtDestroyEvent(start));
  OK(aclrtDestroyEvent(end));
}

// The limit applies to the waits that are issued while it is set.
TEST_F(Acl, EventIsWaitedForNoLongerThanTheLimit) {
  aclrtEvent never = nullptr;
  OK(aclrtCreateEventWithFlag(&never, ACL_EVENT_SYNC));
  OK(aclrtStreamWaitEvent(other_, event_));
  OK(aclrtSetOpWaitTimeout(1));
  OK(aclrtStreamWaitEvent(stream_, never));
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_ERROR_RT_WAIT_TIMEOUT);
  EXPECT_NE(std::string(aclGetRecentErrMsg()).find("in 1 s"), std::string::npos);
  EXPECT_EQ(aclrtStreamWaitEvent(nullptr, never), ACL_ERROR_RT_WAIT_TIMEOUT);
  EXPECT_EQ(query(other_), ACL_STREAM_STATUS_NOT_READY);
  OK(aclrtSetOpWaitTimeout(0));
  OK(aclrtStreamWaitEvent(stream_, never));
  OK(aclrtRecordEvent(never, nullptr));
  OK(aclrtRecordEvent(event_, nullptr));
  OK(aclrtSynchronizeStream(stream_));
  OK(aclrtSynchronizeStream(other_));
  OK(aclrtDestroyEvent(never));
}

// ---- Numbers in memory ----

TEST_F(Acl, NumbersPassBetweenStreams) {
  void* memory = nullptr;
  OK(aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST));
  OK(aclrtMemset(memory, 64, 0, 64));
  auto* const there = static_cast<std::uint64_t*>(memory);
  auto* const back = there + 1;
  // Each stream writes the number for which the other stream waits; no thread synchronizes before
  // the end.
  std::atomic<int> calls{0};
  for (std::uint64_t round = 1; round <= 100; ++round) {
    OK(aclrtValueWait(there, round, ACL_STREAM_WAIT_VALUE_EQ, other_));
    OK(aclrtLaunchHostFunc(other_, add_one, &calls));
    OK(aclrtValueWrite(back, round, 0, other_));
  }
  for (std::uint64_t round = 1; round <= 100; ++round) {
    OK(aclrtValueWrite(there, round, 0, stream_));
    OK(aclrtValueWait(back, round, ACL_STREAM_WAIT_VALUE_GEQ, stream_));
  }
  OK(aclrtSynchronizeStream(stream_));
  OK(aclrtSynchronizeStream(other_));
  EXPECT_EQ(calls, 100);
  EXPECT_EQ(*back, 100u);
  OK(aclrtFree(memory));
}

TEST_F(Acl, NumbersAreComparedAsTheFlagSays) {
  constexpr std::uint64_t kHigh = UINT64_MAX;
  struct Case {
    std::uint32_t flag;
    std::uint64_t value;
    std::uint64_t before;  // this number does not end the wait
    std::uint64_t after;   // this number ends it
  };
  for (const Case& c : {Case{ACL_STREAM_WAIT_VALUE_GEQ, 7, 6, 7},
                        {0, 7, 6, 8},
                        {ACL_STREAM_WAIT_VALUE_GEQ, 2, kHigh, 3},
                        {0, kHigh, kHigh - 1, 0},
                        {ACL_STREAM_WAIT_VALUE_EQ, 7, 8, 7},
                        {ACL_STREAM_WAIT_VALUE_AND, 6, 9, 4},
                        {ACL_STREAM_WAIT_VALUE_NOR, kHigh - 1, kHigh, 6}}) {
    SCOPED_TRACE(std::to_string(c.flag) + ", " + std::to_string(c.value));
    std::uint64_t number = 0;
    OK(aclrtValueWrite(&number, c.before, 0, nullptr));  // writes at once
    EXPECT_EQ(number, c.before);
    OK(aclrtValueWait(&number, c.value, c.flag, stream_));
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 5), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    std::atomic_ref(number).store(c.after);  // a plain store, which does not notify the stream
    OK(aclrtSynchronizeStream(stream_));
    OK(aclrtValueWait(&number, c.value, c.flag, nullptr));  // returns at once
  }
  // Here the calling thread waits, too.
  std::uint64_t number = 0;
  Gate gate;
  OK(aclrtLaunchHostFunc(stream_, Gate::pass, &gate));
  OK(aclrtValueWrite(&number, 1, 0, stream_));
  std::thread waiter([&] {
    OK(aclrtValueWait(&number, 1, ACL_STREAM_WAIT_VALUE_EQ, nullptr));
    EXPECT_TRUE(gate.open);
  });
  gate.release();
  waiter.join();
  // A stream whose wait never ends can be destroyed by force.
  aclrtStream lost = nullptr;
  OK(aclrtCreateStream(&lost));
  OK(aclrtValueWait(&number, 2, ACL_STREAM_WAIT_VALUE_EQ, lost));
  OK(aclrtDestroyStreamForce(lost));
}

// ---- Functions that a thread of the program calls ----

TEST_F(Acl, ReportsAreCalledByTheThreadThatAsked) {
  const auto self = static_cast<std::uint64_t>(pthread_self());
  struct Seen {
    std::atomic<int> calls{0};
    std::atomic<std::uint64_t> thread{0};
  } seen;
  const aclrtCallback note = [](void* p) {
    auto* const s = static_cast<Seen*>(p);
    s->thread = static_cast<std::uint64_t>(pthread_self());
    ++s->calls;
  };
  OK(aclrtSubscribeReport(self, stream_));
  EXPECT_EQ(aclrtSubscribeReport(self, stream_), ACL_ERROR_RT_STREAM_SUBSCRIBE);
  OK(aclrtSubscribeReport(self, other_));
  EXPECT_EQ(aclrtProcessReport(1), ACL_ERROR_RT_REPORT_TIMEOUT);
  std::atomic<int> after{0};
  OK(aclrtLaunchCallback(note, &seen, ACL_CALLBACK_BLOCK, stream_));
  OK(aclrtLaunchHostFunc(stream_, add_one, &after));
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 5), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  EXPECT_EQ(after, 0);
  OK(aclrtProcessReport(-1));
  EXPECT_EQ(seen.calls, 1);
  EXPECT_EQ(seen.thread, self);
  OK(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(after, 1);
  OK(aclrtLaunchCallback(note, &seen, ACL_CALLBACK_NO_BLOCK, other_));
  OK(aclrtSynchronizeStream(other_));
  EXPECT_EQ(seen.calls, 1);
  OK(aclrtProcessReport(0));
  EXPECT_EQ(seen.calls, 2);
  // If a thread unsubscribes, the stream goes on.
  OK(aclrtLaunchCallback(note, &seen, ACL_CALLBACK_NO_BLOCK, stream_));
  OK(aclrtSynchronizeStream(stream_));
  OK(aclrtUnSubscribeReport(self, stream_));
  EXPECT_EQ(aclrtProcessReport(0), ACL_ERROR_RT_REPORT_TIMEOUT);
  OK(aclrtUnSubscribeReport(self, other_));
  EXPECT_EQ(aclrtProcessReport(0), ACL_ERROR_RT_THREAD_SUBSCRIBE);
  EXPECT_EQ(seen.calls, 2);
}

// ---- Everything at once ----

void life_of_a_rank(int device) {
  OK(aclrtSetDevice(device));
  aclrtStream streams[2] = {};
  aclrtEvent gate = nullptr;
  aclrtEvent times[2] = {};
  for (auto& stream : streams) OK(aclrtCreateStream(&stream));
  for (auto& event : times) OK(aclrtCreateEvent(&event));
  OK(aclrtCreateEventWithFlag(&gate, ACL_EVENT_SYNC));
  for (std::uint32_t round = 1; round <= 15; ++round) {
    const std::size_t bytes = 4096 * round;
    std::vector<std::uint32_t> numbers(bytes / 4, round * 100 + static_cast<std::uint32_t>(device));
    std::vector<std::uint32_t> back(bytes / 4);
    void* memory = nullptr;
    OK(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtStreamWaitEvent(streams[0], gate));
    OK(aclrtRecordEvent(times[0], streams[0]));
    OK(aclrtMemcpyAsync(memory, bytes, numbers.data(), bytes, kKind, streams[0]));
    OK(aclrtRecordEvent(times[1], streams[0]));
    OK(aclrtStreamWaitEvent(streams[1], times[1]));
    OK(aclrtMemcpyAsync(back.data(), bytes, memory, bytes, kKind, streams[1]));
    OK(aclrtResetEvent(gate, streams[0]));
    OK(aclrtRecordEvent(gate, nullptr));
    OK(aclrtSynchronizeStream(streams[1]));
    EXPECT_TRUE(back == numbers);
    float ms = -1;
    OK(aclrtEventElapsedTime(&ms, times[0], times[1]));
    EXPECT_GE(ms, 0);
    OK(aclrtFree(memory));
    EXPECT_NE(aclrtFree(nullptr), ACL_SUCCESS);
  }
  std::int32_t mine = -1;
  OK(aclrtGetDevice(&mine));
  EXPECT_EQ(mine, device);
  for (const auto& stream : streams) OK(aclrtDestroyStream(stream));
  for (const auto& event : times) OK(aclrtDestroyEvent(event));
  OK(aclrtDestroyEvent(gate));
  OK(aclrtResetDevice(device));
}

TEST(AclThreads, SixteenLiveSideBySide) { on_threads(16, life_of_a_rank); }

TEST_F(Acl, SixteenThreadsShareAStream) {
  struct Room {
    std::atomic<int> calls{0};
    std::atomic<bool> taken{false};
    std::atomic<bool> met{false};  // two tasks of the stream have run at once
  } room;
  const aclrtHostFunc enter = [](void* p) {
    auto* const r = static_cast<Room*>(p);
    if (r->taken.exchange(true)) r->met = true;
    std::this_thread::yield();
    r->taken = false;
    ++r->calls;
  };
  on_threads(16, [&](int) {
    for (int i = 0; i < 50; ++i) {
      OK(aclrtLaunchHostFunc(stream_, enter, &room));
      if (i % 5 == 0) OK(aclrtSynchronizeStream(stream_));
    }
  });
  OK(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(room.calls, 16 * 50);
  EXPECT_FALSE(room.met);
}

// A thread destroys the stream while other threads still use it: each of their calls is done, or
// fails because the stream is gone.
TEST(AclThreads, AStreamIsDestroyedUnderItsUsers) {
  for (int round = 0; round < 30; ++round) {
    aclrtStream stream = nullptr;
    OK(aclrtCreateStream(&stream));
    std::atomic<int> calls{0};
    std::atomic<int> accepted{0};
    std::vector<std::thread> users;
    for (int t = 0; t < 4; ++t) {
      users.emplace_back([&] {
        for (;;) {
          const aclError launched = aclrtLaunchHostFunc(
              stream, [](void* p) { ++*static_cast<std::atomic<int>*>(p); }, &calls);
          if (launched == ACL_ERROR_RT_INVALID_HANDLE) return;
          ASSERT_EQ(launched, ACL_SUCCESS);
          ++accepted;
          const aclError synchronized = aclrtSynchronizeStream(stream);
          if (synchronized == ACL_ERROR_RT_INVALID_HANDLE) return;
          ASSERT_EQ(synchronized, ACL_SUCCESS);
        }
      });
    }
    while (accepted < 20) std::this_thread::yield();
    OK(aclrtDestroyStream(stream));
    for (auto& user : users) user.join();
    EXPECT_EQ(calls, accepted);
  }
}

}  // namespace
}  // namespace hccl::testing
