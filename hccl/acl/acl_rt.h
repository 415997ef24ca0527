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
#include "acl_rt_memory.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ACL_MAJOR_VERSION 1
#define ACL_MINOR_VERSION 15
#define ACL_PATCH_VERSION 0

/* ---- Start and end ---- */

/** configPath: NULL or a readable JSON file; its content has no effect here. Another path fails
 * with ACL_ERROR_INVALID_FILE. A second call is counted, does no harm and returns
 * ACL_ERROR_REPEAT_INITIALIZE. */
aclError aclInit(const char* configPath);
/** Sets the count of aclInit to 0. Succeeds without aclInit, too. */
aclError aclFinalize(void);
/** Subtracts one from the count of aclInit, unless it is zero. If refCount is not NULL, *refCount
 * becomes the new count. */
aclError aclFinalizeReference(uint64_t* refCount);
aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion);

typedef enum { ACL_RT_THREAD_LEVEL = 0 } aclrtLastErrLevel;
/** Return the code of the calling thread's last failed acl call, or 0. Get also sets the code to 0.
 * */
aclError aclrtPeekAtLastError(aclrtLastErrLevel level);
aclError aclrtGetLastError(aclrtLastErrLevel level);

/* ---- Devices: numbers for the ranks of this host ---- */

typedef enum { ACL_DEVICE = 0, ACL_HOST = 1 } aclrtRunMode;

typedef enum {
  ACL_RT_OVERFLOW_MODE_SATURATION = 0,
  ACL_RT_OVERFLOW_MODE_INFNAN = 1,
  ACL_RT_OVERFLOW_MODE_UNDEF = 2
} aclrtFloatOverflowMode;

/** Returns the number of devices: HCCL_DEVICE_COUNT, by default the larger of 16 and the number of
 * cores. A device is a number that tells the ranks of a host apart. No core is bound to a device,
 * and several ranks may have the same device. */
aclError aclrtGetDeviceCount(uint32_t* count);
/** Gives the calling thread this device. Each call requires one more call of aclrtResetDevice.
 * Functions with a deviceId fail with ACL_ERROR_RT_INVALID_DEVICEID if the device does not exist.
 */
aclError aclrtSetDevice(int32_t deviceId);
/** After as many calls of aclrtResetDevice as of aclrtSetDevice, or one call of
 * aclrtResetDeviceForce, no thread has the device any more. Streams, events and memory stay. Fails
 * with ACL_ERROR_RT_CONTEXT_NULL if the device was not set. */
aclError aclrtResetDevice(int32_t deviceId);
aclError aclrtResetDeviceForce(int32_t deviceId);
/** ACL_ERROR_RT_CONTEXT_NULL if the calling thread has no device. */
aclError aclrtGetDevice(int32_t* deviceId);
/** Waits for all streams that threads with the calling thread's device have created. Returns the
 * first failure of these streams. Fails with ACL_ERROR_RT_CONTEXT_NULL if the thread has no device.
 * timeout: milliseconds, or -1 for no limit. Returns ACL_ERROR_RT_STREAM_SYNC_TIMEOUT if a stream
 * is not done by then. */
aclError aclrtSynchronizeDevice(void);
aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout);
aclError aclrtGetRunMode(aclrtRunMode* runMode);
/** Set stores the mode and Get returns it. Arithmetic always follows IEEE 754. */
aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode);
aclError aclrtGetDeviceSatMode(aclrtFloatOverflowMode* mode);
/** Sets *canAccessPeer to 1: every device reaches the memory of every other device. */
aclError aclrtDeviceCanAccessPeer(int32_t* canAccessPeer, int32_t deviceId, int32_t peerDeviceId);
aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags);
aclError aclrtDeviceDisablePeerAccess(int32_t peerDeviceId);

typedef enum { ACL_RT_DEV_RES_CUBE_CORE = 0, ACL_RT_DEV_RES_VECTOR_CORE = 1 } aclrtDevResLimitType;
/** These four functions check their arguments and then return ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
 * because a device has no such cores here. */
aclError aclrtSetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t value);
aclError aclrtSetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t value);
aclError aclrtUseStreamResInCurrentThread(aclrtStream stream);
aclError aclrtUnuseStreamResInCurrentThread(aclrtStream stream);
/** Limit the time of operators, in seconds or (V2) microseconds. This has no effect, because no
 * operator of a device runs here: *actualTimeout becomes UINT64_MAX, which means no limit. */
aclError aclrtSetOpExecuteTimeOut(uint32_t timeout);
aclError aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t* actualTimeout);

/** A context gives a device to a thread. aclrtSetDevice makes a default context for each device;
 * the last aclrtResetDevice ends that context. aclrtCreateContext makes the new context the calling
 * thread's context. */
aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId);
/** Fails with ACL_ERROR_RT_PARAM_INVALID for a default context, which cannot be destroyed. */
aclError aclrtDestroyContext(aclrtContext context);
aclError aclrtSetCurrentContext(aclrtContext context);
/** ACL_ERROR_RT_CONTEXT_NULL if the calling thread has no context. */
aclError aclrtGetCurrentContext(aclrtContext* context);

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
/** Waits for the tasks in the stream. Fails with ACL_ERROR_RT_STREAM_CONTEXT if a task of the
 * stream calls it. */
aclError aclrtDestroyStream(aclrtStream stream);
/** Drops the tasks that the stream has not begun, and ends the wait of a running task for an event,
 * a value (aclrtValueWait) or a callback. */
aclError aclrtDestroyStreamForce(aclrtStream stream);
/** Waits for the tasks that are in the stream now, and returns the first failure since the last
 * call. The caller runs the tasks that the stream's thread has not begun. Fails with
 * ACL_ERROR_RT_STREAM_CONTEXT if a task of the stream calls it. */
aclError aclrtSynchronizeStream(aclrtStream stream);
/** timeout: milliseconds, or -1 for no limit. Returns ACL_ERROR_RT_STREAM_SYNC_TIMEOUT if tasks are
 * not done by then. */
aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout);
aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status);
/** ACL_STOP_ON_FAILURE: the tasks behind a failed task do not run until the next call of
 * aclrtSynchronizeStream has returned the failure. The mode can be set once for a stream. */
aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode);

typedef enum {
  ACL_STREAM_ATTR_FAILURE_MODE = 1,
  ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK = 2,
  ACL_STREAM_ATTR_USER_CUSTOM_TAG = 3,
  ACL_STREAM_ATTR_CACHE_OP_INFO = 4
} aclrtStreamAttr;

typedef union {
  uint64_t failureMode;
  uint32_t overflowSwitch;
  uint32_t userCustomTag;
  uint32_t cacheOpInfoSwitch;
  uint32_t reserve[4];
} aclrtStreamAttrValue;

/** ACL_STREAM_ATTR_FAILURE_MODE works as aclrtSetStreamFailureMode. The other attributes are for a
 * device's operators, and fail with ACL_ERROR_RT_FEATURE_NOT_SUPPORT. */
aclError aclrtSetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType,
                                 aclrtStreamAttrValue* value);
/** flag: 0 has no effect; 1 fails with ACL_ERROR_RT_FEATURE_NOT_SUPPORT, because overflows are not
 * detected. stream may be NULL. */
aclError aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag);
/** Gets a number that no other stream of this process has. stream may be NULL; its number is 0. */
aclError aclrtStreamGetId(aclrtStream stream, int32_t* streamId);

/* ---- Numbers in memory, in a stream's order ---- */

#define ACL_STREAM_WAIT_VALUE_GEQ 0x00000000U /* (int64_t)(*devAddr - value) >= 0 */
#define ACL_STREAM_WAIT_VALUE_EQ 0x00000001U  /* *devAddr == value */
#define ACL_STREAM_WAIT_VALUE_AND 0x00000002U /* (*devAddr & value) != 0 */
#define ACL_STREAM_WAIT_VALUE_NOR 0x00000003U /* ~(*devAddr | value) != 0 */

/** Stores 8 bytes at devAddr, which must be a multiple of 8. A reader that sees the value also sees
 * what the stream did before. flag must be 0. stream may be NULL. */
aclError aclrtValueWrite(void* devAddr, uint64_t value, uint32_t flag, aclrtStream stream);
/** Waits until the 8 bytes at devAddr, which must be a multiple of 8, fulfil the condition of flag.
 * Any thread or process may write the bytes, by any means. Only aclrtDestroyStreamForce ends the
 * wait early. stream may be NULL. */
aclError aclrtValueWait(void* devAddr, uint64_t value, uint32_t flag, aclrtStream stream);

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

/** Creates an event that serves for waiting and for timing, and that cannot be reset. */
aclError aclrtCreateEvent(aclrtEvent* event);
/** Waiting and reset need ACL_EVENT_SYNC, timing needs ACL_EVENT_TIME_LINE; a use without its flag
 * fails with ACL_ERROR_RT_PARAM_INVALID. ACL_EVENT_IPC fails with ACL_ERROR_RT_FEATURE_NOT_SUPPORT.
 * */
aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag);
aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag);
/** Does not block. If a stream still waits for a record that was never issued, that wait fails. */
aclError aclrtDestroyEvent(aclrtEvent event);
/** Puts a record into the stream. The event is complete when the tasks that are in the stream now
 * are done. */
aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);
/** Later tasks of the stream wait for the last record before this call. If the event has no record
 * since its last reset, they wait for the next record, from any stream and thread. With the default
 * stream the caller itself waits. The wait fails if the recording stream skipped the record: after
 * a failure (ACL_STOP_ON_FAILURE) or in aclrtDestroyStreamForce. */
aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);
/** Limits the waits of later calls of aclrtStreamWaitEvent in this process. timeout: seconds, or 0
 * (the default) for no limit. A wait that lasts longer fails with ACL_ERROR_RT_WAIT_TIMEOUT, which
 * aclrtSynchronizeStream returns. */
aclError aclrtSetOpWaitTimeout(uint32_t timeout);
/** Makes the event unrecorded. Streams that already wait for a record still wait for that
 * record. */
aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream);
aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status);
aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus* status);
/** ACL_EVENT_WAIT_STATUS_COMPLETE means that the last record is complete, and no stream still waits
 * for the event. */
aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus* status);
/** Wait until the last record is complete. Without a record, fail with ACL_ERROR_RT_PARAM_INVALID.
 * timeout: milliseconds, or -1 for no limit. Returns ACL_ERROR_RT_EVENT_SYNC_TIMEOUT if the record
 * is not complete by then. */
aclError aclrtSynchronizeEvent(aclrtEvent event);
aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout);
/** Gets the milliseconds between two records. Fails with ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID if an
 * event is not recorded, ACL_ERROR_RT_EVENT_NOT_COMPLETE if one is not complete, and
 * ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL if the end is before the start. */
aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent);

/* ---- Functions of the program, in a stream's order ---- */

typedef void (*aclrtCallback)(void* userData);
typedef void (*aclrtHostFunc)(void* args);
typedef enum { ACL_CALLBACK_NO_BLOCK = 0, ACL_CALLBACK_BLOCK = 1 } aclrtCallbackBlockType;

/** Calls fn in the stream's order, on the stream's own thread or on a thread that synchronizes the
 * stream. fn must not wait for the stream. */
aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void* args);
/** Sets the thread that calls the functions of aclrtLaunchCallback for this stream, inside
 * aclrtProcessReport. threadId: the pthread_self() of that thread. Fails with
 * ACL_ERROR_RT_STREAM_SUBSCRIBE if the stream has a thread already. */
aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream);
/** Ends a subscription and drops the stream's functions that wait to be called. Fails with
 * ACL_ERROR_RT_THREAD_SUBSCRIBE if the thread has not subscribed to the stream. */
aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream);
/** With ACL_CALLBACK_BLOCK the stream continues only after fn has returned. Fails with
 * ACL_ERROR_RT_STREAM_NO_CB_REG if no thread has subscribed to the stream. */
aclError aclrtLaunchCallback(aclrtCallback fn, void* userData, aclrtCallbackBlockType blockType,
                             aclrtStream stream);
/** Runs the queued callbacks on the calling thread. timeout: milliseconds to wait for a callback,
 * or -1 for no limit. Fails with ACL_ERROR_RT_REPORT_TIMEOUT if no callback came, and with
 * ACL_ERROR_RT_THREAD_SUBSCRIBE if the thread has not subscribed. */
aclError aclrtProcessReport(int32_t timeout);

#ifdef __cplusplus
}
#endif

#endif /* ACL_ACL_RT_H_ */
