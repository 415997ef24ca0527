/* What the PMIx module (libhccl_pmix.so, loaded at run time) offers: under mpirun, and srun
 * --mpi=pmix, it carries root info between the ranks of a job without MPI. Valid C99 and C++. Both
 * functions return 0, or not 0 with a text in `error`. */
#ifndef HCCL_CORE_PMIX_PMIX_ABI_H_
#define HCCL_CORE_PMIX_PMIX_ABI_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** This process's rank in its job, and the job's size. */
int hccl_pmix_world(int* rank, int* size, char* error, size_t error_size);

/** Carries `bytes` bytes from `root` to all ranks: `data` is read there and filled elsewhere.
 * `instance` tells apart several calls of one job: the same on all ranks. Waits at most `seconds`.
 * What travels holds a secret: PMIx keeps it inside the user's job. */
int hccl_pmix_share(void* data, size_t bytes, int root, int instance, int seconds, char* error,
                    size_t error_size);

#ifdef __cplusplus
}
#endif
#endif /* HCCL_CORE_PMIX_PMIX_ABI_H_ */
