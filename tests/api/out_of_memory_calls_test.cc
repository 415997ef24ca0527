// Any allocation of a call may fail: the call returns a code with a text, does not hang or crash,
// and the object can be used again and destroyed. Needs failing_malloc loaded before the program.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <thread>

#include "hccl/acl/acl.h"
#include "hccl/hccl.h"
#include "hccl/hccl_comm.h"
#include "hccl/hccl_framework.h"
#include "hccl/hccl_fusion.h"

namespace hccl::testing {
namespace {

constexpr long kAllocations = 2000;  // more than any call makes

void (*fail_allocation)(long) = nullptr;
bool (*has_failed)() = nullptr;

class OutOfMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    fail_allocation = reinterpret_cast<void (*)(long)>(::dlsym(RTLD_DEFAULT, "fail_allocation"));
    has_failed = reinterpret_cast<bool (*)()>(::dlsym(RTLD_DEFAULT, "has_failed"));
    ASSERT_NE(fail_allocation, nullptr) << "LD_PRELOAD has no failing_malloc";
  }
};

/// Lets an allocation fail in one call of a trial; the trial's other calls get all memory.
class Lack {
 public:
  explicit Lack(long number) : number_(number) {}
  /// Runs the call, in which one allocation fails. A failure of the call must have a text.
  int call(const std::function<int()>& function, const std::function<std::string()>& text) {
    fail_allocation(number_);
    const int result = function();
    reached_ = has_failed();
    fail_allocation(-1);
    if (result != 0) {
      EXPECT_NE(text(), "") << "result " << result;
      EXPECT_TRUE(reached_) << "result " << result << ": " << text();
    }
    return result;
  }
  int hccl(const std::function<int()>& function) {
    return call(function, [] { return std::string(HcclGetLastErrorText()); });
  }
  int acl(const std::function<int()>& function) {
    return call(function, [] {
      const char* const text = aclGetRecentErrMsg();
      return std::string(text == nullptr ? "" : text);
    });
  }
  bool reached() const { return reached_; }

 private:
  long number_;
  bool reached_ = false;
};

/// Runs the trial with allocation 0, 1, 2, ... of its call failing, until the call makes no more.
void each_allocation(const char* what, const std::function<void(Lack&)>& trial) {
  long number = 0;
  for (; number < kAllocations && !::testing::Test::HasFailure(); ++number) {
    SCOPED_TRACE(std::string(what) + ", allocation " + std::to_string(number));
    Lack lack(number);
    trial(lack);
    if (!lack.reached()) break;
  }
  EXPECT_LT(number, kAllocations);
  std::printf("%s: %ld allocations\n", what, number);
}

HcclComm alone() {
  HcclComm comm = nullptr;
  std::int32_t device = 0;
  EXPECT_EQ(HcclCommInitAll(1, &device, &comm), HCCL_SUCCESS) << HcclGetLastErrorText();
  return comm;
}

// ---- fusion ----

enum class Step { kCreate, kReady, kWait, kSecondReady, kDestroy };
constexpr std::array kSteps{Step::kCreate, Step::kReady, Step::kWait, Step::kSecondReady,
                            Step::kDestroy};
constexpr std::array kStepNames{"HcclFusionCreate", "HcclFusionReady", "HcclFusionWait",
                                "HcclFusionReady, second iteration", "HcclFusionDestroy"};

struct Gradients {
  std::array<float, 2> first{1, 1};
  float apart = 0;  // keeps the gradients from being adjacent, so that a segment is copied
  std::array<float, 3> second{1, 1, 1};
  std::array<HcclFusionGradient, 2> list() {
    return {{{"first gradient", first.data(), first.size()},
             {"second gradient", second.data(), second.size()}}};
  }
};

/// Two iterations of one rank; if `lack` is given, an allocation fails in `step`.
void fuse(HcclComm comm, Step step, Lack* lack) {
  const auto at = [&](Step here, const std::function<int()>& call) {
    return lack != nullptr && here == step ? lack->hccl(call) : call();
  };
  Gradients gradients;
  const auto list = gradients.list();
  HcclFusion fusion = nullptr;
  const auto create = [&] { return HcclFusionCreate(comm, list.data(), 2, nullptr, &fusion); };
  if (at(Step::kCreate, create) != HCCL_SUCCESS) {
    ASSERT_EQ(create(), HCCL_SUCCESS);
  }
  // The failed call may have marked the gradient as ready; a second call is then refused.
  const auto mark = [&](Step here) {
    if (at(here, [&] { return HcclFusionReady(fusion, 0); }) != HCCL_SUCCESS) {
      const int again = HcclFusionReady(fusion, 0);
      EXPECT_TRUE(again == HCCL_SUCCESS || again == HCCL_E_PARA) << HcclGetLastErrorText();
    }
    EXPECT_EQ(HcclFusionReady(fusion, 1), HCCL_SUCCESS) << HcclGetLastErrorText();
  };
  const auto wait = [&] { return HcclFusionWait(fusion); };
  mark(Step::kReady);
  if (at(Step::kWait, wait) == HCCL_SUCCESS) {
    mark(Step::kSecondReady);
    EXPECT_EQ(wait(), HCCL_SUCCESS) << HcclGetLastErrorText();
  } else if (wait() != HCCL_SUCCESS) {
    EXPECT_STRNE(HcclGetLastErrorText(), "");
  }
  EXPECT_EQ(at(Step::kDestroy, [&] { return HcclFusionDestroy(fusion); }), HCCL_SUCCESS);
}

TEST_F(OutOfMemory, AFusionOfOneRankGoesOn) {
  HcclComm comm = alone();
  for (std::size_t i = 0; i < kSteps.size(); ++i) {
    each_allocation(kStepNames.at(i), [&](Lack& lack) { fuse(comm, kSteps.at(i), &lack); });
  }
  EXPECT_EQ(HcclCommDestroy(comm), HCCL_SUCCESS);
}

// Both ranks run an iteration at once; either rank's allocation may fail.
void iterate_together(std::span<const HcclFusion> fusions) {
  const auto iterate = [&](HcclFusion fusion) {
    for (const std::uint32_t index : {0U, 1U}) {
      if (HcclFusionReady(fusion, index) == HCCL_SUCCESS) continue;
      EXPECT_STRNE(HcclGetLastErrorText(), "");
      static_cast<void>(HcclFusionReady(fusion, index));  // refused if the gradient is marked
    }
    if (HcclFusionWait(fusion) == HCCL_SUCCESS) return;
    EXPECT_STRNE(HcclGetLastErrorText(), "");
    static_cast<void>(HcclFusionWait(fusion));  // the other rank may wait for this one
  };
  std::thread other([&] { iterate(fusions[1]); });
  iterate(fusions[0]);
  other.join();
}

void fuse_together(const char* what, bool parallel, int iterations_before) {
  each_allocation(what, [&](Lack& lack) {
    std::array<HcclComm, 2> comms{};
    std::array<std::int32_t, 2> devices{0, 1};
    ASSERT_EQ(HcclCommInitAll(2, devices.data(), comms.data()), HCCL_SUCCESS);
    HcclFusionOptions options{};
    options.dataType = HCCL_DATA_TYPE_FP32;
    options.op = HCCL_REDUCE_SUM;
    options.hcomParallel = parallel ? 1 : 0;
    std::array<Gradients, 2> gradients;
    std::array<HcclFusion, 2> fusions{};
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const auto list = gradients.at(rank).list();
      ASSERT_EQ(HcclFusionCreate(comms.at(rank), list.data(), 2, &options, &fusions.at(rank)),
                HCCL_SUCCESS);
    }
    for (int i = 0; i < iterations_before; ++i) iterate_together(fusions);
    lack.call(
        [&] {
          try {
            iterate_together(fusions);
          } catch (const std::exception&) {  // the test's own thread lacks memory
            iterate_together(fusions);
          }
          return 0;
        },
        [] { return std::string(); });
    for (const HcclFusion fusion : fusions) EXPECT_EQ(HcclFusionDestroy(fusion), HCCL_SUCCESS);
    for (const HcclComm comm : comms) EXPECT_EQ(HcclCommDestroy(comm), HCCL_SUCCESS);
  });
}

TEST_F(OutOfMemory, RanksThatWaitForAFusionDoNotHang) {
  fuse_together("first iteration of two ranks", false, 0);
  fuse_together("second iteration of two ranks, on their workers", true, 1);
}

// ---- streams and events ----

TEST_F(OutOfMemory, AStreamGoesOn) {
  each_allocation("aclrtLaunchHostFunc", [](Lack& lack) {
    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
    int calls = 0;
    const auto launch = [&] {
      return aclrtLaunchHostFunc(stream, [](void* arg) { ++*static_cast<int*>(arg); }, &calls);
    };
    const bool launched = lack.acl(launch) == ACL_SUCCESS;
    EXPECT_EQ(launch(), ACL_SUCCESS);
    EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
    EXPECT_EQ(calls, launched ? 2 : 1) << "a call that has failed must not run later";
    EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
  });
}

TEST_F(OutOfMemory, AnEventGoesOn) {
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  ASSERT_EQ(aclrtLaunchHostFunc(stream, [](void*) {}, nullptr), ACL_SUCCESS);
  each_allocation("aclrtRecordEvent", [&](Lack& lack) {
    aclrtEvent event = nullptr;
    ASSERT_EQ(aclrtCreateEventWithFlag(&event, ACL_EVENT_SYNC), ACL_SUCCESS);
    const bool recorded = lack.acl([&] { return aclrtRecordEvent(event, stream); }) == ACL_SUCCESS;
    const aclError waited = aclrtSynchronizeEventWithTimeout(event, 10'000);
    EXPECT_NE(waited, ACL_ERROR_RT_EVENT_SYNC_TIMEOUT);
    EXPECT_TRUE(waited == ACL_SUCCESS || !recorded) << waited;
    EXPECT_EQ(aclrtRecordEvent(event, stream), ACL_SUCCESS);
    EXPECT_EQ(aclrtSynchronizeEventWithTimeout(event, 10'000), ACL_SUCCESS);
    EXPECT_EQ(aclrtDestroyEvent(event), ACL_SUCCESS);
  });
  each_allocation("aclrtStreamWaitEvent", [&](Lack& lack) {
    aclrtEvent event = nullptr;
    ASSERT_EQ(aclrtCreateEventWithFlag(&event, ACL_EVENT_SYNC), ACL_SUCCESS);
    EXPECT_EQ(aclrtRecordEvent(event, stream), ACL_SUCCESS);
    lack.acl([&] { return aclrtStreamWaitEvent(stream, event); });
    EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
    aclrtEventWaitStatus status = ACL_EVENT_WAIT_STATUS_NOT_READY;
    EXPECT_EQ(aclrtQueryEventWaitStatus(event, &status), ACL_SUCCESS);
    EXPECT_EQ(status, ACL_EVENT_WAIT_STATUS_COMPLETE);
    EXPECT_EQ(aclrtDestroyEvent(event), ACL_SUCCESS);
  });
  EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
}

// ---- groups of calls ----

TEST_F(OutOfMemory, AGroupOfCallsEnds) {
  each_allocation("HcclGroupEnd", [](Lack& lack) {
    HcclComm comm = alone();
    float sent = 7;
    const auto exchange = [&](const std::function<int(const std::function<int()>&)>& end) {
      float received = 0;
      EXPECT_EQ(HcclGroupStart(), HCCL_SUCCESS);
      EXPECT_EQ(HcclSend(&sent, 1, HCCL_DATA_TYPE_FP32, 0, comm, nullptr), HCCL_SUCCESS);
      EXPECT_EQ(HcclRecv(&received, 1, HCCL_DATA_TYPE_FP32, 0, comm, nullptr), HCCL_SUCCESS);
      if (end([] { return HcclGroupEnd(); }) == HCCL_SUCCESS) {
        EXPECT_EQ(received, sent);
      } else {
        EXPECT_STRNE(HcclGetLastErrorText(), "");
      }
    };
    exchange([&](const std::function<int()>& call) { return lack.hccl(call); });
    exchange([](const std::function<int()>& call) { return call(); });
    EXPECT_EQ(HcclCommDestroy(comm), HCCL_SUCCESS);
  });
}

}  // namespace
}  // namespace hccl::testing
