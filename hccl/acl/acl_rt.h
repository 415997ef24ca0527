/* The acl runtime's functions. Valid C99 and C++11.
 *
 * Threads: every function may be called from any thread at any time. Functions may be called before
 * aclInit, and without a device, unless they say otherwise.
 * Errors, for every function: ACL_ERROR_RT_PARAM_INVALID for a null pointer or a value out of
 * range, ACL_ERROR_RT_INVALID_HANDLE for a handle that is none or was destroyed. Further ones are
 * named. A stream of NULL, where allowed, is the default stream: the work is done before the call
 * returns. */
#ifndef ACL_ACL_RT_H_
#define ACL_ACL_RT_H_

#include "acl_base_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ACL_MAJOR_VERSION 1
#define ACL_MINOR_VERSION 15
#define ACL_PATCH_VERSION 0

/* ---- Start and end ---- */

/** configPath: NULL, or a JSON file, which must be readable; nothing in it matters here.
 * ACL_ERROR_REPEAT_INITIALIZE when called again: harmless, and counted. ACL_ERROR_INVALID_FILE. */
aclError aclInit(const char* configPath);
/** Sets the count of aclInit back to 0. Succeeds without aclInit too. */
aclError aclFinalize(void);
/** Subtracts one from the count of aclInit, unless it is zero; *refCount, unless NULL, is the new
 * count.
 */
aclError aclFinalizeReference(uint64_t* refCount);
aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion);

typedef enum { ACL_RT_THREAD_LEVEL = 0 } aclrtLastErrLevel;
/** The code of the calling thread's last failed acl call, or 0. Get also forgets it. */
aclError aclrtPeekAtLastError(aclrtLastErrLevel level);
aclError aclrtGetLastError(aclrtLastErrLevel level);

/* ---- Devices: numbers for the ranks of this host ---- */

typedef enum { ACL_DEVICE = 0, ACL_HOST = 1 } aclrtRunMode;

typedef enum {
  ACL_RT_OVERFLOW_MODE_SATURATION = 0,
  ACL_RT_OVERFLOW_MODE_INFNAN = 1,
  ACL_RT_OVERFLOW_MODE_UNDEF = 2
} aclrtFloatOverflowMode;

/** How many devices there are: HCCL_DEVICE_COUNT, or by default the larger of 16 and the number of
 * cores. A device is a number by which the ranks of a host differ; no core is bound to it, and
 * several ranks may have the same one. */
aclError aclrtGetDeviceCount(uint32_t* count);
/** Makes the device the calling thread's, and one call of aclrtResetDevice more due.
 * ACL_ERROR_RT_INVALID_DEVICEID, here and below. */
aclError aclrtSetDevice(int32_t deviceId);
/** With the last aclrtResetDevice that was due, or the first Force, no thread has this device any
 * more. Streams, events and memory are not touched. ACL_ERROR_RT_CONTEXT_NULL: nothing is due. */
aclError aclrtResetDevice(int32_t deviceId);
aclError aclrtResetDeviceForce(int32_t deviceId);
/** ACL_ERROR_RT_CONTEXT_NULL when the calling thread has no device. */
aclError aclrtGetDevice(int32_t* deviceId);
/** Waits for all streams created by threads that had the calling thread's device then. The first
 * failure of theirs; ACL_ERROR_RT_CONTEXT_NULL. timeout: milliseconds, or -1;
 * ACL_ERROR_RT_STREAM_SYNC_TIMEOUT. */
aclError aclrtSynchronizeDevice(void);
aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout);
aclError aclrtGetRunMode(aclrtRunMode* runMode);
/** Kept and given back; arithmetic is always IEEE's. */
aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode);
aclError aclrtGetDeviceSatMode(aclrtFloatOverflowMode* mode);
/** Every device reaches every other's memory. */
aclError aclrtDeviceCanAccessPeer(int32_t* canAccessPeer, int32_t deviceId, int32_t peerDeviceId);
aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags);
aclError aclrtDeviceDisablePeerAccess(int32_t peerDeviceId);

/** A context is a device that a thread can be given. aclrtSetDevice makes a default one for each
 * device, which ends with the last aclrtResetDevice. Create makes the new one the thread's. */
aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId);
/** Default contexts cannot be destroyed: ACL_ERROR_RT_PARAM_INVALID. */
aclError aclrtDestroyContext(aclrtContext context);
aclError aclrtSetCurrentContext(aclrtContext context);
/** ACL_ERROR_RT_CONTEXT_NULL when the calling thread has none. */
aclError aclrtGetCurrentContext(aclrtContext* context);

/* ---- Memory ---- */

typedef enum {
  ACL_MEM_MALLOC_HUGE_FIRST = 0,
  ACL_MEM_MALLOC_HUGE_ONLY = 1,
  ACL_MEM_MALLOC_NORMAL_ONLY = 2,
  ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3,
  ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4,
  ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5,
  ACL_MEM_MALLOC_HUGE1G_ONLY = 6,
  ACL_MEM_MALLOC_HUGE1G_ONLY_P2P = 7,
  ACL_MEM_TYPE_LOW_BAND_WIDTH = 0x0100,
  ACL_MEM_TYPE_HIGH_BAND_WIDTH = 0x1000,
  ACL_MEM_ACCESS_USER_SPACE_READONLY = 0x100000
} aclrtMemMallocPolicy;

typedef enum {
  ACL_DDR_MEM = 0,
  ACL_HBM_MEM = 1,
  ACL_DDR_MEM_HUGE = 2,
  ACL_DDR_MEM_NORMAL = 3,
  ACL_HBM_MEM_HUGE = 4,
  ACL_HBM_MEM_NORMAL = 5,
  ACL_DDR_MEM_P2P_HUGE = 6,
  ACL_DDR_MEM_P2P_NORMAL = 7,
  ACL_HBM_MEM_P2P_HUGE = 8,
  ACL_HBM_MEM_P2P_NORMAL = 9,
  ACL_HBM_MEM_HUGE1G = 10,
  ACL_HBM_MEM_P2P_HUGE1G = 11,
  ACL_MEM_NORMAL = 12,
  ACL_MEM_HUGE = 13,
  ACL_MEM_HUGE1G = 14,
  ACL_MEM_P2P_NORMAL = 15,
  ACL_MEM_P2P_HUGE = 16,
  ACL_MEM_P2P_HUGE1G = 17
} aclrtMemAttr;

/** Device memory: operations between ranks of one host read and write it in place, with no copy.
 * 64-byte aligned, contents undefined; size rounded up to 32, and 32 bytes more, may be used. Every
 * policy is served alike. ACL_ERROR_RT_MEMORY_ALLOCATION when there is no more. */
aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
/** The same; without the 32 bytes more for Align32. */
aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
aclError aclrtMallocCached(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
/** Frees memory of these three functions. NULL, any other address, and a second call are
 * ACL_ERROR_RT_PARAM_INVALID. Does not wait for work that uses it. */
aclError aclrtFree(void* devPtr);
/** Private memory of this process, 64-byte aligned. */
aclError aclrtMallocHost(void** hostPtr, size_t size);
aclError aclrtFreeHost(void* hostPtr);
/** Device memory of this process in bytes: HCCL_DEVICE_MEMORY in all, and the free part of it. Both
 * 0 for 1 GB pages, which there are none of. ACL_ERROR_RT_CONTEXT_NULL without a device. */
aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total);

/* ---- Physical memory, mapped where the program wants it ---- */

typedef void* aclrtDrvMemHandle;

typedef enum { ACL_MEM_HANDLE_TYPE_NONE = 0, ACL_MEM_HANDLE_TYPE_POSIX = 2 } aclrtMemHandleType;
typedef enum { ACL_MEM_ALLOCATION_TYPE_PINNED = 0 } aclrtMemAllocationType;
typedef enum {
  ACL_MEM_LOCATION_TYPE_HOST = 0,
  ACL_MEM_LOCATION_TYPE_DEVICE = 1,
  ACL_MEM_LOCATION_TYPE_UNREGISTERED = 2,
  ACL_MEM_LOCATION_TYPE_MANAGED = 3,
  ACL_MEM_LOCATION_TYPE_HOST_NUMA = 4
} aclrtMemLocationType;

typedef struct aclrtMemLocation {
  uint32_t id;
  aclrtMemLocationType type;
} aclrtMemLocation;

typedef struct aclrtPhysicalMemProp {
  aclrtMemHandleType handleType;
  aclrtMemAllocationType allocationType;
  aclrtMemAttr memAttr;
  aclrtMemLocation location;
  uint64_t reserve;
} aclrtPhysicalMemProp;

typedef enum {
  ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
  ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1,
  ACL_RT_MEM_ALLOC_GRANULARITY_UNDEF = 0xFFFF
} aclrtMemGranularityOptions;

/** Addresses with nothing behind them, a multiple of 2 MiB and aligned to it. alignment must be 0,
 * expectPtr NULL, flags 0 or 1 (large pages). */
aclError aclrtReserveMemAddress(void** virPtr, size_t size, size_t alignment, void* expectPtr,
                                uint64_t flags);
/** ACL_ERROR_RT_PARAM_INVALID also while something is mapped in it. */
aclError aclrtReleaseMemAddress(void* virPtr);
/** size: a multiple of the granularity. flags must be 0, the memory on a device.
 * ACL_ERROR_RT_MEMORY_ALLOCATION. */
aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t size,
                             const aclrtPhysicalMemProp* prop, uint64_t flags);
/** The handle ends now, the memory when nothing maps it any more. */
aclError aclrtFreePhysical(aclrtDrvMemHandle handle);
/** Puts the memory at virPtr, anywhere in a reservation on a page of the processor where nothing is
 * mapped yet. size: all of the memory. offset and flags must be 0. */
aclError aclrtMapMem(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle,
                     uint64_t flags);
/** virPtr: as it was given to aclrtMapMem. The addresses stay reserved. */
aclError aclrtUnmapMem(void* virPtr);
/** 2 MiB. */
aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp* prop,
                                          aclrtMemGranularityOptions option, size_t* granularity);

/* ---- Copies ---- */

typedef enum {
  ACL_MEMCPY_HOST_TO_HOST = 0,
  ACL_MEMCPY_HOST_TO_DEVICE = 1,
  ACL_MEMCPY_DEVICE_TO_HOST = 2,
  ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
  ACL_MEMCPY_DEFAULT = 4,
  ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE = 5,
  ACL_MEMCPY_INNER_DEVICE_TO_DEVICE = 6,
  ACL_MEMCPY_INTER_DEVICE_TO_DEVICE = 7
} aclrtMemcpyKind;

/** Copies count bytes, or sets them, now or in the stream's order. count > destMax is
 * ACL_ERROR_RT_PARAM_INVALID; 0 bytes are allowed. Memory of any kind, whatever `kind` says; the
 * two parts may overlap. Memory given to an Async call must stay until the stream has done it. */
aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                     aclrtMemcpyKind kind);
aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count,
                          aclrtMemcpyKind kind, aclrtStream stream);
aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count);
aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count,
                          aclrtStream stream);
/** height rows of width bytes, each dpitch or spitch (at least width) behind the one before. */
aclError aclrtMemcpy2d(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                       size_t height, aclrtMemcpyKind kind);
aclError aclrtMemcpy2dAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                            size_t height, aclrtMemcpyKind kind, aclrtStream stream);

/* ---- Streams ---- */

#define ACL_STREAM_FAST_LAUNCH 0x00000001U
#define ACL_STREAM_FAST_SYNC 0x00000002U
#define ACL_STREAM_PERSISTENT 0x00000004U
#define ACL_STREAM_HUGE 0x00000008U
#define ACL_STREAM_CPU_SCHEDULE 0x00000010U
#define ACL_STREAM_DEVICE_USE_ONLY 0x00000020U

#define ACL_CONTINUE_ON_FAILURE 0x00000000U
#define ACL_STOP_ON_FAILURE 0x00000001U

typedef enum {
  ACL_STREAM_STATUS_COMPLETE = 0,
  ACL_STREAM_STATUS_NOT_READY = 1,
  ACL_STREAM_STATUS_RESERVED = 0xFFFF
} aclrtStreamStatus;

/** A stream runs its tasks in order, one at a time, on a thread of its own. */
aclError aclrtCreateStream(aclrtStream* stream);
/** priority: 0 to 7, and any of the ACL_STREAM_ flags; all streams are alike here. */
aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag);
/** Waits for the tasks in the stream.
 * ACL_ERROR_RT_STREAM_CONTEXT: called by a task of the stream. */
aclError aclrtDestroyStream(aclrtStream stream);
/** Drops the tasks that the stream has not begun, and ends its wait for an event. */
aclError aclrtDestroyStreamForce(aclrtStream stream);
/** Returns when everything that was in the stream is done, with the first failure since the last
 * call; the caller runs the tasks that the stream's thread has not begun.
 * ACL_ERROR_RT_STREAM_CONTEXT: called by a task of the stream. */
aclError aclrtSynchronizeStream(aclrtStream stream);
/** timeout: milliseconds, or -1. ACL_ERROR_RT_STREAM_SYNC_TIMEOUT: not done yet. */
aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout);
aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status);
/** ACL_STOP_ON_FAILURE: the tasks behind a failed task do not run until the next call of
 * aclrtSynchronizeStream has returned the failure. Once for a stream. */
aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode);

/* ---- Events ---- */

#define ACL_EVENT_SYNC 0x00000001U
#define ACL_EVENT_CAPTURE_STREAM_PROGRESS 0x00000002U
#define ACL_EVENT_TIME_LINE 0x00000008U
#define ACL_EVENT_DEVICE_USE_ONLY 0x00000010U
#define ACL_EVENT_EXTERNAL 0x00000020U
#define ACL_EVENT_IPC 0x00000040U

typedef enum {
  ACL_EVENT_STATUS_COMPLETE = 0,
  ACL_EVENT_STATUS_NOT_READY = 1,
  ACL_EVENT_STATUS_RESERVED = 2
} aclrtEventStatus;
typedef enum {
  ACL_EVENT_RECORDED_STATUS_NOT_READY = 0,
  ACL_EVENT_RECORDED_STATUS_COMPLETE = 1
} aclrtEventRecordedStatus;

/** An event for waiting and for timing, that cannot be reset. */
aclError aclrtCreateEvent(aclrtEvent* event);
/** Only ACL_EVENT_SYNC allows waiting and reset, only ACL_EVENT_TIME_LINE timing; other uses are
 * ACL_ERROR_RT_PARAM_INVALID. ACL_EVENT_IPC is ACL_ERROR_RT_FEATURE_NOT_SUPPORT. */
aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag);
aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag);
/** Does not block. A stream that waits for a record that can no longer come fails instead. */
aclError aclrtDestroyEvent(aclrtEvent event);
/** The event is complete when all that is in the stream now is done. */
aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);
/** Later tasks of the stream wait for the last record before this call, or, where there was none
 * since the last reset, for the next one, from whatever stream and thread it comes. With the
 * default stream the caller itself waits. Fails if the work before the record failed.
 */
aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);
/** Back to not recorded; records that streams wait for already still count for these. */
aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream);
aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status);
aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus* status);
/** Returns when the last record is complete. ACL_ERROR_RT_PARAM_INVALID: there is none. timeout:
 * milliseconds, or -1; ACL_ERROR_RT_EVENT_SYNC_TIMEOUT. */
aclError aclrtSynchronizeEvent(aclrtEvent event);
aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout);
/** Milliseconds between two records. ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID: not recorded;
 * ACL_ERROR_RT_EVENT_NOT_COMPLETE; ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL: end is before start. */
aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent);

/* ---- Functions of the program, in a stream's order ---- */

typedef void (*aclrtCallback)(void* userData);
typedef void (*aclrtHostFunc)(void* args);
typedef enum { ACL_CALLBACK_NO_BLOCK = 0, ACL_CALLBACK_BLOCK = 1 } aclrtCallbackBlockType;

/** The stream calls fn, on its own thread or on one that synchronizes. fn must not wait for the
 * stream. */
aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void* args);
/** The thread that calls the functions of aclrtLaunchCallback for this stream, from inside
 * aclrtProcessReport: threadId is its pthread_self(). ACL_ERROR_RT_STREAM_SUBSCRIBE: the stream has
 * one. */
aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream);
/** Functions that wait to be called are dropped. ACL_ERROR_RT_THREAD_SUBSCRIBE: not subscribed. */
aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream);
/** With ACL_CALLBACK_BLOCK the stream goes on when fn has returned. ACL_ERROR_RT_STREAM_NO_CB_REG:
 * no thread has subscribed. */
aclError aclrtLaunchCallback(aclrtCallback fn, void* userData, aclrtCallbackBlockType blockType,
                             aclrtStream stream);
/** Runs the queued callbacks on the calling thread. timeout: milliseconds to wait for it, or -1.
 * ACL_ERROR_RT_REPORT_TIMEOUT: nothing came; ACL_ERROR_RT_THREAD_SUBSCRIBE: not subscribed. */
aclError aclrtProcessReport(int32_t timeout);

#ifdef __cplusplus
}
#endif

#endif /* ACL_ACL_RT_H_ */
