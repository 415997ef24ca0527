/* The acl runtime's functions for memory. This header is a part of acl_rt.h, whose rules for
 * threads and errors hold here, too. Valid C99 and C++11. */
#ifndef ACL_ACL_RT_MEMORY_H_
#define ACL_ACL_RT_MEMORY_H_

#include "acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

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
 * then use all functions. The child can read its parent's device memory and mapped memory. If the
 * child writes to a page, the child gets a copy of the page, and the parent does not see the write.
 * On other pages the child sees later writes of the parent, so it must copy data that must not
 * change. If a child frees device memory of its parent, nothing happens. In a child of a raw
 * clone() every function fails. */

/** Allocates device memory: operations between ranks of one host read and write it in place,
 * without a copy. The memory is 64-byte aligned, its contents are undefined. The program may use
 * size rounded up to a multiple of 32, and 32 bytes more. All policies have the same effect. Fails
 * with ACL_ERROR_RT_MEMORY_ALLOCATION if no memory is left. */
aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
/** As aclrtMalloc. aclrtMallocAlign32 does not add the 32 bytes. */
aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
aclError aclrtMallocCached(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
/** Frees memory of the three functions above. Fails with ACL_ERROR_RT_PARAM_INVALID for NULL, for
 * any other address, and on a second call. Does not wait for work that uses the memory. */
aclError aclrtFree(void* devPtr);
/** Allocates private memory of this process, 64-byte aligned. */
aclError aclrtMallocHost(void** hostPtr, size_t size);
aclError aclrtFreeHost(void* hostPtr);
/** Gets the device memory of this process in bytes: *total is HCCL_DEVICE_MEMORY, *free the part
 * that is not in use. Both are 0 for pages of 1 GB, which do not exist here. Fails with
 * ACL_ERROR_RT_CONTEXT_NULL without a device. */
aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total);

/** Gets the first address, and the size in bytes, of the block that contains ptr. The block comes
 * from aclrtMalloc, aclrtMallocHost or aclrtMapMem. Fails with ACL_ERROR_RT_PARAM_INVALID if no
 * such block contains ptr, for example if ptr is imported memory. For device memory, the call takes
 * longer the more blocks there are. */
aclError aclrtMemGetAddressRange(void* ptr, void** pbase, size_t* psize);

/* ---- Host memory of the program that the device uses ---- */

typedef enum aclrtHostRegisterType { ACL_HOST_REGISTER_MAPPED = 0 } aclrtHostRegisterType;

#define ACL_HOST_REG_MAPPED 0x2UL
#define ACL_HOST_REG_PINNED 0x10000000UL

/** Registers memory of the program. The program still owns the memory, and must not free it before
 * aclrtHostUnregister; aclrtFreeHost unregisters the memory that it frees. Registered memory does
 * not move, is not locked and costs nothing: the device is the processor, so the device's address
 * is the same. flag: ACL_HOST_REG_MAPPED, ACL_HOST_REG_PINNED or both. Fails with
 * ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED if some of the bytes are registered. */
aclError aclrtHostRegisterV2(void* ptr, uint64_t size, uint32_t flag);
/** As aclrtHostRegisterV2 with ACL_HOST_REG_MAPPED; *devPtr is ptr. */
aclError aclrtHostRegister(void* ptr, uint64_t size, aclrtHostRegisterType type, void** devPtr);
/** ptr: the address that was registered. Another address fails with
 * ACL_ERROR_HOST_MEMORY_NOT_REGISTERED. */
aclError aclrtHostUnregister(void* ptr);
/** Gets the device's address of memory that is registered with ACL_HOST_REG_MAPPED: pHost itself,
 * which may lie inside the memory. flag must be 0. Fails with ACL_ERROR_HOST_MEMORY_NOT_REGISTERED.
 * */
aclError aclrtHostGetDevicePointer(void* pHost, void** pDevice, uint32_t flag);

/* ---- Device memory that several processes of a host use ---- */

#define ACL_RT_IPC_MEM_EXPORT_FLAG_DEFAULT 0x0UL
#define ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION 0x1UL
#define ACL_RT_IPC_MEM_IMPORT_FLAG_DEFAULT 0x0UL
#define ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS 0x1UL

/** Gets the process number of this process in its container, for aclrtIpcMemSetImportPid. */
aclError aclrtDeviceGetBareTgid(int32_t* pid);
/** Writes a key of 64 digits and a 0, by which other processes of this host and user map these
 * bytes of one allocation of aclrtMalloc. len: at least 65. Both values of flags have the same
 * effect, because the system decides who can import: processes of the user, and root. All importers
 * must close the key before the memory is freed; the runtime does not check this. */
aclError aclrtIpcMemGetExportKey(void* devPtr, size_t size, char* key, size_t len, uint64_t flags);
/** Only checks its arguments, because the system decides who can import. Fails with
 * ACL_ERROR_RT_PARAM_INVALID if this process has not exported the key. */
aclError aclrtIpcMemSetImportPid(const char* key, int32_t* pid, size_t num);
/** Maps the memory of a key. All processes read and write the same bytes; in the exporting process
 * *devPtr is the address of the exported bytes themselves. Operations of ranks accept the memory,
 * but copy its data. A forked child must import again. Both values of flags have the same effect.
 * Fails with ACL_ERROR_RT_PARAM_INVALID if key is not a key, or if the exporting process has ended,
 * or is on another host, in another container or of another user. */
aclError aclrtIpcMemImportByKey(void** devPtr, const char* key, uint64_t flags);
/** Takes back one call of aclrtIpcMemImportByKey in this process or, if there is none, one call of
 * aclrtIpcMemGetExportKey. After the last import is closed the program must not use the address. */
aclError aclrtIpcMemClose(const char* key);

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

/** Reserves addresses without memory. size is rounded up to a multiple of 2 MiB; the result is
 * aligned to 2 MiB. alignment must be 0, expectPtr NULL, flags 0 or 1 (large pages). */
aclError aclrtReserveMemAddress(void** virPtr, size_t size, size_t alignment, void* expectPtr,
                                uint64_t flags);
/** Also fails with ACL_ERROR_RT_PARAM_INVALID while memory is mapped in the reservation. */
aclError aclrtReleaseMemAddress(void* virPtr);
/** size: a multiple of the granularity. flags must be 0, and the location a device. Fails with
 * ACL_ERROR_RT_MEMORY_ALLOCATION if no memory is left. */
aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t size,
                             const aclrtPhysicalMemProp* prop, uint64_t flags);
/** Invalidates the handle now. The memory is freed when it is no longer mapped. */
aclError aclrtFreePhysical(aclrtDrvMemHandle handle);
/** Maps the memory at virPtr. virPtr must lie in a reservation, at the beginning of a page of the
 * processor, where no memory is mapped yet. size: all of the memory. offset and flags must be 0. */
aclError aclrtMapMem(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle,
                     uint64_t flags);
/** virPtr: as in aclrtMapMem. The addresses stay reserved. */
aclError aclrtUnmapMem(void* virPtr);
/** Gets the granularity: 2 MiB. */
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

/** Copy count bytes, or set them, at once or in the stream's order. Fail with
 * ACL_ERROR_RT_PARAM_INVALID if count > destMax. 0 bytes are allowed. The memory may be of any
 * kind: `kind` has no effect. dst and src may overlap. The memory of an Async call must stay
 * allocated until the stream has done the work. */
aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                     aclrtMemcpyKind kind);
aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count,
                          aclrtMemcpyKind kind, aclrtStream stream);
aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count);
aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count,
                          aclrtStream stream);
/** Copy `height` rows of `width` bytes. Each row begins dpitch or spitch bytes (at least width)
 * after the beginning of the previous row. */
aclError aclrtMemcpy2d(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                       size_t height, aclrtMemcpyKind kind);
aclError aclrtMemcpy2dAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                            size_t height, aclrtMemcpyKind kind, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif /* ACL_ACL_RT_MEMORY_H_ */
