// Every wrong argument of every function of the acl runtime: its code, and a text that names it;
// and the profiler, which is nothing but arguments.
#include <gtest/gtest.h>
#include <pthread.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "hccl/acl/acl_prof.h"
#include "tests/support/acl.h"

namespace hccl::testing {
namespace {

void* const kInvented = reinterpret_cast<void*>(std::uintptr_t{0xACC2010000000FFFull});

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

}  // namespace
}  // namespace hccl::testing
