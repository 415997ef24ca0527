// The acl runtime as a program sees it: every wrong argument, and what streams, events, memory and
// devices do.
#include "hccl/acl/acl.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "hccl/acl/acl_prof.h"

namespace hccl::testing {
namespace {

constexpr std::size_t kGranule = std::size_t{2} << 20;
constexpr auto kKind = ACL_MEMCPY_DEFAULT;
void* const kInvented = reinterpret_cast<void*>(std::uintptr_t{0xACC2010000000FFFull});

#define OK(call)                           \
  do {                                     \
    ASSERT_EQ(call, ACL_SUCCESS) << #call; \
  } while (false)

struct Wrong {
  std::string name;  // begins with the function
  std::function<aclError()> call;
  aclError expected;
  const char* argument = "";  // how the text goes on behind the function
};

void refuse(const std::vector<Wrong>& cases) {
  for (const Wrong& wrong : cases) {
    static_cast<void>(aclGetRecentErrMsg());
    EXPECT_EQ(wrong.call(), wrong.expected) << wrong.name;
    EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), wrong.expected) << wrong.name;
    const char* const told = aclGetRecentErrMsg();
    ASSERT_NE(told, nullptr) << wrong.name;
    const std::string text = told;
    const std::string function = wrong.name.substr(0, wrong.name.find(' '));
    EXPECT_EQ(text.rfind(function + ": " + wrong.argument, 0), 0u) << wrong.name << ": " << text;
    EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
  }
}

aclrtPhysicalMemProp device_prop() {
  return {ACL_MEM_HANDLE_TYPE_NONE,
          ACL_MEM_ALLOCATION_TYPE_PINNED,
          ACL_HBM_MEM_HUGE,
          {0, ACL_MEM_LOCATION_TYPE_DEVICE},
          0};
}

// A gate that host functions of streams stand behind.
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
  // The stream is given a task that fails: to wait for an event that nobody can record any more.
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

// ---- What is refused ----

TEST_F(Acl, RefusesWrongHandles) {
  aclrtStream dead_stream = nullptr;
  aclrtEvent dead_event = nullptr;
  aclrtContext dead_context = nullptr;
  OK(aclrtCreateStream(&dead_stream));
  OK(aclrtDestroyStream(dead_stream));
  OK(aclrtCreateEvent(&dead_event));
  OK(aclrtDestroyEvent(dead_event));
  OK(aclrtCreateContext(&dead_context, 0));
  OK(aclrtDestroyContext(dead_context));
  int here = 0;
  char byte = 0;
  aclrtStreamStatus stream_status{};
  aclrtEventRecordedStatus event_status{};
  aclrtEventStatus old_status{};
  float ms = 0;
  const auto self = static_cast<std::uint64_t>(pthread_self());

  struct Handles {
    const char* name;
    void* stream;
    void* event;
    void* context;
    aclError expected;
  };
  for (const Handles& h :
       {Handles{"dead", dead_stream, dead_event, dead_context, ACL_ERROR_RT_INVALID_HANDLE},
        Handles{"invented", kInvented, kInvented, kInvented, ACL_ERROR_RT_INVALID_HANDLE},
        Handles{"an address", &here, &here, &here, ACL_ERROR_RT_INVALID_HANDLE},
        Handles{"of another kind", event_, stream_, stream_, ACL_ERROR_RT_INVALID_HANDLE},
        Handles{"null", nullptr, nullptr, nullptr, ACL_ERROR_RT_PARAM_INVALID}}) {
    const auto named = [&](const char* function) { return std::string(function) + " " + h.name; };
    refuse({
        {named("aclrtDestroyStream"), [&] { return aclrtDestroyStream(h.stream); }, h.expected,
         "stream "},
        {named("aclrtDestroyStreamForce"), [&] { return aclrtDestroyStreamForce(h.stream); },
         h.expected, "stream "},
        {named("aclrtSetStreamFailureMode"), [&] { return aclrtSetStreamFailureMode(h.stream, 1); },
         h.expected, "stream "},
        {named("aclrtSubscribeReport"), [&] { return aclrtSubscribeReport(self, h.stream); },
         h.expected, "stream "},
        {named("aclrtUnSubscribeReport"), [&] { return aclrtUnSubscribeReport(self, h.stream); },
         h.expected, "stream "},
        {named("aclrtLaunchCallback"),
         [&] { return aclrtLaunchCallback(add_one, &byte, ACL_CALLBACK_BLOCK, h.stream); },
         h.expected, "stream "},
        {named("aclrtDestroyEvent"), [&] { return aclrtDestroyEvent(h.event); }, h.expected,
         "event "},
        {named("aclrtRecordEvent"), [&] { return aclrtRecordEvent(h.event, stream_); }, h.expected,
         "event "},
        {named("aclrtResetEvent"), [&] { return aclrtResetEvent(h.event, stream_); }, h.expected,
         "event "},
        {named("aclrtStreamWaitEvent"), [&] { return aclrtStreamWaitEvent(stream_, h.event); },
         h.expected, "event "},
        {named("aclrtSynchronizeEvent"), [&] { return aclrtSynchronizeEvent(h.event); }, h.expected,
         "event "},
        {named("aclrtSynchronizeEventWithTimeout"),
         [&] { return aclrtSynchronizeEventWithTimeout(h.event, 1); }, h.expected, "event "},
        {named("aclrtQueryEventStatus"),
         [&] { return aclrtQueryEventStatus(h.event, &event_status); }, h.expected, "event "},
        {named("aclrtQueryEvent"), [&] { return aclrtQueryEvent(h.event, &old_status); },
         h.expected, "event "},
        {named("aclrtEventElapsedTime"),
         [&] { return aclrtEventElapsedTime(&ms, h.event, event_); }, h.expected, "startEvent "},
        {named("aclrtDestroyContext"), [&] { return aclrtDestroyContext(h.context); }, h.expected,
         "context "},
        {named("aclrtSetCurrentContext"), [&] { return aclrtSetCurrentContext(h.context); },
         h.expected, "context "},
        {named("aclrtFreePhysical"), [&] { return aclrtFreePhysical(h.stream); }, h.expected,
         "handle "},
        {named("aclrtMapMem"), [&] { return aclrtMapMem(&here, kGranule, 0, h.stream, 0); },
         h.expected, "handle "},
    });
    if (h.stream == nullptr) continue;  // the default stream is allowed below
    refuse({
        {named("aclrtSynchronizeStream"), [&] { return aclrtSynchronizeStream(h.stream); },
         h.expected, "stream "},
        {named("aclrtSynchronizeStreamWithTimeout"),
         [&] { return aclrtSynchronizeStreamWithTimeout(h.stream, 1); }, h.expected, "stream "},
        {named("aclrtStreamQuery"), [&] { return aclrtStreamQuery(h.stream, &stream_status); },
         h.expected, "stream "},
        {named("aclrtRecordEvent stream"), [&] { return aclrtRecordEvent(event_, h.stream); },
         h.expected, "stream "},
        {named("aclrtResetEvent stream"), [&] { return aclrtResetEvent(event_, h.stream); },
         h.expected, "stream "},
        {named("aclrtStreamWaitEvent stream"),
         [&] { return aclrtStreamWaitEvent(h.stream, event_); }, h.expected, "stream "},
        {named("aclrtMemcpyAsync"),
         [&] { return aclrtMemcpyAsync(&byte, 1, &byte, 1, kKind, h.stream); }, h.expected,
         "stream "},
        {named("aclrtMemsetAsync"), [&] { return aclrtMemsetAsync(&byte, 1, 0, 1, h.stream); },
         h.expected, "stream "},
        {named("aclrtMemcpy2dAsync"),
         [&] { return aclrtMemcpy2dAsync(&byte, 1, &byte, 1, 1, 1, kKind, h.stream); }, h.expected,
         "stream "},
        {named("aclrtLaunchHostFunc"),
         [&] { return aclrtLaunchHostFunc(h.stream, add_one, &byte); }, h.expected, "stream "},
    });
  }
}

TEST_F(Acl, RefusesWrongValues) {
  constexpr aclError kBad = ACL_ERROR_RT_PARAM_INVALID;
  constexpr aclError kNoDevice = ACL_ERROR_RT_INVALID_DEVICEID;
  std::uint32_t devices = 0;
  OK(aclrtGetDeviceCount(&devices));
  const auto beyond = static_cast<std::int32_t>(devices);
  void* out = nullptr;
  char from[8] = {};
  char to[8] = {};
  float ms = 0;
  std::int32_t number = 0;
  std::size_t size = 0;
  const auto prop = device_prop();
  const auto policy = ACL_MEM_MALLOC_HUGE_ONLY;
  const auto unknown = [](auto sample) { return static_cast<decltype(sample)>(0x7FFF); };
  const auto changed = [&](auto&& change) {
    auto other = prop;
    change(other);
    return other;
  };
  const auto host = changed([](auto& p) { p.location.type = ACL_MEM_LOCATION_TYPE_HOST; });
  const auto far = changed([&](auto& p) { p.location.id = devices; });
  const auto odd = changed([&](auto& p) { p.memAttr = unknown(ACL_HBM_MEM); });
  aclrtEvent untimed = nullptr;
  aclrtEvent timed = nullptr;
  OK(aclrtCreateEventWithFlag(&untimed, ACL_EVENT_CAPTURE_STREAM_PROGRESS));
  OK(aclrtCreateEventWithFlag(&timed, ACL_EVENT_TIME_LINE));

  refuse({
      {"aclInit", [] { return aclInit("/nowhere/acl.json"); }, ACL_ERROR_INVALID_FILE,
       "configPath"},
      {"aclrtGetVersion 1", [&] { return aclrtGetVersion(nullptr, &number, &number); }, kBad,
       "majorVersion is null"},
      {"aclrtGetVersion 2", [&] { return aclrtGetVersion(&number, nullptr, &number); }, kBad,
       "minorVersion is null"},
      {"aclrtGetVersion 3", [&] { return aclrtGetVersion(&number, &number, nullptr); }, kBad,
       "patchVersion is null"},
      {"aclrtGetDeviceCount", [] { return aclrtGetDeviceCount(nullptr); }, kBad, "count is null"},
      {"aclrtSetDevice -1", [] { return aclrtSetDevice(-1); }, kNoDevice, "deviceId is -1"},
      {"aclrtSetDevice beyond", [&] { return aclrtSetDevice(beyond); }, kNoDevice, "deviceId"},
      {"aclrtResetDevice", [&] { return aclrtResetDevice(beyond); }, kNoDevice, "deviceId"},
      {"aclrtResetDeviceForce", [&] { return aclrtResetDeviceForce(-7); }, kNoDevice, "deviceId"},
      {"aclrtGetDevice", [] { return aclrtGetDevice(nullptr); }, kBad, "deviceId is null"},
      {"aclrtSynchronizeDeviceWithTimeout", [] { return aclrtSynchronizeDeviceWithTimeout(-2); },
       kBad, "timeout"},
      {"aclrtGetRunMode", [] { return aclrtGetRunMode(nullptr); }, kBad, "runMode is null"},
      {"aclrtSetDeviceSatMode", [] { return aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_UNDEF); },
       kBad, "mode 2"},
      {"aclrtGetDeviceSatMode", [] { return aclrtGetDeviceSatMode(nullptr); }, kBad, "mode"},
      {"aclrtDeviceCanAccessPeer", [] { return aclrtDeviceCanAccessPeer(nullptr, 0, 0); }, kBad,
       "canAccessPeer is null"},
      {"aclrtDeviceCanAccessPeer 2", [&] { return aclrtDeviceCanAccessPeer(&number, beyond, 0); },
       kNoDevice, "deviceId"},
      {"aclrtDeviceCanAccessPeer 3", [&] { return aclrtDeviceCanAccessPeer(&number, 0, beyond); },
       kNoDevice, "peerDeviceId"},
      {"aclrtDeviceEnablePeerAccess", [&] { return aclrtDeviceEnablePeerAccess(beyond, 0); },
       kNoDevice, "peerDeviceId"},
      {"aclrtDeviceEnablePeerAccess 2", [] { return aclrtDeviceEnablePeerAccess(0, 1); }, kBad,
       "flags"},
      {"aclrtDeviceDisablePeerAccess", [&] { return aclrtDeviceDisablePeerAccess(beyond); },
       kNoDevice, "peerDeviceId"},
      {"aclrtCreateContext", [] { return aclrtCreateContext(nullptr, 0); }, kBad,
       "context is null"},
      {"aclrtCreateContext 2", [&] { return aclrtCreateContext(&out, beyond); }, kNoDevice,
       "deviceId"},
      {"aclrtGetCurrentContext", [] { return aclrtGetCurrentContext(nullptr); }, kBad,
       "context is null"},

      {"aclrtMalloc", [&] { return aclrtMalloc(nullptr, 1, policy); }, kBad, "devPtr is null"},
      {"aclrtMalloc size", [&] { return aclrtMalloc(&out, 0, policy); }, kBad, "size is 0"},
      {"aclrtMalloc policy", [&] { return aclrtMalloc(&out, 1, unknown(policy)); }, kBad, "policy"},
      {"aclrtMalloc all", [&] { return aclrtMalloc(&out, SIZE_MAX, policy); },
       ACL_ERROR_RT_MEMORY_ALLOCATION},
      {"aclrtMalloc much", [&] { return aclrtMalloc(&out, SIZE_MAX / 4, policy); },
       ACL_ERROR_RT_MEMORY_ALLOCATION},
      {"aclrtMallocAlign32", [&] { return aclrtMallocAlign32(&out, 0, policy); }, kBad, "size"},
      {"aclrtMallocCached", [&] { return aclrtMallocCached(&out, 0, policy); }, kBad, "size"},
      {"aclrtFree", [] { return aclrtFree(nullptr); }, kBad, "devPtr is null"},
      {"aclrtFree foreign", [&] { return aclrtFree(&from); }, kBad, "devPtr"},
      {"aclrtMallocHost", [] { return aclrtMallocHost(nullptr, 1); }, kBad, "hostPtr is null"},
      {"aclrtMallocHost size", [&] { return aclrtMallocHost(&out, 0); }, kBad, "size is 0"},
      {"aclrtMallocHost all", [&] { return aclrtMallocHost(&out, SIZE_MAX); },
       ACL_ERROR_RT_MEMORY_ALLOCATION},
      {"aclrtFreeHost", [] { return aclrtFreeHost(nullptr); }, kBad, "hostPtr is null"},
      {"aclrtFreeHost foreign", [&] { return aclrtFreeHost(&from); }, kBad, "hostPtr"},
      {"aclrtGetMemInfo attr", [&] { return aclrtGetMemInfo(unknown(ACL_HBM_MEM), &size, &size); },
       kBad, "attr"},
      {"aclrtGetMemInfo free", [&] { return aclrtGetMemInfo(ACL_HBM_MEM, nullptr, &size); }, kBad,
       "free is null"},
      {"aclrtGetMemInfo total", [&] { return aclrtGetMemInfo(ACL_HBM_MEM, &size, nullptr); }, kBad,
       "total is null"},

      {"aclrtReserveMemAddress", [] { return aclrtReserveMemAddress(nullptr, 1, 0, nullptr, 0); },
       kBad, "virPtr is null"},
      {"aclrtReserveMemAddress size",
       [&] { return aclrtReserveMemAddress(&out, 0, 0, nullptr, 0); }, kBad, "size is 0"},
      {"aclrtReserveMemAddress alignment",
       [&] { return aclrtReserveMemAddress(&out, kGranule, 8, nullptr, 0); }, kBad, "alignment"},
      {"aclrtReserveMemAddress expect",
       [&] { return aclrtReserveMemAddress(&out, kGranule, 0, &out, 0); }, kBad, "expectPtr"},
      {"aclrtReserveMemAddress flags",
       [&] { return aclrtReserveMemAddress(&out, kGranule, 0, nullptr, 2); }, kBad, "flags"},
      {"aclrtReserveMemAddress all",
       [&] { return aclrtReserveMemAddress(&out, SIZE_MAX, 0, nullptr, 0); },
       ACL_ERROR_RT_MEMORY_ALLOCATION},
      {"aclrtReserveMemAddress much",
       [&] { return aclrtReserveMemAddress(&out, SIZE_MAX / 2, 0, nullptr, 0); },
       ACL_ERROR_RT_MEMORY_ALLOCATION},
      {"aclrtReleaseMemAddress", [] { return aclrtReleaseMemAddress(nullptr); }, kBad,
       "virPtr is null"},
      {"aclrtReleaseMemAddress foreign", [&] { return aclrtReleaseMemAddress(&from); }, kBad,
       "virPtr"},
      {"aclrtMallocPhysical", [&] { return aclrtMallocPhysical(nullptr, kGranule, &prop, 0); },
       kBad, "handle is null"},
      {"aclrtMallocPhysical 0", [&] { return aclrtMallocPhysical(&out, 0, &prop, 0); }, kBad,
       "size"},
      {"aclrtMallocPhysical odd", [&] { return aclrtMallocPhysical(&out, 4096, &prop, 0); }, kBad,
       "size"},
      {"aclrtMallocPhysical all",
       [&] { return aclrtMallocPhysical(&out, SIZE_MAX / kGranule * kGranule, &prop, 0); },
       ACL_ERROR_RT_MEMORY_ALLOCATION},
      {"aclrtMallocPhysical prop", [&] { return aclrtMallocPhysical(&out, kGranule, nullptr, 0); },
       kBad, "prop is null"},
      {"aclrtMallocPhysical host", [&] { return aclrtMallocPhysical(&out, kGranule, &host, 0); },
       kBad, "prop"},
      {"aclrtMallocPhysical far", [&] { return aclrtMallocPhysical(&out, kGranule, &far, 0); },
       kNoDevice, "prop"},
      {"aclrtMallocPhysical attr", [&] { return aclrtMallocPhysical(&out, kGranule, &odd, 0); },
       kBad, "prop"},
      {"aclrtMallocPhysical flags", [&] { return aclrtMallocPhysical(&out, kGranule, &prop, 1); },
       kBad, "flags"},
      {"aclrtMapMem", [] { return aclrtMapMem(nullptr, kGranule, 0, kInvented, 0); }, kBad,
       "virPtr is null"},
      {"aclrtUnmapMem", [] { return aclrtUnmapMem(nullptr); }, kBad, "virPtr is null"},
      {"aclrtUnmapMem foreign", [&] { return aclrtUnmapMem(&from); }, kBad, "virPtr"},
      {"aclrtMemGetAllocationGranularity prop",
       [&] {
         return aclrtMemGetAllocationGranularity(nullptr, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM,
                                                 &size);
       },
       kBad, "prop is null"},
      {"aclrtMemGetAllocationGranularity option",
       [&] {
         auto copy = prop;
         return aclrtMemGetAllocationGranularity(&copy, ACL_RT_MEM_ALLOC_GRANULARITY_UNDEF, &size);
       },
       kBad, "option"},
      {"aclrtMemGetAllocationGranularity out",
       [&] {
         auto copy = prop;
         return aclrtMemGetAllocationGranularity(&copy, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM,
                                                 nullptr);
       },
       kBad, "granularity is null"},

      {"aclrtMemcpy dst", [&] { return aclrtMemcpy(nullptr, 8, from, 8, kKind); }, kBad,
       "dst is null"},
      {"aclrtMemcpy src", [&] { return aclrtMemcpy(to, 8, nullptr, 8, kKind); }, kBad,
       "src is null"},
      {"aclrtMemcpy count", [&] { return aclrtMemcpy(to, 7, from, 8, kKind); }, kBad, "count is 8"},
      {"aclrtMemcpy kind", [&] { return aclrtMemcpy(to, 8, from, 8, unknown(kKind)); }, kBad,
       "kind"},
      {"aclrtMemcpyAsync dst",
       [&] { return aclrtMemcpyAsync(nullptr, 8, from, 8, kKind, stream_); }, kBad, "dst is null"},
      {"aclrtMemcpyAsync src", [&] { return aclrtMemcpyAsync(to, 8, nullptr, 8, kKind, stream_); },
       kBad, "src is null"},
      {"aclrtMemcpyAsync count", [&] { return aclrtMemcpyAsync(to, 7, from, 8, kKind, stream_); },
       kBad, "count"},
      {"aclrtMemcpyAsync kind",
       [&] { return aclrtMemcpyAsync(to, 8, from, 8, unknown(kKind), stream_); }, kBad, "kind"},
      {"aclrtMemset", [] { return aclrtMemset(nullptr, 8, 0, 8); }, kBad, "devPtr is null"},
      {"aclrtMemset count", [&] { return aclrtMemset(to, 7, 0, 8); }, kBad, "count"},
      {"aclrtMemsetAsync", [&] { return aclrtMemsetAsync(nullptr, 8, 0, 8, stream_); }, kBad,
       "devPtr is null"},
      {"aclrtMemsetAsync count", [&] { return aclrtMemsetAsync(to, 7, 0, 8, stream_); }, kBad,
       "count"},
      {"aclrtMemcpy2d dst", [&] { return aclrtMemcpy2d(nullptr, 2, from, 2, 2, 2, kKind); }, kBad,
       "dst is null"},
      {"aclrtMemcpy2d dpitch", [&] { return aclrtMemcpy2d(to, 1, from, 2, 2, 2, kKind); }, kBad,
       "dpitch"},
      {"aclrtMemcpy2d src", [&] { return aclrtMemcpy2d(to, 2, nullptr, 2, 2, 2, kKind); }, kBad,
       "src is null"},
      {"aclrtMemcpy2d spitch", [&] { return aclrtMemcpy2d(to, 2, from, 1, 2, 2, kKind); }, kBad,
       "spitch"},
      {"aclrtMemcpy2d height", [&] { return aclrtMemcpy2d(to, 2, from, 2, 2, SIZE_MAX, kKind); },
       kBad, "height"},
      {"aclrtMemcpy2d kind", [&] { return aclrtMemcpy2d(to, 2, from, 2, 2, 2, unknown(kKind)); },
       kBad, "kind"},
      {"aclrtMemcpy2dAsync dst",
       [&] { return aclrtMemcpy2dAsync(nullptr, 2, from, 2, 2, 2, kKind, stream_); }, kBad,
       "dst is null"},

      {"aclrtCreateStream", [] { return aclrtCreateStream(nullptr); }, kBad, "stream is null"},
      {"aclrtCreateStreamWithConfig", [] { return aclrtCreateStreamWithConfig(nullptr, 0, 0); },
       kBad, "stream is null"},
      {"aclrtCreateStreamWithConfig priority",
       [&] { return aclrtCreateStreamWithConfig(&out, 8, 0); }, kBad, "priority"},
      {"aclrtCreateStreamWithConfig flag",
       [&] { return aclrtCreateStreamWithConfig(&out, 0, 0x40); }, kBad, "flag"},
      {"aclrtSynchronizeStreamWithTimeout",
       [&] { return aclrtSynchronizeStreamWithTimeout(stream_, -2); }, kBad, "timeout"},
      {"aclrtStreamQuery", [&] { return aclrtStreamQuery(stream_, nullptr); }, kBad,
       "status is null"},
      {"aclrtSetStreamFailureMode", [&] { return aclrtSetStreamFailureMode(stream_, 2); }, kBad,
       "mode 2"},
      {"aclrtLaunchHostFunc", [&] { return aclrtLaunchHostFunc(stream_, nullptr, nullptr); }, kBad,
       "fn is null"},

      {"aclrtCreateEvent", [] { return aclrtCreateEvent(nullptr); }, kBad, "event is null"},
      {"aclrtCreateEventWithFlag", [] { return aclrtCreateEventWithFlag(nullptr, 1); }, kBad,
       "event is null"},
      {"aclrtCreateEventWithFlag 0", [&] { return aclrtCreateEventWithFlag(&out, 0); }, kBad,
       "flag"},
      {"aclrtCreateEventWithFlag 0x80", [&] { return aclrtCreateEventWithFlag(&out, 0x80); }, kBad,
       "flag"},
      {"aclrtCreateEventWithFlag ipc",
       [&] { return aclrtCreateEventWithFlag(&out, ACL_EVENT_IPC); },
       ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "flag"},
      {"aclrtCreateEventExWithFlag", [] { return aclrtCreateEventExWithFlag(nullptr, 1); }, kBad,
       "event is null"},
      {"aclrtStreamWaitEvent", [&] { return aclrtStreamWaitEvent(stream_, untimed); }, kBad,
       "event"},
      {"aclrtResetEvent", [&] { return aclrtResetEvent(untimed, stream_); }, kBad, "event"},
      {"aclrtQueryEventStatus", [&] { return aclrtQueryEventStatus(event_, nullptr); }, kBad,
       "status is null"},
      {"aclrtQueryEvent", [&] { return aclrtQueryEvent(event_, nullptr); }, kBad, "status is null"},
      {"aclrtSynchronizeEvent", [&] { return aclrtSynchronizeEvent(event_); }, kBad,
       "event was not recorded"},
      {"aclrtSynchronizeEventWithTimeout",
       [&] { return aclrtSynchronizeEventWithTimeout(event_, -2); }, kBad, "timeout"},
      {"aclrtEventElapsedTime", [&] { return aclrtEventElapsedTime(nullptr, event_, event_); },
       kBad, "ms is null"},
      {"aclrtEventElapsedTime flag", [&] { return aclrtEventElapsedTime(&ms, untimed, timed); },
       kBad, "startEvent"},
      {"aclrtEventElapsedTime unset", [&] { return aclrtEventElapsedTime(&ms, timed, timed); },
       ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, "startEvent"},

      {"aclrtSubscribeReport", [&] { return aclrtSubscribeReport(0, stream_); }, kBad, "threadId"},
      {"aclrtUnSubscribeReport", [&] { return aclrtUnSubscribeReport(0, stream_); }, kBad,
       "threadId"},
      {"aclrtUnSubscribeReport other", [&] { return aclrtUnSubscribeReport(5, stream_); },
       ACL_ERROR_RT_THREAD_SUBSCRIBE, "threadId"},
      {"aclrtLaunchCallback",
       [&] { return aclrtLaunchCallback(nullptr, &to, ACL_CALLBACK_BLOCK, stream_); }, kBad,
       "fn is null"},
      {"aclrtLaunchCallback type",
       [&] { return aclrtLaunchCallback(add_one, &to, unknown(ACL_CALLBACK_BLOCK), stream_); },
       kBad, "blockType"},
      {"aclrtLaunchCallback nobody",
       [&] { return aclrtLaunchCallback(add_one, &to, ACL_CALLBACK_BLOCK, stream_); },
       ACL_ERROR_RT_STREAM_NO_CB_REG, "stream"},
      {"aclrtProcessReport", [] { return aclrtProcessReport(-2); }, kBad, "timeout"},
      {"aclrtProcessReport nobody", [] { return aclrtProcessReport(0); },
       ACL_ERROR_RT_THREAD_SUBSCRIBE},
  });
  EXPECT_EQ(aclrtPeekAtLastError(unknown(ACL_RT_THREAD_LEVEL)), kBad);
  OK(aclrtDestroyEvent(untimed));
  OK(aclrtDestroyEvent(timed));
  EXPECT_EQ(out, nullptr);
}

TEST(AclThreads, RefusesWhatNeedsADevice) {
  std::thread([] {
    std::size_t size = 0;
    std::int32_t device = 0;
    aclrtContext context = nullptr;
    refuse({
        {"aclrtGetDevice", [&] { return aclrtGetDevice(&device); }, ACL_ERROR_RT_CONTEXT_NULL},
        {"aclrtGetCurrentContext", [&] { return aclrtGetCurrentContext(&context); },
         ACL_ERROR_RT_CONTEXT_NULL},
        {"aclrtGetMemInfo", [&] { return aclrtGetMemInfo(ACL_HBM_MEM, &size, &size); },
         ACL_ERROR_RT_CONTEXT_NULL},
        {"aclrtSynchronizeDevice", [] { return aclrtSynchronizeDevice(); },
         ACL_ERROR_RT_CONTEXT_NULL},
        {"aclrtResetDevice", [] { return aclrtResetDevice(11); }, ACL_ERROR_RT_CONTEXT_NULL},
    });
    EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), ACL_ERROR_RT_CONTEXT_NULL);
    EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), ACL_SUCCESS);
  }).join();
}

// ---- Start, devices, contexts ----

TEST(AclInit, CountsAndForgivesFinalize) {
  std::uint64_t left = 7;
  EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
  EXPECT_EQ(aclFinalizeReference(&left), ACL_SUCCESS);
  EXPECT_EQ(left, 0u);
  EXPECT_EQ(aclInit(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclInit(nullptr), ACL_ERROR_REPEAT_INITIALIZE);
  EXPECT_EQ(aclInit(nullptr), ACL_ERROR_REPEAT_INITIALIZE);
  EXPECT_EQ(aclFinalizeReference(&left), ACL_SUCCESS);
  EXPECT_EQ(left, 2u);
  EXPECT_EQ(aclFinalizeReference(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclFinalizeReference(&left), ACL_SUCCESS);
  EXPECT_EQ(left, 0u);
  EXPECT_EQ(aclInit(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclInit(nullptr), ACL_ERROR_REPEAT_INITIALIZE);
  EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
  EXPECT_EQ(aclInit(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
}

TEST(AclInit, KnowsTheHost) {
  EXPECT_STREQ(aclrtGetSocName(), "Ascend910");
  aclrtRunMode mode = ACL_DEVICE;
  OK(aclrtGetRunMode(&mode));
  EXPECT_EQ(mode, ACL_HOST);
  std::uint32_t devices = 0;
  OK(aclrtGetDeviceCount(&devices));
  EXPECT_EQ(devices, std::max(16u, std::thread::hardware_concurrency()));
  std::int32_t number[3] = {};
  OK(aclrtGetVersion(&number[0], &number[1], &number[2]));
  EXPECT_EQ(number[0], ACL_MAJOR_VERSION);
  OK(aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_INFNAN));
  aclrtFloatOverflowMode overflow = ACL_RT_OVERFLOW_MODE_UNDEF;
  OK(aclrtGetDeviceSatMode(&overflow));
  EXPECT_EQ(overflow, ACL_RT_OVERFLOW_MODE_INFNAN);
  std::int32_t reaches = 0;
  OK(aclrtDeviceCanAccessPeer(&reaches, 0, 1));
  EXPECT_EQ(reaches, 1);
}

TEST(AclDevice, IsTheThreadsAndCounted) {
  const auto current = [] {
    std::int32_t device = -1;
    return aclrtGetDevice(&device) == ACL_SUCCESS ? device : -1;
  };
  OK(aclrtSetDevice(3));
  EXPECT_EQ(current(), 3);
  std::thread([&] {
    EXPECT_EQ(current(), -1);
    OK(aclrtSetDevice(3));
    OK(aclrtSetDevice(4));
    EXPECT_EQ(current(), 4);
    OK(aclrtResetDevice(4));
    EXPECT_EQ(current(), -1);
    EXPECT_EQ(aclrtResetDevice(4), ACL_ERROR_RT_CONTEXT_NULL);
    OK(aclrtResetDevice(3));
  }).join();
  EXPECT_EQ(current(), 3);  // one of two resets was due to this thread
  OK(aclrtResetDevice(3));
  EXPECT_EQ(current(), -1);
  OK(aclrtSetDevice(3));
  OK(aclrtSetDevice(3));
  OK(aclrtResetDeviceForce(3));
  EXPECT_EQ(current(), -1);
}

TEST(AclDevice, HasContexts) {
  OK(aclrtSetDevice(2));
  aclrtContext standard = nullptr;
  aclrtContext own = nullptr;
  aclrtContext current = nullptr;
  std::int32_t device = -1;
  OK(aclrtGetCurrentContext(&standard));
  EXPECT_EQ(aclrtDestroyContext(standard), ACL_ERROR_RT_PARAM_INVALID);
  OK(aclrtCreateContext(&own, 5));
  OK(aclrtGetCurrentContext(&current));
  EXPECT_EQ(current, own);
  OK(aclrtGetDevice(&device));
  EXPECT_EQ(device, 5);
  std::thread([&] {
    OK(aclrtSetCurrentContext(own));
    OK(aclrtGetDevice(&device));
    EXPECT_EQ(device, 5);
  }).join();
  OK(aclrtSetCurrentContext(standard));
  OK(aclrtGetDevice(&device));
  EXPECT_EQ(device, 2);
  OK(aclrtSetCurrentContext(own));
  OK(aclrtDestroyContext(own));
  EXPECT_EQ(aclrtGetDevice(&device), ACL_ERROR_RT_CONTEXT_NULL);
  OK(aclrtResetDevice(2));
  EXPECT_EQ(aclrtSetCurrentContext(standard), ACL_ERROR_RT_INVALID_HANDLE);
}

TEST(AclDevice, SynchronizesItsStreams) {
  std::atomic<int> calls{0};
  Gate gate;
  aclrtStream mine = nullptr;
  aclrtStream foreign = nullptr;
  OK(aclrtSetDevice(7));
  OK(aclrtCreateStream(&foreign));
  OK(aclrtSetDevice(6));
  OK(aclrtCreateStream(&mine));
  const auto call = [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); };
  for (int i = 0; i < 100; ++i) OK(aclrtLaunchHostFunc(mine, call, &calls));
  OK(aclrtLaunchHostFunc(foreign, Gate::pass, &gate));
  OK(aclrtSynchronizeDevice());  // would hang if it waited for the foreign one
  EXPECT_EQ(calls, 100);
  OK(aclrtSetDevice(7));
  EXPECT_EQ(aclrtSynchronizeDeviceWithTimeout(1), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  gate.release();
  OK(aclrtSynchronizeDeviceWithTimeout(-1));
  OK(aclrtDestroyStream(mine));
  OK(aclrtDestroyStream(foreign));
  for (const int device : {6, 7, 7}) OK(aclrtResetDevice(device));
}

// ---- Memory ----

TEST(AclMemory, IsAlignedAndUsable) {
  std::size_t before = 0;
  std::size_t total = 0;
  std::size_t now = 0;
  OK(aclrtSetDevice(0));
  OK(aclrtGetMemInfo(ACL_HBM_MEM_HUGE, &before, &total));
  EXPECT_GT(before, 0u);
  EXPECT_GE(total, before);
  std::vector<char*> all;
  for (const std::size_t size : {1, 31, 32, 33, 4096, 5000000}) {
    for (const auto policy : {ACL_MEM_MALLOC_HUGE_ONLY, ACL_MEM_MALLOC_NORMAL_ONLY}) {
      void* memory = nullptr;
      OK(aclrtMalloc(&memory, size, policy));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u);
      std::memset(memory, static_cast<int>(all.size()), (size + 31) / 32 * 32 + 32);
      all.push_back(static_cast<char*>(memory));
    }
  }
  OK(aclrtGetMemInfo(ACL_HBM_MEM_HUGE, &now, &total));
  EXPECT_LE(now, before - 2 * 5000000);
  for (std::size_t i = 0; i < all.size(); ++i) {  // none wrote into another
    EXPECT_EQ(all[i][0], static_cast<char>(i));
    OK(aclrtFree(all[i]));
    EXPECT_EQ(aclrtFree(all[i]), ACL_ERROR_RT_PARAM_INVALID);
  }
  OK(aclrtGetMemInfo(ACL_DDR_MEM, &now, &total));
  EXPECT_EQ(now, before);
  OK(aclrtGetMemInfo(ACL_HBM_MEM_HUGE1G, &now, &total));
  EXPECT_EQ(now + total, 0u);
  OK(aclrtResetDevice(0));
}

TEST(AclMemory, OfTheHostIsItsOwn) {
  void* host = nullptr;
  void* device = nullptr;
  OK(aclrtMallocHost(&host, 100));
  OK(aclrtMallocAlign32(&device, 100, ACL_MEM_MALLOC_HUGE_FIRST));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(host) % 64, 0u);
  EXPECT_EQ(aclrtFree(host), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtFreeHost(device), ACL_ERROR_RT_PARAM_INVALID);
  OK(aclrtFree(device));
  OK(aclrtFreeHost(host));
  EXPECT_EQ(aclrtFreeHost(host), ACL_ERROR_RT_PARAM_INVALID);
}

// As hccl_test does it: blocks are mapped behind one another while sizes grow.
TEST(AclMemory, MapsBlocksBehindOneAnother) {
  OK(aclrtSetDevice(0));
  std::size_t before = 0;
  std::size_t now = 0;
  std::size_t total = 0;
  OK(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total));
  auto prop = device_prop();
  std::size_t granularity = 0;
  OK(aclrtMemGetAllocationGranularity(&prop, ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED,
                                      &granularity));
  EXPECT_EQ(granularity, kGranule);

  void* reserved = nullptr;
  OK(aclrtReserveMemAddress(&reserved, 8 * kGranule - 1, 0, nullptr, 1));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(reserved) % kGranule, 0u);
  auto* const base = static_cast<char*>(reserved);
  aclrtDrvMemHandle blocks[3] = {};
  const std::size_t sizes[3] = {kGranule, 3 * kGranule, 2 * kGranule};
  const std::size_t at[3] = {0, kGranule, 4 * kGranule};
  for (int i : {0, 2, 1}) {
    OK(aclrtMallocPhysical(&blocks[i], sizes[i], &prop, 0));
    OK(aclrtMapMem(base + at[i], sizes[i], 0, blocks[i], 0));
  }
  const std::size_t all = 6 * kGranule;
  std::vector<std::uint32_t> numbers(all / 4);
  std::iota(numbers.begin(), numbers.end(), 1u);
  OK(aclrtMemcpy(base, all, numbers.data(), all, ACL_MEMCPY_HOST_TO_DEVICE));

  // What is not possible now.
  EXPECT_EQ(aclrtReleaseMemAddress(base), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtReleaseMemAddress(base + kGranule), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtUnmapMem(base + 2 * kGranule), ACL_ERROR_RT_PARAM_INVALID);
  struct Bad {
    char* at;
    std::size_t size;
    std::size_t offset;
    std::uint64_t flags;
  };
  for (const Bad& bad :
       {Bad{base, kGranule, 0, 0}, Bad{base + 3 * kGranule, kGranule, 0, 0},
        Bad{base + 6 * kGranule, 2 * kGranule, 0, 0}, Bad{base + 6 * kGranule, kGranule, 4096, 0},
        Bad{base + 6 * kGranule, kGranule, 0, 1}, Bad{base + 6 * kGranule + 1, kGranule, 0, 0},
        Bad{base + 7 * kGranule + 4096, kGranule, 0, 0}, Bad{base + 8 * kGranule, kGranule, 0, 0},
        Bad{base - kGranule, kGranule, 0, 0}}) {
    EXPECT_EQ(aclrtMapMem(bad.at, bad.size, bad.offset, blocks[0], bad.flags),
              ACL_ERROR_RT_PARAM_INVALID)
        << bad.at - base << " " << bad.size << " " << bad.offset << " " << bad.flags;
  }

  // Freed while mapped: it stays until it is unmapped. Mapped elsewhere: it is the same memory.
  OK(aclrtFreePhysical(blocks[2]));
  EXPECT_EQ(aclrtFreePhysical(blocks[2]), ACL_ERROR_RT_INVALID_HANDLE);
  OK(aclrtUnmapMem(base));
  OK(aclrtMapMem(base + 6 * kGranule, kGranule, 0, blocks[0], 0));
  std::vector<std::uint32_t> back(all / 4);
  OK(aclrtMemcpy(back.data(), all, base + kGranule, all, ACL_MEMCPY_DEVICE_TO_HOST));
  std::rotate(numbers.begin(), numbers.begin() + kGranule / 4, numbers.end());
  EXPECT_TRUE(back == numbers);

  for (char* each : {base + kGranule, base + 4 * kGranule, base + 6 * kGranule}) {
    OK(aclrtUnmapMem(each));
    EXPECT_EQ(aclrtUnmapMem(each), ACL_ERROR_RT_PARAM_INVALID);
  }
  OK(aclrtFreePhysical(blocks[0]));
  OK(aclrtFreePhysical(blocks[1]));
  OK(aclrtReleaseMemAddress(base));
  EXPECT_EQ(aclrtReleaseMemAddress(base), ACL_ERROR_RT_PARAM_INVALID);
  OK(aclrtGetMemInfo(ACL_HBM_MEM, &now, &total));
  EXPECT_EQ(now, before);
  OK(aclrtResetDevice(0));
}

TEST_F(Acl, Copies) {
  for (int kind = 0; kind <= ACL_MEMCPY_INTER_DEVICE_TO_DEVICE; ++kind) {
    const auto direction = static_cast<aclrtMemcpyKind>(kind);
    const std::string text = "direction " + std::to_string(kind);
    char now[32] = {};
    char later[32] = {};
    OK(aclrtMemcpy(now, sizeof now, text.c_str(), text.size() + 1, direction));
    OK(aclrtMemcpyAsync(later, sizeof later, now, sizeof now, direction, stream_));
    OK(aclrtMemcpyAsync(now, 4, "left", 4, direction, nullptr));
    EXPECT_EQ(std::memcmp(now, "left", 4), 0);  // the default stream has done it
    OK(aclrtSynchronizeStream(stream_));
  }
  OK(aclrtMemcpy(this, 0, this, 0, kKind));
  char part[] = "0123456789";
  OK(aclrtMemcpy(part + 1, 9, part, 9, kKind));
  EXPECT_STREQ(part, "0012345678");
  char grid[9] = {};
  OK(aclrtMemset(grid, sizeof grid, '.', 8));
  OK(aclrtMemcpy2d(grid, 4, "abXcdX", 3, 2, 2, kKind));
  EXPECT_STREQ(grid, "ab..cd..");
  OK(aclrtMemsetAsync(grid, sizeof grid, '-', 8, stream_));
  OK(aclrtMemcpy2dAsync(grid + 1, 3, "12", 1, 1, 2, kKind, stream_));
  OK(aclrtSynchronizeStream(stream_));
  EXPECT_STREQ(grid, "-1--2---");
}

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
  OK(aclrtSynchronizeStream(other_));  // does not mind
  gate.release();
  OK(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(query(stream_), ACL_STREAM_STATUS_COMPLETE);
  std::vector<int> expected(kSteps);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
  OK(aclrtSynchronizeStreamWithTimeout(stream_, 0));
}

// Nobody synchronizes: the worker alone does it.
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
  // While the worker stands at a gate, a second one does not stand in the way of another stream.
  Gate gate;
  OK(aclrtLaunchHostFunc(stream_, Gate::pass, &gate));
  OK(aclrtLaunchHostFunc(
      other_, [](void* p) { static_cast<Gate*>(p)->release(); }, &gate));
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
  OK(aclrtStreamWaitEvent(stream, event_));  // for ever
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
  OK(aclrtSynchronizeStream(stream_));  // told once
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
  EXPECT_EQ(aclrtSynchronizeStream(other_), ACL_ERROR_RT_STREAM_ABORT);  // and not a hang
  EXPECT_EQ(aclrtSynchronizeEvent(event_), ACL_ERROR_RT_STREAM_ABORT);
  EXPECT_NE(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_EQ(calls, 0);
  OK(aclrtLaunchHostFunc(stream_, add_one, &calls));  // it was told of: the stream goes on
  OK(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(calls, 1);
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

// As hccl_test -t 1: the wait comes first, the record later and from elsewhere; and once more.
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
  // Reset after it was recorded.
  OK(aclrtRecordEvent(event_, other_));
  OK(aclrtStreamWaitEvent(stream_, event_));
  OK(aclrtResetEvent(event_, stream_));
  OK(aclrtSynchronizeStream(stream_));
  OK(aclrtStreamWaitEvent(stream_, event_));
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 5), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  OK(aclrtRecordEvent(event_, other_));
  OK(aclrtSynchronizeStream(stream_));
}

// A record again, while the first is complete: who waits now, waits for the second.
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
  EXPECT_GE(ms, at_least);
  EXPECT_LT(ms, 60e3);
  EXPECT_EQ(aclrtEventElapsedTime(&ms, end, start), ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL);
  OK(aclrtDestroyEvent(start));
  OK(aclrtDestroyEvent(end));
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
  // Who leaves lets the stream go.
  OK(aclrtLaunchCallback(note, &seen, ACL_CALLBACK_NO_BLOCK, stream_));
  OK(aclrtSynchronizeStream(stream_));
  OK(aclrtUnSubscribeReport(self, stream_));
  EXPECT_EQ(aclrtProcessReport(0), ACL_ERROR_RT_REPORT_TIMEOUT);
  OK(aclrtUnSubscribeReport(self, other_));
  EXPECT_EQ(aclrtProcessReport(0), ACL_ERROR_RT_THREAD_SUBSCRIBE);
  EXPECT_EQ(seen.calls, 2);
}

// ---- The profiler ----

TEST(AclProfiler, KeepsItsOrderOfCalls) {
  std::uint32_t devices[2] = {0, 1};
  std::uint32_t twice[2] = {1, 1};
  std::uint32_t far = 1u << 30;
  const auto metrics = ACL_AICORE_PIPE_UTILIZATION;
  const std::uint64_t data = ACL_PROF_ACL_API | ACL_PROF_HCCL_TRACE;
  const std::string path(4097, 'p');
  EXPECT_EQ(aclprofCreateConfig(nullptr, 1, metrics, nullptr, data), nullptr);
  EXPECT_EQ(aclprofCreateConfig(devices, 0, metrics, nullptr, data), nullptr);
  EXPECT_EQ(aclprofCreateConfig(devices, 1u << 20, metrics, nullptr, data), nullptr);
  EXPECT_EQ(aclprofCreateConfig(twice, 2, metrics, nullptr, data), nullptr);
  EXPECT_EQ(aclprofCreateConfig(&far, 1, metrics, nullptr, data), nullptr);
  EXPECT_EQ(aclprofCreateConfig(devices, 1, static_cast<aclprofAicoreMetrics>(9), nullptr, data),
            nullptr);
  EXPECT_EQ(aclprofCreateConfig(devices, 1, metrics,
                                reinterpret_cast<const aclprofAicoreEvents*>(&far), data),
            nullptr);
  EXPECT_EQ(aclprofCreateConfig(devices, 1, metrics, nullptr, 0x200), nullptr);
  aclprofConfig* const config = aclprofCreateConfig(devices, 2, metrics, nullptr, data);
  ASSERT_NE(config, nullptr);

  EXPECT_EQ(aclprofStart(config), ACL_ERROR_PROF_NOT_RUN);
  EXPECT_EQ(aclprofStop(config), ACL_ERROR_PROF_NOT_RUN);
  EXPECT_EQ(aclprofFinalize(), ACL_ERROR_PROF_NOT_RUN);
  EXPECT_EQ(aclprofInit(nullptr, 1), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclprofInit("a", 0), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclprofInit("a", 2), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclprofInit(path.c_str(), path.size()), ACL_ERROR_INVALID_PARAM);
  OK(aclprofInit(path.c_str(), 4096));
  EXPECT_EQ(aclprofInit("a", 1), ACL_ERROR_PROF_ALREADY_RUN);
  EXPECT_EQ(aclprofStop(config), ACL_ERROR_PROF_NOT_RUN);
  OK(aclprofStart(config));
  EXPECT_EQ(aclprofStart(config), ACL_ERROR_PROF_ALREADY_RUN);
  OK(aclprofStop(config));
  OK(aclprofFinalize());
  OK(aclprofDestroyConfig(config));
  for (const aclprofConfig* each :
       {static_cast<const aclprofConfig*>(nullptr), static_cast<const aclprofConfig*>(config),
        static_cast<const aclprofConfig*>(kInvented)}) {
    EXPECT_EQ(aclprofStart(each), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(aclprofStop(each), ACL_ERROR_INVALID_PARAM);
    EXPECT_EQ(aclprofDestroyConfig(each), ACL_ERROR_INVALID_PARAM);
  }
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

TEST(AclThreads, SixteenLiveSideBySide) {
  std::vector<std::thread> ranks;
  for (int device = 0; device < 16; ++device) ranks.emplace_back(life_of_a_rank, device);
  for (auto& rank : ranks) rank.join();
}

TEST_F(Acl, SixteenThreadsShareAStream) {
  std::vector<std::thread> threads;
  std::atomic<int> calls{0};
  int plain = 0;  // only tasks of one stream touch it: they must not overlap
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        OK(aclrtLaunchHostFunc(
            stream_, [](void* p) { ++*static_cast<int*>(p); }, &plain));
        OK(aclrtLaunchHostFunc(stream_, add_one, &calls));
        if (i % 5 == 0) OK(aclrtSynchronizeStream(stream_));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  OK(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(calls, 16 * 50);
  EXPECT_EQ(plain, 16 * 50);
}

// One destroys the stream while others still use it: they are done with it, or are told that it is
// gone.
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
