/* Communicators: joining, leaving, queries. Valid C99 and C++11.
 *
 * Threads: functions may be called from any thread. One communicator is used by one thread at a
 * time; different communicators may be used at the same time. Ranks may be threads of one process.
 *
 * File descriptors: 0 to 2 belong to the program. If one of these is closed, joining opens
 * /dev/null in its place. If the program closes a descriptor of the library (closefrom, dup2),
 * later calls fail, and the error text gives that reason. If a file gets the number of such a
 * descriptor, the library neither writes nor closes the file. But if a socket of the program gets
 * such a number, the library mistakes the socket for its own, and may send or receive bytes on it.
 *
 * Errors: any failure, of HCCL or of acl, leaves a readable text in HcclGetLastErrorText(). The
 * code is HCCL_E_PTR for a null pointer or a null communicator, and HCCL_E_PARA for an invalid or
 * destroyed communicator. */
#ifndef HCCL_COMM_H_
#define HCCL_COMM_H_

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "acl/acl.h"
#include "hccl_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Joining ---- */

/** On one rank: opens the listening socket now, starts the thread that answers the other ranks, and
 * fills *rootInfo, which the program copies to all ranks. May be called for several communicators.
 * Needs no current device. */
HcclResult HcclGetRootInfo(HcclRootInfo* rootInfo);

/** On every rank, with the same rootInfo: joins nRanks ranks and returns when all of them have
 * joined. HCCL_E_TIMEOUT after HCCL_CONNECT_TIMEOUT, with the list of absent ranks in the text.
 * HCCL_E_PARA: nRanks is 0, or rank >= nRanks, or two ranks disagree on version or configuration.
 * The caller destroys *comm with HcclCommDestroy. */
HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank,
                                HcclComm* comm);

/** As HcclCommInitRootInfo, with a configuration; COMPATIBILITY.md marks the fields that must be
 * equal on all ranks. HCCL_E_PARA, naming the field: an invalid value, or a name that a living
 * communicator of this process has. */
HcclResult HcclCommInitRootInfoConfig(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank,
                                      const HcclCommConfig* config, HcclComm* comm);

/** Joins the ranks of a rank table (the path of a .json file, at most 4095 bytes); rank is the
 * rank_id. HCCL_E_UNAVAIL: this rank of this file has joined already. */
HcclResult HcclCommInitClusterInfo(const char* clusterInfo, uint32_t rank, HcclComm* comm);

/** As HcclCommInitClusterInfo, with a configuration as for HcclCommInitRootInfoConfig. */
HcclResult HcclCommInitClusterInfoConfig(const char* clusterInfo, uint32_t rank,
                                         HcclCommConfig* config, HcclComm* comm);

/** Makes a communicator of ndev ranks, all in this process: comms[i] is rank i, on devices[i].
 * Returns when all have joined; if one fails, no communicator is made. HCCL_E_PARA: ndev is 0, or a
 * device does not exist on this host or is listed twice. The program calls the operations of each
 * rank on a separate thread or a separate stream. */
HcclResult HcclCommInitAll(uint32_t ndev, int32_t* devices, HcclComm* comms);

/** Joins the ranks that a launcher started; the program configures nothing. The library reads the
 * rank table that RANK_TABLE_FILE names, or the values that the launcher gives: mpirun (PMIx),
 * torchrun, Slurm or, inside a host, hydra (mpiexec of MPICH and Intel). Of nested launchers the
 * innermost counts. A program started without a launcher joins a world of one rank. An addition to
 * HCCL's interface. */
HcclResult HcclCommInitLauncher(HcclComm* comm);

/** Makes a communicator of rankNum ranks of *comm, which must be a world. Rank i of the new
 * communicator is rank rankIds[i] of the world. All members call this with the same rankIds and
 * subCommId; subCommRankId is the caller's index in rankIds. A rank that is not a member passes
 * rankIds = NULL and subCommId = 0xFFFFFFFF, and gets *subComm = NULL at once. The name is the
 * config's name, or by default "<world's name>_sub_<subCommId>". Connections open with the first
 * operation (hccl_framework.h, HcclCommCreateGroup). HCCL_E_PARA: an argument is invalid, or a
 * living communicator has the name. */
HcclResult HcclCreateSubCommConfig(HcclComm* comm, uint32_t rankNum, uint32_t* rankIds,
                                   uint64_t subCommId, uint32_t subCommRankId,
                                   HcclCommConfig* config, HcclComm* subComm);

/** Leaves the communicator and ends its memory ranges and windows. Destroy sub-communicators before
 * their world. HCCL_E_AGAIN while another thread, or work on a stream, uses the communicator.
 * HCCL_E_PARA if comm is not a communicator, belongs to a group of hcom.h, or is the world of
 * hcom.h. */
HcclResult HcclCommDestroy(HcclComm comm);

/* ---- Configuration ---- */

/** Sets every field of *config to its default, which means "not set". Null is ignored. */
static inline void HcclCommConfigInit(HcclCommConfig* config) {
  struct {
    size_t size;
    uint32_t magicWord;
    uint32_t version;
    uint64_t reserved;
  } head;
  if (config == NULL) return;
  memset(config, 0, sizeof *config);
  head.size = sizeof *config;
  head.magicWord = HCCL_COMM_CONFIG_MAGIC_WORD;
  head.version = HCCL_COMM_CONFIG_VERSION;
  head.reserved = 0;
  memcpy(config->reserved, &head, sizeof head);
  config->hcclBufferSize = HCCL_COMM_BUFFSIZE_CONFIG_NOT_SET;
  config->hcclDeterministic = HCCL_COMM_DETERMINISTIC_CONFIG_NOT_SET;
  config->hcclOpExpansionMode = HCCL_COMM_DEFAULT_OP_EXPANSION_MODE;
  config->hcclRdmaTrafficClass = HCCL_COMM_TRAFFIC_CLASS_CONFIG_NOT_SET;
  config->hcclRdmaServiceLevel = HCCL_COMM_SERVICE_LEVEL_CONFIG_NOT_SET;
  config->hcclExecTimeOut = HCCL_COMM_EXECTIMEOUT_CONFIG_NOT_SET;
  config->hcclQos = HCCL_COMM_QOS_CONFIG_NOT_SET;
  config->hcclSymWinMaxMemSizePerRank = HCCL_DEFAULT_SYMMETRIC_MEMORY_STRIDE;
  config->hcclChannelSqDepth = HCCL_COMM_SQ_DEPTH_CONFIG_NOT_SET;
}

/** Returns a number. The library reads each field whose value in HcclCommConfigCapability is less
 * than the number. */
uint32_t HcclGetCommConfigCapability(void);

/** Sets HCCL_DETERMINISTIC to 0 (off), 1 (on) or 2 (strict) for the living and future communicators
 * of this process. The configuration of a communicator takes precedence. All ranks set the same
 * value. If the variable HCCL_DETERMINISTIC is set, the call succeeds and does nothing.
 * HCCL_E_PARA: another value. */
HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue configValue);
HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue* configValue);
/** As HcclSetConfig, for one communicator, between operations; later calls of HcclSetConfig do not
 * change that communicator. The value takes precedence over the environment. All ranks set the same
 * value. */
HcclResult HcclSetCommConfig(HcclComm comm, HcclConfig config, HcclConfigValue configValue);
HcclResult HcclGetCommConfig(HcclComm comm, HcclConfig config, HcclConfigValue* configValue);

/** The ways to run operations. Names and values are HCCL's. The field hcclOpExpansionMode uses
 * other values. */
typedef enum {
  HCCL_OP_EXPANSION_MODE_INVALID = -1,
  HCCL_OP_EXPANSION_MODE_AI_CPU = 0,
  HCCL_OP_EXPANSION_MODE_AIV = 1,
  HCCL_OP_EXPANSION_MODE_HOST = 2,
  HCCL_OP_EXPANSION_MODE_HOST_TS = 3,
  HCCL_OP_EXPANSION_MODE_CCU_MS = 4,
  HCCL_OP_EXPANSION_MODE_CCU_SCHED = 5,
  HCCL_OP_EXPANSION_AIV_ONLY = 6,
  HCCL_OP_EXPANSION_MODE_AIV_ONLY = 6 /**< hccl's own name */
} HcclOpExpansionMode;
typedef HcclOpExpansionMode HcclConfigTypeOpExpansionMode;

typedef enum {
  HCCL_CONFIG_TYPE_INVALID = -1,
  HCCL_CONFIG_TYPE_OP_EXPANSION_MODE = 0,    /**< an HcclOpExpansionMode */
  HCCL_CONFIG_TYPE_HCCL_ALGO = 1,            /**< char[HCCL_COMM_ALGO_MAX_LENGTH] */
  HCCL_CONFIG_TYPE_UB_MULTI_CHANNEL_NUM = 2, /**< HCCL_E_NOT_SUPPORT: hardware */
  HCCL_CONFIG_TYPE_DETERMINISTIC = 3,        /**< uint32_t: 0, 1 or 2 */
  HCCL_CONFIG_TYPE_UDI = 4                   /**< HCCL_E_NOT_SUPPORT */
} HcclConfigType;

/** Writes one setting of the communicator to *info. The expansion mode is the configured mode, by
 * default HOST. HCCL_E_PARA: infoLen is not the size of the setting's type, or is too small for the
 * text of HCCL_CONFIG_TYPE_HCCL_ALGO. */
HcclResult HcclConfigGetInfo(HcclComm comm, HcclConfigType cfgType, uint32_t infoLen, void* info);

/* ---- Queries ---- */

HcclResult HcclGetRankSize(HcclComm comm, uint32_t* rankSize);
HcclResult HcclGetRankId(HcclComm comm, uint32_t* rank);
/** commName: a buffer of COMM_NAME_MAX_LENGTH bytes. */
HcclResult HcclGetCommName(HcclComm comm, char* commName);

/** Finds the communicator of this process with this name. If ranks are threads of one process,
 * several communicators have the name. Then the library prefers those made on the calling thread's
 * device, next those made by the calling thread, and takes the newest. HCCL_E_NOT_FOUND. */
HcclResult HcclCommGetHandleWithName(const char* commName, HcclComm* comm);

/** Writes the state of the communicator that HcclCommGetHandleWithName finds for this name. */
HcclResult HcclCommGetStatus(const char* commId, HcclCommStatus* status);

/** *asyncError: HCCL_SUCCESS, or HCCL_E_REMOTE once this communicator has failed for good; then
 * HcclGetLastErrorText() and every later operation give the reason. Never blocks. */
HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult* asyncError);

/** Returns when every rank of comm has called HcclBarrier. */
HcclResult HcclBarrier(HcclComm comm, aclrtStream stream);

/** Begins to collect the operations that the calling thread calls; HcclGroupEnd issues them
 * together. So one thread may drive several communicators, or send and receive in any order. A
 * group holds either collectives, or sends and receives; HcclBatchSendRecv is not allowed. Groups
 * may be nested. A group may instead hold calls of HcclCommInitRootInfo and
 * HcclCommInitClusterInfo, also with a configuration. These calls check and copy their arguments.
 * HcclGroupEnd joins all the communicators at once, stores their handles, and returns the first
 * failure; the handles of communicators that have joined are then valid. Experimental in HCCL. */
HcclResult HcclGroupStart(void);
HcclResult HcclGroupEnd(void);
/** Sets *isGroupEnabled to true if the calling thread is between HcclGroupStart and HcclGroupEnd.
 */
HcclResult HcclGroupStatusGet(bool* isGroupEnabled);

/** Returns a short lower-case text for a code. The text is never freed. */
const char* HcclGetErrorString(HcclResult code);

/** Returns the text of the calling thread's last failed call of HCCL or acl. The text names the
 * argument or the ranks, the operation, and a remedy. It is valid until the thread's next failed
 * call. An addition to HCCL's interface. */
const char* HcclGetLastErrorText(void);

/** An algorithm, for one operation, size and kind of memory. Later versions append fields. */
typedef struct {
  char name[32];      /**< in HCCL_ALGO: "level0:<name>" or "level1:<name>" */
  char reason[256];   /**< why the algorithm was refused or chosen, cut to fit; else "" */
  double predictedUs; /**< predicted duration in microseconds; 0: unknown */
  uint32_t level;     /**< 0: inside a host, by shared memory; 1: by messages */
  bool eligible;      /**< false: refused, cannot run here */
  bool chosen;        /**< the algorithm that would run; at most one of a list */
} HcclAlgorithmInfo;

/** Lists the algorithms of this communicator for one operation.
 *   op             "allreduce" and so on, as in HCCL_ALGO, or "barrier"
 *   bytes          the size of the longest input; the elements are fp32
 *   deviceMemory   all buffers are device memory, or the ranks are threads of one process
 *   infoSize       sizeof(HcclAlgorithmInfo)
 *   infoNum        in: how many entries `infos` has room for; out: the number of algorithms
 * With infos = NULL and *infoNum = 0 the call only gives the number. HCCL_E_PARA: op is unknown,
 * infoSize is too small, or `infos` has too little room. An addition to HCCL's interface. */
HcclResult HcclCommDescribeAlgorithms(HcclComm comm, const char* op, uint64_t bytes,
                                      bool deviceMemory, HcclAlgorithmInfo* infos, size_t infoSize,
                                      uint32_t* infoNum);

/* ---- Suspending ---- */

/** From now on operations of this rank fail with HCCL_E_SUSPENDING, also operations that wait on
 * streams. Running operations go on to their end. Operations of other ranks wait for this rank. A
 * suspended communicator may be suspended again. */
HcclResult HcclCommSuspend(HcclComm comm);
/** Accepts operations again. A rejected operation has not begun, so the program repeats the
 * operation. If the communicator has failed, the result is that failure. Resuming a communicator
 * that is not suspended succeeds. */
HcclResult HcclCommResume(HcclComm comm);

/** A callback that HcclCommDestroy and HcclCommResume call on their thread, before and after the
 * change. In HCCL_COMM_STATE_PHASE_DESTROY_POST, comm is no longer valid. If a callback before the
 * change fails, the call returns its code. A failure after the change is only logged. */
typedef HcclResult (*HcclCommStateCallback)(HcclComm comm, HcclCommStatePhase state, void* args);
/** Registers a callback for all communicators of this process, until the process ends. regName has
 * 1 to 160 bytes; registering a name again replaces its callback. Callbacks are called in the order
 * in which their names were registered. */
HcclResult HcclCommRegCommStateCallback(const char* regName, HcclCommStateCallback cb, void* args);

/* ---- Memory ----
 *
 * Ranks of a host read and write memory from aclrtMalloc or aclrtMapMem directly. The calls of this
 * section are not needed for that: they check and record their arguments. Other memory is accepted,
 * and is copied through a staging area. */

/** Records a range of addresses. alignment and flags must be 0. HCCL_E_PARA: size is 0, or the
 * range overlaps another range of this communicator. */
HcclResult HcclCommSetMemoryRange(HcclComm comm, void* baseVirPtr, size_t size, size_t alignment,
                                  uint64_t flags);
/** Removes a range. HCCL_E_PARA: no range begins at baseVirPtr, or memory in the range is active.
 */
HcclResult HcclCommUnsetMemoryRange(HcclComm comm, void* baseVirPtr);
/** Records that memory inside a range is active. handle comes from aclrtMallocPhysical. offset and
 * flags must be 0. HCCL_E_PARA: the memory is not inside one range, or overlaps active memory. */
HcclResult HcclCommActivateCommMemory(HcclComm comm, void* virPtr, size_t size, size_t offset,
                                      aclrtDrvMemHandle handle, uint64_t flags);
/** Ends the record of active memory. HCCL_E_PARA: no active memory begins at virPtr. */
HcclResult HcclCommDeactivateCommMemory(HcclComm comm, void* virPtr);

/** Registers size bytes at each rank's addr as one window. Collective; flag must be 1. HCCL_E_PARA
 * on all ranks: the sizes differ. */
HcclResult HcclCommSymWinRegister(HcclComm comm, void* addr, uint64_t size,
                                  HcclCommSymWindow* winHandle, uint32_t flag);
/** Removes a window. Collective. HCCL_E_PARA: winHandle is not a window. */
HcclResult HcclCommSymWinDeregister(HcclCommSymWindow winHandle);
/** Finds the newest window that contains all of these bytes, and their offset in the window.
 * HCCL_E_NOT_FOUND. */
HcclResult HcclCommSymWinGet(HcclComm comm, void* ptr, size_t size, HcclCommSymWindow* winHandle,
                             size_t* offset);

/** Records size bytes at addr for this rank alone. flag must be 0. HCCL_E_PARA: size is 0. */
HcclResult HcclCommRegister(HcclComm comm, void* addr, uint64_t size, void** handle, uint32_t flag);
/** Removes a record that HcclCommRegister made. HCCL_E_PARA: the handle is not from
 * HcclCommRegister with this communicator. */
HcclResult HcclCommDeregister(HcclComm comm, void* handle);
/** Checks its arguments and succeeds: ranks need no exchange before operations. peerRanks: ranks
 * of comm, each once, without this rank. */
HcclResult HcclCommExchangeMem(HcclComm comm, void* windowHandle, uint32_t* peerRanks,
                               uint32_t peerRankNum);

/** Checks the arguments, logs a warning and succeeds, because a host has no backup network cards.
 */
HcclResult HcclCommWorkingDevNicSet(HcclComm comm, uint32_t* ranks, bool* useBackup,
                                    uint32_t nRanks);

#ifdef __cplusplus
}
#endif
#endif /* HCCL_COMM_H_ */
