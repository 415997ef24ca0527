/* Communicators: joining, leaving, asking. Valid C99 and C++.
 *
 * Threads: functions may be called from any thread. One communicator is used by one thread at a time;
 * different communicators may be used at the same time. Ranks may be threads of one process.
 * Errors: any failure leaves a text for a person in HcclGetLastErrorText(). */
#ifndef HCCL_COMM_H_
#define HCCL_COMM_H_

#include "acl/acl.h"
#include "hccl_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** On one rank: opens the listening socket now, starts the thread that answers the other ranks, and fills
 * *rootInfo, which the program carries to all ranks. May be called for several communicators.
 * HCCL_E_PTR for a null pointer. */
HcclResult HcclGetRootInfo(HcclRootInfo* rootInfo);

/** On every rank, with the same rootInfo: joins nRanks ranks and returns when all of them are there.
 * HCCL_E_TIMEOUT after HCCL_CONNECT_TIMEOUT, with the list of absent ranks in the text.
 * HCCL_E_PARA: nRanks is 0, or rank >= nRanks, or two ranks disagree on version or configuration.
 * The caller destroys *comm with HcclCommDestroy. */
HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank,
                                HcclComm* comm);

/** Joins the ranks of a rank table (the path of a .json file, at most 4095 bytes); rank is the rank_id.
 * HCCL_E_UNAVAIL while this rank of the same file is joined already. */
HcclResult HcclCommInitClusterInfo(const char* clusterInfo, uint32_t rank, HcclComm* comm);

/** Joins the ranks that a launcher started, with no configuration at all: the rank table that
 * RANK_TABLE_FILE names, or mpirun (PMIx), torchrun, or Slurm; a program started alone is a world of one.
 * An addition to HCCL's interface. */
HcclResult HcclCommInitLauncher(HcclComm* comm);

/** Leaves the communicator. HCCL_E_PTR for null; HCCL_E_AGAIN while another thread uses it; HCCL_E_PARA
 * if it is no communicator, or is still a group's or the world of hcom.h. */
HcclResult HcclCommDestroy(HcclComm comm);

HcclResult HcclGetRankSize(HcclComm comm, uint32_t* rankSize);
HcclResult HcclGetRankId(HcclComm comm, uint32_t* rank);
/** commName: a buffer of COMM_NAME_MAX_LENGTH bytes. */
HcclResult HcclGetCommName(HcclComm comm, char* commName);

/** *asyncError: 0, or the code of the failure that ended this communicator. Never blocks. */
HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult* asyncError);

/** Returns when every rank of comm has called it. */
HcclResult HcclBarrier(HcclComm comm, aclrtStream stream);

/** Short lower-case words of a code. Static. */
const char* HcclGetErrorString(HcclResult code);

/** What went wrong in the calling thread's last failed call: names the argument or the ranks, the
 * operation and what to do. Valid until the thread's next failing call. An addition to HCCL's interface. */
const char* HcclGetLastErrorText(void);

#ifdef __cplusplus
}
#endif
#endif  /* HCCL_COMM_H_ */
