// Every wrong argument of every function of the acl runtime: the error code, and a text that names
// the argument. Also the profiler's functions.
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

// ---- Rejected arguments ----

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
  std::uint64_t value = 0;
  std::int32_t id = 0;
  aclrtStreamAttrValue attribute{};
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
    SCOPED_TRACE(h.name);
    REFUSED(aclrtDestroyStream(h.stream), h.expected, "stream ");
    REFUSED(aclrtDestroyStreamForce(h.stream), h.expected, "stream ");
    REFUSED(aclrtSetStreamFailureMode(h.stream, 1), h.expected, "stream ");
    REFUSED(aclrtSetStreamAttribute(h.stream, ACL_STREAM_ATTR_FAILURE_MODE, &attribute), h.expected,
            "stream ");
    REFUSED(aclrtSubscribeReport(self, h.stream), h.expected, "stream ");
    REFUSED(aclrtUnSubscribeReport(self, h.stream), h.expected, "stream ");
    REFUSED(aclrtLaunchCallback(add_one, &byte, ACL_CALLBACK_BLOCK, h.stream), h.expected,
            "stream ");
    REFUSED(aclrtDestroyEvent(h.event), h.expected, "event ");
    REFUSED(aclrtRecordEvent(h.event, stream_), h.expected, "event ");
    REFUSED(aclrtResetEvent(h.event, stream_), h.expected, "event ");
    REFUSED(aclrtStreamWaitEvent(stream_, h.event), h.expected, "event ");
    REFUSED(aclrtSynchronizeEvent(h.event), h.expected, "event ");
    REFUSED(aclrtSynchronizeEventWithTimeout(h.event, 1), h.expected, "event ");
    REFUSED(aclrtQueryEventStatus(h.event, &event_status), h.expected, "event ");
    REFUSED(aclrtQueryEvent(h.event, &old_status), h.expected, "event ");
    REFUSED(aclrtEventElapsedTime(&ms, h.event, event_), h.expected, "startEvent ");
    REFUSED(aclrtDestroyContext(h.context), h.expected, "context ");
    REFUSED(aclrtSetCurrentContext(h.context), h.expected, "context ");
    REFUSED(aclrtFreePhysical(h.stream), h.expected, "handle ");
    REFUSED(aclrtMapMem(&here, kGranule, 0, h.stream, 0), h.expected, "handle ");
    if (h.stream == nullptr) continue;  // the default stream is allowed below
    REFUSED(aclrtSynchronizeStream(h.stream), h.expected, "stream ");
    REFUSED(aclrtSynchronizeStreamWithTimeout(h.stream, 1), h.expected, "stream ");
    REFUSED(aclrtStreamQuery(h.stream, &stream_status), h.expected, "stream ");
    REFUSED(aclrtRecordEvent(event_, h.stream), h.expected, "stream ");
    REFUSED(aclrtResetEvent(event_, h.stream), h.expected, "stream ");
    REFUSED(aclrtStreamWaitEvent(h.stream, event_), h.expected, "stream ");
    REFUSED(aclrtMemcpyAsync(&byte, 1, &byte, 1, kKind, h.stream), h.expected, "stream ");
    REFUSED(aclrtMemsetAsync(&byte, 1, 0, 1, h.stream), h.expected, "stream ");
    REFUSED(aclrtMemcpy2dAsync(&byte, 1, &byte, 1, 1, 1, kKind, h.stream), h.expected, "stream ");
    REFUSED(aclrtLaunchHostFunc(h.stream, add_one, &byte), h.expected, "stream ");
    REFUSED(aclrtStreamGetId(h.stream, &id), h.expected, "stream ");
    REFUSED(aclrtValueWrite(&value, 1, 0, h.stream), h.expected, "stream ");
    REFUSED(aclrtValueWait(&value, 1, ACL_STREAM_WAIT_VALUE_EQ, h.stream), h.expected, "stream ");
    REFUSED(aclrtSetStreamOverflowSwitch(h.stream, 0), h.expected, "stream ");
    REFUSED(aclrtSetStreamResLimit(h.stream, ACL_RT_DEV_RES_CUBE_CORE, 1), h.expected, "stream ");
    REFUSED(aclrtUseStreamResInCurrentThread(h.stream), h.expected, "stream ");
    REFUSED(aclrtUnuseStreamResInCurrentThread(h.stream), h.expected, "stream ");
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
  auto copy = prop;  // aclrtMemGetAllocationGranularity takes a pointer to non-const
  struct alignas(8) Word {
    char bytes[8];
  } words[1] = {};
  aclrtStreamAttrValue attribute{};
  attribute.failureMode = 2;
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

  REFUSED(aclInit("/nowhere/acl.json"), ACL_ERROR_INVALID_FILE, "configPath");
  REFUSED(aclrtGetVersion(nullptr, &number, &number), kBad, "majorVersion is null");
  REFUSED(aclrtGetVersion(&number, nullptr, &number), kBad, "minorVersion is null");
  REFUSED(aclrtGetVersion(&number, &number, nullptr), kBad, "patchVersion is null");
  REFUSED(aclrtGetDeviceCount(nullptr), kBad, "count is null");
  REFUSED(aclrtSetDevice(-1), kNoDevice, "deviceId is -1");
  REFUSED(aclrtSetDevice(beyond), kNoDevice, "deviceId");
  REFUSED(aclrtResetDevice(beyond), kNoDevice, "deviceId");
  REFUSED(aclrtResetDeviceForce(-7), kNoDevice, "deviceId");
  REFUSED(aclrtGetDevice(nullptr), kBad, "deviceId is null");
  REFUSED(aclrtSynchronizeDeviceWithTimeout(-2), kBad, "timeout");
  REFUSED(aclrtGetRunMode(nullptr), kBad, "runMode is null");
  REFUSED(aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_UNDEF), kBad, "mode 2");
  REFUSED(aclrtGetDeviceSatMode(nullptr), kBad, "mode");
  REFUSED(aclrtDeviceCanAccessPeer(nullptr, 0, 0), kBad, "canAccessPeer is null");
  REFUSED(aclrtDeviceCanAccessPeer(&number, beyond, 0), kNoDevice, "deviceId");
  REFUSED(aclrtDeviceCanAccessPeer(&number, 0, beyond), kNoDevice, "peerDeviceId");
  REFUSED(aclrtDeviceEnablePeerAccess(beyond, 0), kNoDevice, "peerDeviceId");
  REFUSED(aclrtDeviceEnablePeerAccess(0, 1), kBad, "flags");
  REFUSED(aclrtDeviceDisablePeerAccess(beyond), kNoDevice, "peerDeviceId");
  REFUSED(aclrtCreateContext(nullptr, 0), kBad, "context is null");
  REFUSED(aclrtCreateContext(&out, beyond), kNoDevice, "deviceId");
  REFUSED(aclrtGetCurrentContext(nullptr), kBad, "context is null");

  REFUSED(aclrtMalloc(nullptr, 1, policy), kBad, "devPtr is null");
  REFUSED(aclrtMalloc(&out, 0, policy), kBad, "size is 0");
  REFUSED(aclrtMalloc(&out, 1, unknown(policy)), kBad, "policy");
  REFUSED(aclrtMalloc(&out, SIZE_MAX, policy), ACL_ERROR_RT_MEMORY_ALLOCATION, "");
  REFUSED(aclrtMalloc(&out, SIZE_MAX / 4, policy), ACL_ERROR_RT_MEMORY_ALLOCATION, "");
  REFUSED(aclrtMallocAlign32(&out, 0, policy), kBad, "size");
  REFUSED(aclrtMallocCached(&out, 0, policy), kBad, "size");
  REFUSED(aclrtFree(nullptr), kBad, "devPtr is null");
  REFUSED(aclrtFree(&from), kBad, "devPtr");
  REFUSED(aclrtMallocHost(nullptr, 1), kBad, "hostPtr is null");
  REFUSED(aclrtMallocHost(&out, 0), kBad, "size is 0");
  REFUSED(aclrtMallocHost(&out, SIZE_MAX), ACL_ERROR_RT_MEMORY_ALLOCATION, "");
  REFUSED(aclrtFreeHost(nullptr), kBad, "hostPtr is null");
  REFUSED(aclrtFreeHost(&from), kBad, "hostPtr");
  REFUSED(aclrtGetMemInfo(unknown(ACL_HBM_MEM), &size, &size), kBad, "attr");
  REFUSED(aclrtGetMemInfo(ACL_HBM_MEM, nullptr, &size), kBad, "free is null");
  REFUSED(aclrtGetMemInfo(ACL_HBM_MEM, &size, nullptr), kBad, "total is null");

  REFUSED(aclrtReserveMemAddress(nullptr, 1, 0, nullptr, 0), kBad, "virPtr is null");
  REFUSED(aclrtReserveMemAddress(&out, 0, 0, nullptr, 0), kBad, "size is 0");
  REFUSED(aclrtReserveMemAddress(&out, kGranule, 8, nullptr, 0), kBad, "alignment");
  REFUSED(aclrtReserveMemAddress(&out, kGranule, 0, &out, 0), kBad, "expectPtr");
  REFUSED(aclrtReserveMemAddress(&out, kGranule, 0, nullptr, 2), kBad, "flags");
  REFUSED(aclrtReserveMemAddress(&out, SIZE_MAX, 0, nullptr, 0), ACL_ERROR_RT_MEMORY_ALLOCATION,
          "");
  REFUSED(aclrtReserveMemAddress(&out, SIZE_MAX / 2, 0, nullptr, 0), ACL_ERROR_RT_MEMORY_ALLOCATION,
          "");
  REFUSED(aclrtReleaseMemAddress(nullptr), kBad, "virPtr is null");
  REFUSED(aclrtReleaseMemAddress(&from), kBad, "virPtr");
  REFUSED(aclrtMallocPhysical(nullptr, kGranule, &prop, 0), kBad, "handle is null");
  REFUSED(aclrtMallocPhysical(&out, 0, &prop, 0), kBad, "size");
  REFUSED(aclrtMallocPhysical(&out, 4096, &prop, 0), kBad, "size");
  REFUSED(aclrtMallocPhysical(&out, SIZE_MAX / kGranule * kGranule, &prop, 0),
          ACL_ERROR_RT_MEMORY_ALLOCATION, "");
  REFUSED(aclrtMallocPhysical(&out, kGranule, nullptr, 0), kBad, "prop is null");
  REFUSED(aclrtMallocPhysical(&out, kGranule, &host, 0), kBad, "prop");
  REFUSED(aclrtMallocPhysical(&out, kGranule, &far, 0), kNoDevice, "prop");
  REFUSED(aclrtMallocPhysical(&out, kGranule, &odd, 0), kBad, "prop");
  REFUSED(aclrtMallocPhysical(&out, kGranule, &prop, 1), kBad, "flags");
  REFUSED(aclrtMapMem(nullptr, kGranule, 0, kInvented, 0), kBad, "virPtr is null");
  REFUSED(aclrtUnmapMem(nullptr), kBad, "virPtr is null");
  REFUSED(aclrtUnmapMem(&from), kBad, "virPtr");
  REFUSED(aclrtMemGetAllocationGranularity(nullptr, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, &size),
          kBad, "prop is null");
  REFUSED(aclrtMemGetAllocationGranularity(&copy, ACL_RT_MEM_ALLOC_GRANULARITY_UNDEF, &size), kBad,
          "option");
  REFUSED(aclrtMemGetAllocationGranularity(&copy, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, nullptr),
          kBad, "granularity is null");

  constexpr std::uint32_t kBoth = ACL_HOST_REG_MAPPED | ACL_HOST_REG_PINNED;
  REFUSED(aclrtMemGetAddressRange(nullptr, &out, &size), kBad, "ptr is null");
  REFUSED(aclrtMemGetAddressRange(to, nullptr, &size), kBad, "pbase is null");
  REFUSED(aclrtMemGetAddressRange(to, &out, nullptr), kBad, "psize is null");
  REFUSED(aclrtMemGetAddressRange(to, &out, &size), kBad, "ptr lies");
  REFUSED(aclrtHostRegisterV2(nullptr, 8, kBoth), kBad, "ptr is null");
  REFUSED(aclrtHostRegisterV2(to, 0, kBoth), kBad, "size is 0");
  REFUSED(aclrtHostRegisterV2(to, SIZE_MAX, kBoth), kBad, "size");
  REFUSED(aclrtHostRegisterV2(to, 8, 0), kBad, "flag");
  REFUSED(aclrtHostRegisterV2(to, 8, kBoth | 4), kBad, "flag");
  REFUSED(aclrtHostRegister(nullptr, 8, ACL_HOST_REGISTER_MAPPED, &out), kBad, "ptr is null");
  REFUSED(aclrtHostRegister(to, 8, unknown(ACL_HOST_REGISTER_MAPPED), &out), kBad, "type");
  REFUSED(aclrtHostRegister(to, 8, ACL_HOST_REGISTER_MAPPED, nullptr), kBad, "devPtr is null");
  REFUSED(aclrtHostUnregister(nullptr), kBad, "ptr is null");
  REFUSED(aclrtHostUnregister(to), ACL_ERROR_HOST_MEMORY_NOT_REGISTERED, "ptr");
  REFUSED(aclrtHostGetDevicePointer(nullptr, &out, 0), kBad, "pHost is null");
  REFUSED(aclrtHostGetDevicePointer(to, nullptr, 0), kBad, "pDevice is null");
  REFUSED(aclrtHostGetDevicePointer(to, &out, 1), kBad, "flag");
  REFUSED(aclrtHostGetDevicePointer(to, &out, 0), ACL_ERROR_HOST_MEMORY_NOT_REGISTERED, "pHost");
  char key[65] = "0123";
  REFUSED(aclrtIpcMemGetExportKey(nullptr, 8, key, sizeof key, 0), kBad, "devPtr is null");
  REFUSED(aclrtIpcMemGetExportKey(to, 0, key, sizeof key, 0), kBad, "size is 0");
  REFUSED(aclrtIpcMemGetExportKey(to, 8, nullptr, sizeof key, 0), kBad, "key is null");
  REFUSED(aclrtIpcMemGetExportKey(to, 8, key, sizeof key - 1, 0), kBad, "len is 64");
  REFUSED(aclrtIpcMemGetExportKey(to, 8, key, sizeof key, 2), kBad, "flags");
  REFUSED(aclrtIpcMemGetExportKey(to, 8, key, sizeof key, 0), kBad, "devPtr: the 8 bytes");
  REFUSED(aclrtDeviceGetBareTgid(nullptr), kBad, "pid is null");
  REFUSED(aclrtIpcMemSetImportPid(nullptr, &number, 1), kBad, "key is null");
  REFUSED(aclrtIpcMemSetImportPid(key, nullptr, 1), kBad, "pid is null");
  REFUSED(aclrtIpcMemSetImportPid(key, &number, 0), kBad, "num is 0");
  REFUSED(aclrtIpcMemSetImportPid(key, &number, 1), kBad, "key is of no memory");
  REFUSED(aclrtIpcMemImportByKey(nullptr, key, 0), kBad, "devPtr is null");
  REFUSED(aclrtIpcMemImportByKey(&out, nullptr, 0), kBad, "key is null");
  REFUSED(aclrtIpcMemImportByKey(&out, key, 2), kBad, "flags");
  REFUSED(aclrtIpcMemImportByKey(&out, key, 0), kBad, "key is no key");
  REFUSED(aclrtIpcMemClose(nullptr), kBad, "key is null");
  REFUSED(aclrtIpcMemClose(key), kBad, "key is of no memory");

  REFUSED(aclrtMemcpy(nullptr, 8, from, 8, kKind), kBad, "dst is null");
  REFUSED(aclrtMemcpy(to, 8, nullptr, 8, kKind), kBad, "src is null");
  REFUSED(aclrtMemcpy(to, 7, from, 8, kKind), kBad, "count is 8");
  REFUSED(aclrtMemcpy(to, 8, from, 8, unknown(kKind)), kBad, "kind");
  REFUSED(aclrtMemcpyAsync(nullptr, 8, from, 8, kKind, stream_), kBad, "dst is null");
  REFUSED(aclrtMemcpyAsync(to, 8, nullptr, 8, kKind, stream_), kBad, "src is null");
  REFUSED(aclrtMemcpyAsync(to, 7, from, 8, kKind, stream_), kBad, "count");
  REFUSED(aclrtMemcpyAsync(to, 8, from, 8, unknown(kKind), stream_), kBad, "kind");
  REFUSED(aclrtMemset(nullptr, 8, 0, 8), kBad, "devPtr is null");
  REFUSED(aclrtMemset(to, 7, 0, 8), kBad, "count");
  REFUSED(aclrtMemsetAsync(nullptr, 8, 0, 8, stream_), kBad, "devPtr is null");
  REFUSED(aclrtMemsetAsync(to, 7, 0, 8, stream_), kBad, "count");
  REFUSED(aclrtMemcpy2d(nullptr, 2, from, 2, 2, 2, kKind), kBad, "dst is null");
  REFUSED(aclrtMemcpy2d(to, 1, from, 2, 2, 2, kKind), kBad, "dpitch");
  REFUSED(aclrtMemcpy2d(to, 2, nullptr, 2, 2, 2, kKind), kBad, "src is null");
  REFUSED(aclrtMemcpy2d(to, 2, from, 1, 2, 2, kKind), kBad, "spitch");
  REFUSED(aclrtMemcpy2d(to, 2, from, 2, 2, SIZE_MAX, kKind), kBad, "height");
  REFUSED(aclrtMemcpy2d(to, 2, from, 2, 2, 2, unknown(kKind)), kBad, "kind");
  REFUSED(aclrtMemcpy2dAsync(nullptr, 2, from, 2, 2, 2, kKind, stream_), kBad, "dst is null");

  REFUSED(aclrtCreateStream(nullptr), kBad, "stream is null");
  REFUSED(aclrtCreateStreamWithConfig(nullptr, 0, 0), kBad, "stream is null");
  REFUSED(aclrtCreateStreamWithConfig(&out, 8, 0), kBad, "priority");
  REFUSED(aclrtCreateStreamWithConfig(&out, 0, 0x40), kBad, "flag");
  REFUSED(aclrtSynchronizeStreamWithTimeout(stream_, -2), kBad, "timeout");
  REFUSED(aclrtStreamQuery(stream_, nullptr), kBad, "status is null");
  REFUSED(aclrtSetStreamFailureMode(stream_, 2), kBad, "mode 2");
  REFUSED(aclrtLaunchHostFunc(stream_, nullptr, nullptr), kBad, "fn is null");
  REFUSED(aclrtStreamGetId(stream_, nullptr), kBad, "streamId is null");
  REFUSED(aclrtSetStreamAttribute(stream_, unknown(ACL_STREAM_ATTR_FAILURE_MODE), &attribute), kBad,
          "stmAttrType");
  REFUSED(aclrtSetStreamAttribute(stream_, ACL_STREAM_ATTR_FAILURE_MODE, nullptr), kBad,
          "value is null");
  REFUSED(aclrtSetStreamAttribute(stream_, ACL_STREAM_ATTR_FAILURE_MODE, &attribute), kBad,
          "mode 2");
  REFUSED(aclrtValueWrite(nullptr, 1, 0, stream_), kBad, "devAddr is null");
  REFUSED(aclrtValueWrite(&words[0].bytes[4], 1, 0, stream_), kBad, "devAddr is not a multiple");
  REFUSED(aclrtValueWrite(words, 1, 1, stream_), kBad, "flag");
  REFUSED(aclrtValueWait(nullptr, 1, 0, stream_), kBad, "devAddr is null");
  REFUSED(aclrtValueWait(&words[0].bytes[4], 1, 0, stream_), kBad, "devAddr is not a multiple");
  REFUSED(aclrtValueWait(words, 1, 4, stream_), kBad, "flag 4");

  REFUSED(aclrtCreateEvent(nullptr), kBad, "event is null");
  REFUSED(aclrtCreateEventWithFlag(nullptr, 1), kBad, "event is null");
  REFUSED(aclrtCreateEventWithFlag(&out, 0), kBad, "flag");
  REFUSED(aclrtCreateEventWithFlag(&out, 0x80), kBad, "flag");
  REFUSED(aclrtCreateEventWithFlag(&out, ACL_EVENT_IPC), ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "flag");
  REFUSED(aclrtCreateEventExWithFlag(nullptr, 1), kBad, "event is null");
  REFUSED(aclrtStreamWaitEvent(stream_, untimed), kBad, "event");
  REFUSED(aclrtResetEvent(untimed, stream_), kBad, "event");
  REFUSED(aclrtQueryEventStatus(event_, nullptr), kBad, "status is null");
  REFUSED(aclrtQueryEvent(event_, nullptr), kBad, "status is null");
  REFUSED(aclrtSynchronizeEvent(event_), kBad, "event was not recorded");
  REFUSED(aclrtSynchronizeEventWithTimeout(event_, -2), kBad, "timeout");
  REFUSED(aclrtEventElapsedTime(nullptr, event_, event_), kBad, "ms is null");
  REFUSED(aclrtEventElapsedTime(&ms, untimed, timed), kBad, "startEvent");
  REFUSED(aclrtEventElapsedTime(&ms, timed, timed), ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
          "startEvent");

  REFUSED(aclrtSubscribeReport(0, stream_), kBad, "threadId");
  REFUSED(aclrtUnSubscribeReport(0, stream_), kBad, "threadId");
  REFUSED(aclrtUnSubscribeReport(5, stream_), ACL_ERROR_RT_THREAD_SUBSCRIBE, "threadId");
  REFUSED(aclrtLaunchCallback(nullptr, &to, ACL_CALLBACK_BLOCK, stream_), kBad, "fn is null");
  REFUSED(aclrtLaunchCallback(add_one, &to, unknown(ACL_CALLBACK_BLOCK), stream_), kBad,
          "blockType");
  REFUSED(aclrtLaunchCallback(add_one, &to, ACL_CALLBACK_BLOCK, stream_),
          ACL_ERROR_RT_STREAM_NO_CB_REG, "stream");
  REFUSED(aclrtProcessReport(-2), kBad, "timeout");
  REFUSED(aclrtProcessReport(0), ACL_ERROR_RT_THREAD_SUBSCRIBE, "");

  REFUSED(aclrtSetDeviceResLimit(beyond, ACL_RT_DEV_RES_CUBE_CORE, 1), kNoDevice, "deviceId");
  REFUSED(aclrtSetDeviceResLimit(0, unknown(ACL_RT_DEV_RES_CUBE_CORE), 1), kBad, "type");
  REFUSED(aclrtSetStreamResLimit(stream_, unknown(ACL_RT_DEV_RES_CUBE_CORE), 1), kBad, "type");
  REFUSED(aclrtSetStreamOverflowSwitch(stream_, 2), kBad, "flag is 2");
  REFUSED(aclrtSetOpExecuteTimeOutV2(1, nullptr), kBad, "actualTimeout is null");
  EXPECT_EQ(aclrtPeekAtLastError(unknown(ACL_RT_THREAD_LEVEL)), kBad);
  OK(aclrtDestroyEvent(untimed));
  OK(aclrtDestroyEvent(timed));
  EXPECT_EQ(out, nullptr);
}

// Calls for a device's operators return "not supported", also for the default stream.
TEST_F(Acl, RefusesSettingsOfOperators) {
  constexpr aclError kNone = ACL_ERROR_RT_FEATURE_NOT_SUPPORT;
  aclrtStreamAttrValue value{};
  REFUSED(aclrtSetDeviceResLimit(0, ACL_RT_DEV_RES_VECTOR_CORE, 1), kNone, "deviceId");
  for (void* const stream : {stream_, static_cast<void*>(nullptr)}) {
    REFUSED(aclrtSetStreamResLimit(stream, ACL_RT_DEV_RES_CUBE_CORE, 1), kNone, "stream");
    REFUSED(aclrtUseStreamResInCurrentThread(stream), kNone, "stream");
    REFUSED(aclrtUnuseStreamResInCurrentThread(stream), kNone, "stream");
    REFUSED(aclrtSetStreamOverflowSwitch(stream, 1), kNone, "flag is 1");
    OK(aclrtSetStreamOverflowSwitch(stream, 0));
    for (const auto type : {ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK, ACL_STREAM_ATTR_USER_CUSTOM_TAG,
                            ACL_STREAM_ATTR_CACHE_OP_INFO}) {
      REFUSED(aclrtSetStreamAttribute(stream, type, &value), kNone, "stmAttrType");
    }
  }
  std::uint64_t limit = 0;
  OK(aclrtSetOpExecuteTimeOut(1));
  OK(aclrtSetOpExecuteTimeOutV2(1000, &limit));
  EXPECT_EQ(limit, UINT64_MAX);
}

TEST(AclThreads, RefusesWhatNeedsADevice) {
  std::thread([] {
    std::size_t size = 0;
    std::int32_t device = 0;
    aclrtContext context = nullptr;
    REFUSED(aclrtGetDevice(&device), ACL_ERROR_RT_CONTEXT_NULL, "");
    REFUSED(aclrtGetCurrentContext(&context), ACL_ERROR_RT_CONTEXT_NULL, "");
    REFUSED(aclrtGetMemInfo(ACL_HBM_MEM, &size, &size), ACL_ERROR_RT_CONTEXT_NULL, "");
    REFUSED(aclrtSynchronizeDevice(), ACL_ERROR_RT_CONTEXT_NULL, "");
    REFUSED(aclrtResetDevice(11), ACL_ERROR_RT_CONTEXT_NULL, "");
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
