/* libhccl_pmix.so: hands one blob from one process of a PMIx job to all others, without MPI_Init.
 * Loaded at run time, so that the library itself needs no PMIx. Valid C99 and C++.
 *
 * The blob is a root info and holds the communicator's secret. PMIx keeps it in the memory of the
 * job's own daemons and, within a host, may keep it in files of the job's session directory, which
 * only this user can read; the blob goes away with the job. Any process that can read the blob can
 * join, so the user account is the security boundary.
 *
 * Any thread may call. Every function returns 0 on success, or an HcclResult with the reason in
 * `error` (a text that ends with a zero byte; at most error_size bytes). */
#ifndef HCCL_JOIN_PMIX_PMIX_PLUGIN_H_
#define HCCL_JOIN_PMIX_PMIX_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HCCL_PMIX_EXPORT __attribute__((visibility("default")))

/** Reads this process's number in its job and the number of processes. Fails if no launcher that
 * speaks PMIx has started the process. */
HCCL_PMIX_EXPORT int hccl_pmix_world(int* rank, int* size, char* error, size_t error_size);

/** On process 0: publishes the bytes of `blob`. On the others: waits for the bytes, at most
 * `timeout_seconds`, and writes them to `blob`. All processes that take part give the same `bytes`
 * and `instance`; a job uses each instance only once, so count the calls. */
HCCL_PMIX_EXPORT int hccl_pmix_share(void* blob, size_t bytes, uint64_t instance,
                                     unsigned timeout_seconds, char* error, size_t error_size);

typedef int (*hccl_pmix_world_function)(int*, int*, char*, size_t);
typedef int (*hccl_pmix_share_function)(void*, size_t, uint64_t, unsigned, char*, size_t);

#ifdef __cplusplus
}
#endif

#endif /* HCCL_JOIN_PMIX_PMIX_PLUGIN_H_ */
