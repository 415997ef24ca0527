// Common parts of the acl runtime's tests: streams and an event, gates, tasks that fail.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>

#include "hccl/acl/acl.h"

#define OK(call)                           \
  do {                                     \
    ASSERT_EQ(call, ACL_SUCCESS) << #call; \
  } while (false)

/// Expects that the call fails with this code, which is the thread's last error, and that its text
/// begins with the names of the function and of the argument.
#define REFUSED(call, code, argument) \
  EXPECT_TRUE(::hccl::testing::refused(#call, call, code, argument))

namespace hccl::testing {

inline ::testing::AssertionResult refused(std::string_view call, aclError result, aclError code,
                                          std::string_view argument) {
  const char* const told = aclGetRecentErrMsg();
  const std::string text = told == nullptr ? "" : told;
  const std::string begin =
      std::string(call.substr(0, call.find('('))) + ": " + std::string(argument);
  const aclError last = aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL);
  if (result == code && last == code && text.starts_with(begin) &&
      aclGetRecentErrMsg() == nullptr) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << call << "\n  gives " << result << " (last error " << last
                                       << "): " << text << "\n  not " << code << ": " << begin;
}

inline constexpr std::size_t kGranule = std::size_t{2} << 20;
inline constexpr auto kKind = ACL_MEMCPY_DEFAULT;

inline aclrtPhysicalMemProp device_prop() {
  return {ACL_MEM_HANDLE_TYPE_NONE,
          ACL_MEM_ALLOCATION_TYPE_PINNED,
          ACL_HBM_MEM_HUGE,
          {0, ACL_MEM_LOCATION_TYPE_DEVICE},
          0};
}

// A gate at which host functions of streams wait.
struct Gate {
  std::atomic<bool> open{false};
  static void pass(void* gate) { static_cast<Gate*>(gate)->open.wait(false); }
  void release() {
    open = true;
    open.notify_all();
  }
};

class Acl : public ::testing::Test {
 protected:
  void SetUp() override {
    OK(aclrtCreateStream(&stream_));
    OK(aclrtCreateStream(&other_));
    OK(aclrtCreateEventWithFlag(&event_, ACL_EVENT_SYNC));
  }
  void TearDown() override {
    EXPECT_EQ(aclrtDestroyStream(stream_), ACL_SUCCESS);
    EXPECT_EQ(aclrtDestroyStream(other_), ACL_SUCCESS);
    if (event_ != nullptr) {
      EXPECT_EQ(aclrtDestroyEvent(event_), ACL_SUCCESS);
    }
  }

  aclrtStreamStatus query(aclrtStream stream) {
    aclrtStreamStatus status = ACL_STREAM_STATUS_RESERVED;
    EXPECT_EQ(aclrtStreamQuery(stream, &status), ACL_SUCCESS);
    return status;
  }
  bool complete(aclrtEvent event) {
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    EXPECT_EQ(aclrtQueryEventStatus(event, &status), ACL_SUCCESS);
    aclrtEventStatus old = ACL_EVENT_STATUS_RESERVED;
    EXPECT_EQ(aclrtQueryEvent(event, &old), ACL_SUCCESS);
    EXPECT_EQ(old == ACL_EVENT_STATUS_COMPLETE, status == ACL_EVENT_RECORDED_STATUS_COMPLETE);
    return status == ACL_EVENT_RECORDED_STATUS_COMPLETE;
  }
  // Gives the stream a task that fails: a wait for an event that was destroyed and cannot be
  // recorded.
  void fail(aclrtStream stream) {
    aclrtEvent lost = nullptr;
    OK(aclrtCreateEventWithFlag(&lost, ACL_EVENT_SYNC));
    OK(aclrtStreamWaitEvent(stream, lost));
    OK(aclrtDestroyEvent(lost));
  }
  static void add_one(void* counter) { ++*static_cast<std::atomic<int>*>(counter); }

  aclrtStream stream_ = nullptr;
  aclrtStream other_ = nullptr;
  aclrtEvent event_ = nullptr;
};

}  // namespace hccl::testing
