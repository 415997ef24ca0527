/* The acl runtime's functions. Valid C99 and C++11.
 *
 * Threads: every function may be called from any thread at any time. Functions may be called before
 * aclInit, and without a device, except where a comment says otherwise.
 * Errors, for every function: ACL_ERROR_RT_PARAM_INVALID for a null pointer or a value out of
 * range, ACL_ERROR_RT_INVALID_HANDLE for an invented or destroyed handle. Comments name further
 * errors. If a stream may be NULL, NULL is the default stream: the work is done before the call
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

/** configPath: NULL or a readable JSON file; its content has no effect here.
 * ACL_ERROR_INVALID_FILE: another path. A second call is counted, does no harm and returns
 * ACL_ERROR_REPEAT_INITIALIZE. */
aclError aclInit(const char* configPath);
/** Sets the count of aclInit to 0. Succeeds without aclInit, too. */
aclError aclFinalize(void);
/** Subtracts one from the count of aclInit, unless it is zero. If refCount is not NULL, *refCount
 * becomes the new count. */
aclError aclFinalizeReference(uint64_t* refCount);
aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion);

typedef enum { ACL_RT_THREAD_LEVEL = 0 } aclrtLastErrLevel;
/** The code of the calling thread's last failed acl call, or 0. Get also sets it to 0. */
aclError aclrtPeekAtLastError(aclrtLastErrLevel level);
aclError aclrtGetLastError(aclrtLastErrLevel level);

/* ---- Devices: numbers for the ranks of this host ---- */

typedef enum { ACL_DEVICE = 0, ACL_HOST = 1 } aclrtRunMode;

typedef enum {
  ACL_RT_OVERFLOW_MODE_SATURATION = 0,
  ACL_RT_OVERFLOW_MODE_INFNAN = 1,
  ACL_RT_OVERFLOW_MODE_UNDEF = 2
} aclrtFloatOverflowMode;

/** The number of devices: HCCL_DEVICE_COUNT, by default the larger of 16 and the number of cores. A
 * device is a number that tells the ranks of a host apart. No core is bound to a device, and
 * several ranks may have the same device. */
aclError aclrtGetDeviceCount(uint32_t* count);
/** Gives the calling thread this device. Each call requires one more call of aclrtResetDevice.
 * ACL_ERROR_RT_INVALID_DEVICEID, here and below. */
aclError aclrtSetDevice(int32_t deviceId);
/** After as many calls of aclrtResetDevice as of aclrtSetDevice, or one Force, the device is no
 * longer the device of any thread. Streams, events and memory stay. ACL_ERROR_RT_CONTEXT_NULL: no
 * call was needed. */
aclError aclrtResetDevice(int32_t deviceId);
aclError aclrtResetDeviceForce(int32_t deviceId);
/** ACL_ERROR_RT_CONTEXT_NULL if the calling thread has no device. */
aclError aclrtGetDevice(int32_t* deviceId);
/** Waits for all streams that threads with the calling thread's device have created. Returns their
 * first failure. ACL_ERROR_RT_CONTEXT_NULL: no device. timeout: milliseconds, or -1;
 * ACL_ERROR_RT_STREAM_SYNC_TIMEOUT. */
aclError aclrtSynchronizeDevice(void);
aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout);
aclError aclrtGetRunMode(aclrtRunMode* runMode);
/** Set stores the mode and Get returns it. Arithmetic always follows IEEE 754. */
aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode);
aclError aclrtGetDeviceSatMode(aclrtFloatOverflowMode* mode);
/** Always possible: every device reaches the memory of every other device. */
aclError aclrtDeviceCanAccessPeer(int32_t* canAccessPeer, int32_t deviceId, int32_t peerDeviceId);
aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags);
aclError aclrtDeviceDisablePeerAccess(int32_t peerDeviceId);

/** A context gives a device to a thread. aclrtSetDevice makes a default context for each device;
 * the last aclrtResetDevice ends it. Create makes the new context the calling thread's context. */
aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId);
/** Default contexts cannot be destroyed: ACL_ERROR_RT_PARAM_INVALID. */
aclError aclrtDestroyContext(aclrtContext context);
aclError aclrtSetCurrentContext(aclrtContext context);
/** ACL_ERROR_RT_CONTEXT_NULL if the calling thread has no context. */
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

/* A child of fork() starts without a device, stream, communicator or memory of its own, and may
 * then use all functions. The child can read the device memory of its parent, also mapped memory.
 * If the child writes to a page, it gets a copy of the page, and the parent does not see the write.
 * On other pages later writes of the parent appear, so copy data that must not change. If a child
 * frees device memory of its parent, nothing happens. In a child of a raw clone() every function
 * fails. */

/** Device memory: operations between ranks of one host read and write it in place, without a copy.
 * 64-byte aligned, contents undefined. The program may use size rounded up to a multiple of 32, and
 * 32 bytes more. All policies have the same effect. ACL_ERROR_RT_MEMORY_ALLOCATION: no memory is
 * left. */
aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
/** As aclrtMalloc. aclrtMallocAlign32 does not add the 32 bytes. */
aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
aclError aclrtMallocCached(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
/** Frees memory of these three functions. ACL_ERROR_RT_PARAM_INVALID for NULL, any other address,
 * and a second call. Does not wait for work that uses the memory. */
aclError aclrtFree(void* devPtr);
/** Private memory of this process, 64-byte aligned. */
aclError aclrtMallocHost(void** hostPtr, size_t size);
aclError aclrtFreeHost(void* hostPtr);
/** Device memory of this process in bytes: HCCL_DEVICE_MEMORY in all, and its free part. Both are 0
 * for pages of 1 GB, which do not exist here. ACL_ERROR_RT_CONTEXT_NULL: no device. */
aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total);

/* ---- Physical memory, mapped at addresses that the program chooses ---- */

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

/** Reserves addresses without memory. size and the result are multiples of 2 MiB. alignment must be
 * 0, expectPtr NULL, flags 0 or 1 (large pages). */
aclError aclrtReserveMemAddress(void** virPtr, size_t size, size_t alignment, void* expectPtr,
                                uint64_t flags);
/** ACL_ERROR_RT_PARAM_INVALID also while memory is mapped in the reservation. */
aclError aclrtReleaseMemAddress(void* virPtr);
/** size: a multiple of the granularity. flags must be 0, and the location a device.
 * ACL_ERROR_RT_MEMORY_ALLOCATION. */
aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t size,
                             const aclrtPhysicalMemProp* prop, uint64_t flags);
/** Invalidates the handle now. The memory is freed when it is no longer mapped. */
aclError aclrtFreePhysical(aclrtDrvMemHandle handle);
/** Maps the memory at virPtr: in a reservation, at the beginning of a page of the processor, where
 * no memory is mapped yet. size: all of the memory. offset and flags must be 0. */
aclError aclrtMapMem(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle,
                     uint64_t flags);
/** virPtr: as in aclrtMapMem. The addresses stay reserved. */
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

/** Copies count bytes, or sets them, at once or in the stream's order. ACL_ERROR_RT_PARAM_INVALID:
 * count > destMax. 0 bytes are allowed. The memory may be of any kind: `kind` has no effect. The
 * two parts may overlap. Memory of an Async call must stay until the stream has done the work. */
aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                     aclrtMemcpyKind kind);
aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count,
                          aclrtMemcpyKind kind, aclrtStream stream);
aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count);
aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count,
                          aclrtStream stream);
/** Copies `height` rows of `width` bytes. Rows begin dpitch or spitch bytes (at least width) after
 * the previous row. */
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
/** priority: 0 to 7. flag: any of the ACL_STREAM_ flags. Neither has an effect here. */
aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag);
/** Waits for the tasks in the stream. ACL_ERROR_RT_STREAM_CONTEXT: the caller is a task of the
 * stream. */
aclError aclrtDestroyStream(aclrtStream stream);
/** Drops the tasks that the stream has not begun, and ends its wait for an event. */
aclError aclrtDestroyStreamForce(aclrtStream stream);
/** Waits for the tasks that are in the stream now, and returns the first failure since the last
 * call. The caller runs the tasks that the stream's thread has not begun.
 * ACL_ERROR_RT_STREAM_CONTEXT: the caller is a task of the stream. */
aclError aclrtSynchronizeStream(aclrtStream stream);
/** timeout: milliseconds, or -1. ACL_ERROR_RT_STREAM_SYNC_TIMEOUT: not done yet. */
aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout);
aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status);
/** ACL_STOP_ON_FAILURE: the tasks behind a failed task do not run until the next call of
 * aclrtSynchronizeStream has returned the failure. May be called once for a stream. */
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
typedef enum {
  ACL_EVENT_WAIT_STATUS_COMPLETE = 0,
  ACL_EVENT_WAIT_STATUS_NOT_READY = 1,
  ACL_EVENT_WAIT_STATUS_RESERVED = 0xFFFF
} aclrtEventWaitStatus;

/** Creates an event for waiting and for timing. It cannot be reset. */
aclError aclrtCreateEvent(aclrtEvent* event);
/** Waiting and reset need ACL_EVENT_SYNC, timing needs ACL_EVENT_TIME_LINE.
 * ACL_ERROR_RT_PARAM_INVALID: a use without its flag. ACL_ERROR_RT_FEATURE_NOT_SUPPORT:
 * ACL_EVENT_IPC. */
aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag);
aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag);
/** Does not block. If a stream waits for a record that can no longer come, its wait fails. */
aclError aclrtDestroyEvent(aclrtEvent event);
/** The event is complete when the tasks that are in the stream now are done. */
aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);
/** Later tasks of the stream wait for the last record before this call. If there was none since the
 * last reset, they wait for the next record, from any stream and thread. With the default stream
 * the caller itself waits. Fails if the work before the record failed. */
aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);
/** Makes the event unrecorded. Streams that already wait for a record still wait for that
 * record. */
aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream);
aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status);
aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus* status);
/** ACL_EVENT_WAIT_STATUS_COMPLETE: the last record is complete, and no stream still waits for the
 * event. */
aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus* status);
/** Waits until the last record is complete. ACL_ERROR_RT_PARAM_INVALID: no record. timeout:
 * milliseconds, or -1; ACL_ERROR_RT_EVENT_SYNC_TIMEOUT. */
aclError aclrtSynchronizeEvent(aclrtEvent event);
aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout);
/** Milliseconds between two records. ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID: not recorded;
 * ACL_ERROR_RT_EVENT_NOT_COMPLETE; ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL: the end is before the
 * start. */
aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent);

/* ---- Functions of the program, in a stream's order ---- */

typedef void (*aclrtCallback)(void* userData);
typedef void (*aclrtHostFunc)(void* args);
typedef enum { ACL_CALLBACK_NO_BLOCK = 0, ACL_CALLBACK_BLOCK = 1 } aclrtCallbackBlockType;

/** The stream calls fn, on its own thread or on a thread that synchronizes it. fn must not wait for
 * the stream. */
aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void* args);
/** Sets the thread that calls the functions of aclrtLaunchCallback for this stream, inside
 * aclrtProcessReport. threadId: its pthread_self(). ACL_ERROR_RT_STREAM_SUBSCRIBE: the stream has a
 * thread already. */
aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream);
/** Drops the functions that wait to be called. ACL_ERROR_RT_THREAD_SUBSCRIBE: not subscribed. */
aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream);
/** With ACL_CALLBACK_BLOCK the stream continues when fn has returned.
 * ACL_ERROR_RT_STREAM_NO_CB_REG: no thread has subscribed. */
aclError aclrtLaunchCallback(aclrtCallback fn, void* userData, aclrtCallbackBlockType blockType,
                             aclrtStream stream);
/** Runs the queued callbacks on the calling thread. timeout: milliseconds to wait for a callback,
 * or -1. ACL_ERROR_RT_REPORT_TIMEOUT: no callback came; ACL_ERROR_RT_THREAD_SUBSCRIBE: not
 * subscribed. */
aclError aclrtProcessReport(int32_t timeout);

#ifdef __cplusplus
}
#endif

#endif /* ACL_ACL_RT_H_ */
