/* The profiler's interface. Nothing is profiled here: every call only checks its arguments and the
 * order of the calls. Valid C99 and C++11. */
#ifndef ACL_ACL_PROF_H_
#define ACL_ACL_PROF_H_

#include "acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ACL_PROF_ACL_API 0x0001ULL
#define ACL_PROF_TASK_TIME 0x0002ULL
#define ACL_PROF_AICORE_METRICS 0x0004ULL
#define ACL_PROF_AICPU 0x0008ULL
#define ACL_PROF_L2CACHE 0x0010ULL
#define ACL_PROF_HCCL_TRACE 0x0020ULL
#define ACL_PROF_TRAINING_TRACE 0x0040ULL
#define ACL_PROF_MSPROFTX 0x0080ULL
#define ACL_PROF_RUNTIME_API 0x0100ULL

#define ACL_PROF_MAX_PATH_LENGTH 4096

typedef enum {
  ACL_AICORE_ARITHMETIC_UTILIZATION = 0,
  ACL_AICORE_PIPE_UTILIZATION = 1,
  ACL_AICORE_MEMORY_BANDWIDTH = 2,
  ACL_AICORE_L0B_AND_WIDTH = 3,
  ACL_AICORE_RESOURCE_CONFLICT_RATIO = 4,
  ACL_AICORE_MEMORY_UB = 5,
  ACL_AICORE_L2_CACHE = 6,
  ACL_AICORE_PIPE_EXECUTE_UTILIZATION = 7,
  ACL_AICORE_MEMORY_ACCESS = 8,
  ACL_AICORE_NONE = 0xFF
} aclprofAicoreMetrics;

typedef struct aclprofConfig aclprofConfig;
typedef struct aclprofAicoreEvents aclprofAicoreEvents;

/** path: the folder for results, 1 to 4096 bytes; nothing is written there. Fails with
 * ACL_ERROR_PROF_ALREADY_RUN if called again before aclprofFinalize. This function and those below
 * fail with ACL_ERROR_INVALID_PARAM for a wrong argument. */
aclError aclprofInit(const char* path, size_t length);
/** Ends every session. Fails with ACL_ERROR_PROF_NOT_RUN without aclprofInit. */
aclError aclprofFinalize(void);

/** deviceIdList: deviceNums different devices. aicoreEvents must be NULL. Returns NULL for a wrong
 * argument. The caller must destroy the result. */
aclprofConfig* aclprofCreateConfig(uint32_t* deviceIdList, uint32_t deviceNums,
                                   aclprofAicoreMetrics aicoreMetrics,
                                   const aclprofAicoreEvents* aicoreEvents,
                                   uint64_t dataTypeConfig);
aclError aclprofDestroyConfig(const aclprofConfig* config);

/** Fails with ACL_ERROR_PROF_NOT_RUN without aclprofInit, and with ACL_ERROR_PROF_ALREADY_RUN if
 * the config is started already. */
aclError aclprofStart(const aclprofConfig* config);
/** Fails with ACL_ERROR_PROF_NOT_RUN if the config was not started. */
aclError aclprofStop(const aclprofConfig* config);

#ifdef __cplusplus
}
#endif

#endif /* ACL_ACL_PROF_H_ */
