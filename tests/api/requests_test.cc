// Submitted calls through C: order, threads, callbacks that wait, failures, ends.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_framework.h"
#include "tests/support/api_world.h"

namespace hccl::testing {
namespace {

using Body = std::function<HcclResult()>;
using Callback = std::function<void(HcclResult)>;

struct Job {
  Body body;
  Callback done;
};

HcclResult submit(HcclComm comm, Body body, Callback done, HcclRequest* request,
                  bool caller_waits = false) {
  auto job = std::make_unique<Job>(Job{std::move(body), std::move(done)});
  const HcclResult result =
      HcclSubmit([](void* arg) { return static_cast<Job*>(arg)->body(); }, comm, caller_waits,
                 [](void* arg, HcclResult result) {
                   const std::unique_ptr<Job> owned(static_cast<Job*>(arg));
                   if (owned->done) owned->done(result);
                 },
                 job.get(), request);
  if (result == HCCL_SUCCESS) [[maybe_unused]]
    const Job* const given = job.release();
  return result;
}

// Waits for a request, expects its success, and frees it.
void expect_ends(HcclRequest request) {
  EXPECT_EQ(HcclRequestWait(request, 0, nullptr), HCCL_SUCCESS) << HcclGetLastErrorText();
  EXPECT_EQ(HcclRequestFree(request), HCCL_SUCCESS);
}

HcclResult sum(std::int64_t* value, HcclComm comm) {
  return HcclAllReduce(value, value, 1, HCCL_DATA_TYPE_INT64, HCCL_REDUCE_SUM, comm, nullptr);
}

TEST(Requests, RunInOrderOnOneThreadOfTheLibrary) {
  ApiWorld world(3);
  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    constexpr int kCalls = 40;
    std::vector<std::int64_t> values(kCalls);
    std::vector<int> ended;
    std::vector<HcclRequest> requests(kCalls);
    std::set<std::thread::id> threads;
    for (int i = 0; i < kCalls; ++i) {
      values[static_cast<std::size_t>(i)] = i + rank;
      const auto call = [&, i] {
        threads.insert(std::this_thread::get_id());
        sigset_t blocked;
        pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
        EXPECT_TRUE(sigismember(&blocked, SIGUSR1));
        return sum(&values[static_cast<std::size_t>(i)], comm);
      };
      const auto done = [&, i](HcclResult result) {
        EXPECT_EQ(result, HCCL_SUCCESS);
        threads.insert(std::this_thread::get_id());
        ended.push_back(i);
      };
      ASSERT_EQ(submit(comm, call, done, &requests[static_cast<std::size_t>(i)]), HCCL_SUCCESS);
    }
    expect_ends(requests.back());
    requests.pop_back();
    for (const HcclRequest request : requests) {
      bool done = false;
      EXPECT_EQ(HcclRequestTest(request, &done), HCCL_SUCCESS);
      EXPECT_TRUE(done);
      expect_ends(request);
    }
    EXPECT_TRUE(std::is_sorted(ended.begin(), ended.end()));
    EXPECT_EQ(ended.size(), kCalls);
    EXPECT_EQ(threads.size(), 1);
    EXPECT_EQ(threads.count(std::this_thread::get_id()), 0);
    for (int i = 0; i < kCalls; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], 3 * i + 3);
  });
}

TEST(Requests, ACallerThatWaitsRunsItItselfUnlessAnotherOneIsBefore) {
  ApiWorld world(1);
  const HcclComm comm = world.comm(0);
  const auto me = std::this_thread::get_id();
  std::thread::id ran, told;
  const auto note = [&] {
    ran = std::this_thread::get_id();
    return HcclBarrier(comm, nullptr);
  };
  const auto done = [&](HcclResult) { told = std::this_thread::get_id(); };
  HcclRequest request = reinterpret_cast<HcclRequest>(1);
  ASSERT_EQ(submit(comm, note, done, &request, true), HCCL_SUCCESS);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(ran, me);
  EXPECT_EQ(told, me);
  std::promise<void> go;
  const auto wait = [&] {
    go.get_future().wait();
    return HCCL_SUCCESS;
  };
  HcclRequest first = nullptr;
  ASSERT_EQ(submit(comm, wait, {}, &first), HCCL_SUCCESS);
  ASSERT_EQ(submit(comm, note, done, &request, true), HCCL_SUCCESS);
  EXPECT_NE(request, nullptr);
  EXPECT_EQ(ran, me);  // the new request has not run
  EXPECT_EQ(HcclRequestWait(request, 20, nullptr), HCCL_E_TIMEOUT);
  bool is_done = true;
  EXPECT_EQ(HcclRequestTest(request, &is_done), HCCL_SUCCESS);
  EXPECT_FALSE(is_done);
  go.set_value();
  expect_ends(request);
  EXPECT_NE(ran, me);
  expect_ends(first);
}

TEST(Requests, AFailureHasTheCallsOwnText) {
  ApiWorld world(1);
  const HcclComm comm = world.comm(0);
  std::string told;
  const auto wrong = [&] { return HcclBroadcast(&told, 1, HCCL_DATA_TYPE_INT8, 7, comm, nullptr); };
  const auto done = [&](HcclResult result) {
    EXPECT_EQ(result, HCCL_E_PARA);
    told = HcclGetLastErrorText();
    EXPECT_EQ(HcclCommDestroy(nullptr), HCCL_E_PTR);  // another failure of this thread
  };
  HcclRequest request = nullptr;
  ASSERT_EQ(submit(comm, wrong, done, &request), HCCL_SUCCESS);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(HcclRequestWait(request, 0, nullptr), HCCL_E_PARA);
    EXPECT_EQ(HcclGetLastErrorText(),
              std::string("HcclBroadcast: root is 7, the communicator has 1 ranks"));
  }
  EXPECT_EQ(told, HcclGetLastErrorText());
  EXPECT_EQ(HcclRequestFree(request), HCCL_SUCCESS);
  EXPECT_EQ(HcclRequestWait(request, 0, nullptr), HCCL_E_PARA);
}

TEST(Requests, CallbacksWaitForOthersAndSubmitMore) {
  ApiWorld world(2);
  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    std::vector<std::string> order;
    std::int64_t values[4] = {1, 2, 3, 4};
    HcclRequest requests[3] = {};
    const auto call = [&](int i) { return [&, i] { return sum(&values[i], comm); }; };
    const auto first = [&](HcclResult) {
      order.emplace_back("first");
      expect_ends(requests[2]);
      EXPECT_EQ(values[1], 4);  // this call has run, but its callback comes later
      EXPECT_EQ(values[2], 6);
      HcclRequest more = nullptr;
      EXPECT_EQ(submit(
                    comm, call(3), [&](HcclResult) { order.emplace_back("more"); }, &more),
                HCCL_SUCCESS);
      expect_ends(more);
      EXPECT_EQ(values[3], 8);
      EXPECT_EQ(HcclRequestWait(requests[0], 0, nullptr), HCCL_E_PARA);  // its own request
      order.emplace_back("first ends");
    };
    std::promise<void> go;
    const auto hold = [&] {
      go.get_future().wait();
      return sum(&values[0], comm);
    };
    ASSERT_EQ(submit(comm, hold, first, &requests[0]), HCCL_SUCCESS);
    ASSERT_EQ(submit(
                  comm, call(1), [&](HcclResult) { order.emplace_back("second"); }, &requests[1]),
              HCCL_SUCCESS);
    ASSERT_EQ(submit(
                  comm, call(2), [&](HcclResult) { order.emplace_back("third"); }, &requests[2]),
              HCCL_SUCCESS);
    go.set_value();
    expect_ends(requests[0]);
    expect_ends(requests[1]);
    EXPECT_EQ(order, (std::vector<std::string>{"first", "third", "more", "first ends", "second"}));
  });
}

TEST(Requests, CallsOfCallbacksComeWhereTheRequestWasMarked) {
  // Both ranks run the callback's call at the marked place: rank 1's callback submits it after
  // `behind`, rank 0's thread before `behind`.
  ApiWorld world(2);
  world.on_all([&](int rank) {
    const HcclComm comm = world.comm(rank);
    std::int64_t first = 0, inner = 10, last = 100;
    HcclRequest request = nullptr, more = nullptr, behind = nullptr;
    std::promise<void> go;
    const auto hold = [&] {
      if (rank == 1) go.get_future().wait();
      return sum(&first, comm);
    };
    const auto submit_inner = [&] {
      EXPECT_EQ(submit(comm, [&] { return sum(&inner, comm); }, {}, &more), HCCL_SUCCESS);
    };
    const auto done = [&](HcclResult) {
      if (rank == 1) submit_inner();
    };
    ASSERT_EQ(submit(comm, hold, done, &request), HCCL_SUCCESS);
    EXPECT_EQ(HcclRequestMark(request), HCCL_SUCCESS);
    EXPECT_EQ(HcclRequestMark(request), HCCL_SUCCESS);  // only the first mark counts
    if (rank == 0) {
      expect_ends(request);
      submit_inner();
    }
    ASSERT_EQ(submit(comm, [&] { return sum(&last, comm); }, {}, &behind), HCCL_SUCCESS);
    if (rank == 1) {
      EXPECT_EQ(HcclRequestMark(request), HCCL_SUCCESS);
      go.set_value();
      expect_ends(request);
    }
    expect_ends(behind);
    expect_ends(more);
    EXPECT_EQ(inner, 20);
    EXPECT_EQ(last, 200);
  });
}

TEST(Requests, CallbacksOfTheProgramHaveItsSignalMask) {
  ApiWorld world(1);
  const auto blocked_in_callback = [&](bool waits, bool marks) {
    std::promise<void> go;
    bool blocked = false;
    const auto hold = [&] {
      go.get_future().wait();
      return HCCL_SUCCESS;
    };
    const auto done = [&](HcclResult) {
      sigset_t mask;
      pthread_sigmask(SIG_SETMASK, nullptr, &mask);
      blocked = sigismember(&mask, SIGUSR1) == 1;
    };
    HcclRequest request = nullptr, behind = nullptr;
    EXPECT_EQ(submit(world.comm(0), hold, done, waits ? &request : nullptr), HCCL_SUCCESS);
    if (marks) {
      EXPECT_EQ(HcclRequestMark(request), HCCL_SUCCESS);
    }
    EXPECT_EQ(submit(world.comm(0), [] { return HCCL_SUCCESS; }, {}, &behind), HCCL_SUCCESS);
    go.set_value();
    if (waits) expect_ends(request);
    expect_ends(behind);
    return blocked;
  };
  EXPECT_FALSE(blocked_in_callback(false, false));
  EXPECT_TRUE(blocked_in_callback(true, false));
  EXPECT_FALSE(blocked_in_callback(true, true));
}

TEST(Requests, ACommunicatorIsInUseWhileACallWaits) {
  ApiWorld world(1);
  const HcclComm comm = world.comm(0);
  std::promise<void> go, told;
  const auto hold = [&] {
    go.get_future().wait();
    return HCCL_SUCCESS;
  };
  HcclRequest first = nullptr, second = nullptr;
  ASSERT_EQ(submit(comm, hold, {}, &first), HCCL_SUCCESS);
  const auto destroy = [&](HcclResult) {
    EXPECT_EQ(HcclCommDestroy(comm), HCCL_SUCCESS) << HcclGetLastErrorText();
    told.set_value();
  };
  ASSERT_EQ(
      submit(comm, [&] { return HcclBarrier(comm, nullptr); }, destroy, &second), HCCL_SUCCESS);
  EXPECT_EQ(HcclCommDestroy(comm), HCCL_E_AGAIN);
  go.set_value();
  told.get_future().wait();
  world.comm(0) = nullptr;
  EXPECT_EQ(submit(comm, hold, {}, nullptr), HCCL_E_PARA);
  expect_ends(second);  // also after the communicator's end
  expect_ends(first);
}

TEST(Requests, ACallerThatWaitsMayDestroyTheCommunicatorInItsCallback) {
  ApiWorld world(1);
  const HcclComm comm = std::exchange(world.comm(0), nullptr);
  const auto destroy = [&](HcclResult) { EXPECT_EQ(HcclCommDestroy(comm), HCCL_SUCCESS); };
  EXPECT_EQ(submit(
                comm, [&] { return HcclBarrier(comm, nullptr); }, destroy, nullptr, true),
            HCCL_SUCCESS);
  EXPECT_EQ(HcclBarrier(comm, nullptr), HCCL_E_PARA);
}

TEST(Requests, AfterAnAbortCallsFailOneAfterTheOther) {
  ApiWorld world(2);
  std::vector<HcclRequest> requests(3);
  for (HcclRequest& request : requests) {
    ASSERT_EQ(submit(
                  world.comm(0), [&] { return HcclBarrier(world.comm(0), nullptr); }, {}, &request),
              HCCL_SUCCESS);
  }
  EXPECT_EQ(HcclRequestWait(requests[0], 50, nullptr), HCCL_E_TIMEOUT);  // rank 1 does not come
  ASSERT_EQ(HcclCommAbort(world.comm(0), "it has to end"), HCCL_SUCCESS);
  for (const HcclRequest request : requests) {
    EXPECT_EQ(HcclRequestWait(request, 0, nullptr), HCCL_E_UNAVAIL);
    EXPECT_NE(std::string(HcclGetLastErrorText()).find("it has to end"), std::string::npos);
    EXPECT_EQ(HcclRequestFree(request), HCCL_SUCCESS);
  }
}

TEST(Requests, WithoutACommunicatorEachHasAThread) {
  // Each waits for the other one.
  std::promise<void> here, there;
  HcclRequest first = nullptr, second = nullptr;
  const auto meet = [](std::promise<void>& mine, std::promise<void>& other) {
    return [&] {
      mine.set_value();
      other.get_future().wait();
      return HCCL_SUCCESS;
    };
  };
  ASSERT_EQ(submit(nullptr, meet(here, there), {}, &first), HCCL_SUCCESS);
  ASSERT_EQ(submit(nullptr, meet(there, here), {}, &second), HCCL_SUCCESS);
  expect_ends(first);
  expect_ends(second);
  EXPECT_EQ(HcclSubmit(nullptr, nullptr, false, nullptr, nullptr, nullptr), HCCL_E_PTR);
}

TEST(Requests, AForkedChildMaySubmitWithoutACommunicator) {
  ApiWorld world(1);
  HcclRequest request = nullptr;
  ASSERT_EQ(submit(world.comm(0), [] { return HCCL_SUCCESS; }, {}, &request), HCCL_SUCCESS);
  ASSERT_EQ(HcclRequestWait(request, 0, nullptr), HCCL_SUCCESS);
  const pid_t child = fork();
  if (child == 0) {
    const auto nothing = [] { return HCCL_SUCCESS; };
    HcclRequest own = nullptr;
    const bool good = submit(world.comm(0), nothing, {}, nullptr) == HCCL_E_NOT_SUPPORT &&
                      HcclRequestWait(request, 0, nullptr) == HCCL_E_NOT_SUPPORT &&
                      submit(nullptr, nothing, {}, &own) == HCCL_SUCCESS &&
                      HcclRequestWait(own, 5000, nullptr) == HCCL_SUCCESS;
    _exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(HcclRequestFree(request), HCCL_SUCCESS);
}

}  // namespace
}  // namespace hccl::testing
