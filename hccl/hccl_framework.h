/* Additions for training frameworks: more reductions, scaled reductions, collectives in the
 * background, point to point with tags, cached device memory, groups, abort. Valid C99 and C++11.
 *
 * Errors: as in hccl_comm.h. The thread that gets the failure reads the text with
 * HcclGetLastErrorText(). A rejected call has not communicated.
 *
 * Threads: each section says which threads may call. */
#ifndef HCCL_FRAMEWORK_H_
#define HCCL_FRAMEWORK_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hccl_comm.h"
#include "hccl_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- More reductions ----
 *
 * Every function that reduces accepts these values of HcclReduceOp. HCCL_E_NOT_SUPPORT, naming
 * reduction and type: the reduction does not accept the type. */

/** The sum divided by the number of ranks. HcclScale describes how floats are rounded. The sum of
 * integers wraps around in their type; the quotient is rounded towards zero. */
#define HCCL_REDUCE_AVG ((HcclReduceOp)16)
/** Bitwise, for integer types. */
#define HCCL_REDUCE_BAND ((HcclReduceOp)17)
#define HCCL_REDUCE_BOR ((HcclReduceOp)18)
#define HCCL_REDUCE_BXOR ((HcclReduceOp)19)
/** Logical, for integer types: an input is true if it is not zero; the results are 0 and 1. */
#define HCCL_REDUCE_LAND ((HcclReduceOp)20)
#define HCCL_REDUCE_LOR ((HcclReduceOp)21)
#define HCCL_REDUCE_LXOR ((HcclReduceOp)22)

/* ---- Scaled reductions ---- */

/** Factors of a sum or average of floats: every input is multiplied by `before`, the result by
 * `after`. Both are finite. Products and quotients are computed in fp32 (fp64 for fp64), with the
 * factors rounded to that type.
 *
 * Rounding: every algorithm rounds the products with `before` to the element's type and then sums
 * them. Inside a host, and with HCCL_DETERMINISTIC=strict, one fold makes the result: the sum is
 * multiplied by `after` and divided (average) in fp32 (fp64), and then rounded once to the
 * element's type. Algorithms that sum in steps between hosts round a 16-bit or 8-bit sum before
 * `after`. All ranks get the same bits. With strict the bits do not depend on the algorithm.
 *
 * Cost: if `before` is not 1, the call first reads all inputs and writes the products to recvBuf
 * (HcclAllReduceScaled) or to memory that the communicator keeps. If one fold makes the result,
 * `after` costs nothing; otherwise it costs one more pass over the result. */
typedef struct {
  double before;
  double after;
} HcclScale;

/** HcclAllReduce, HcclReduce and HcclReduceScatter (hccl.h) with factors; null: both are 1. All
 * ranks give the same factors; if the factors differ, all ranks get an error with both calls.
 * HCCL_E_PARA: a factor is not finite. HCCL_E_NOT_SUPPORT: factors with an op other than
 * HCCL_REDUCE_SUM and HCCL_REDUCE_AVG, or with a type that is not a float. *scale is copied. */
HcclResult HcclAllReduceScaled(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType,
                               HcclReduceOp op, const HcclScale* scale, HcclComm comm,
                               aclrtStream stream);
HcclResult HcclReduceScaled(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType,
                            HcclReduceOp op, const HcclScale* scale, uint32_t root, HcclComm comm,
                            aclrtStream stream);
HcclResult HcclReduceScatterScaled(void* sendBuf, void* recvBuf, uint64_t recvCount,
                                   HcclDataType dataType, HcclReduceOp op, const HcclScale* scale,
                                   HcclComm comm, aclrtStream stream);

/* ---- Requests ----
 *
 * A request is an operation that runs in the background: a submitted call, a send or a receive. Any
 * thread may use these functions. A message is done when it has succeeded or failed. A call is done
 * when its callback has returned. */

typedef struct HcclRequest_* HcclRequest;

/** Called once, when the operation has ended, with no lock held. The callback may begin requests.
 * The function that takes the callback says which thread runs the callback and what else the
 * callback may do. In the callback HcclGetLastErrorText() is the text of a failure. */
typedef void (*HcclRequestCallback)(void* arg, HcclResult result);

/** Waits until the request is done and returns its result. *source becomes the sender's rank after
 * a receive, and dest after a send; source may be null. timeoutMs 0: no limit. HCCL_E_TIMEOUT:
 * timeoutMs have passed and the request goes on, or the request's operation itself has timed out;
 * in the second case HcclRequestTest reports that the request is done. Until HcclRequestFree the
 * function may be called again, also after the communicator's end. If a submitted call has failed,
 * HcclGetLastErrorText() is the text that this call set. */
HcclResult HcclRequestWait(HcclRequest request, int64_t timeoutMs, uint32_t* source);
/** Sets *done to true if the request has succeeded or failed. Never blocks. */
HcclResult HcclRequestTest(HcclRequest request, bool* done);
/** Frees the handle. HCCL_E_AGAIN while another thread waits with the handle. A running request
 * goes on without its handle. */
HcclResult HcclRequestFree(HcclRequest request);

/* ---- Collectives in the background ----
 *
 * A program submits a function that calls collectives. A thread of the communicator, started by the
 * first submission, runs the function. So a single request can pack data, run several collectives
 * and unpack the results. */

/** A function of the program that HcclSubmit runs with `arg`. It calls the library and returns the
 * first failure; the thread's last error text must then be the text of that failure. */
typedef HcclResult (*HcclCall)(void* arg);

/** Runs `call` once, and then `done` (may be null) on the same thread, both with `arg`.
 *
 * Order: the submitted calls of a communicator run one at a time, in the order of submission. All
 * ranks submit the same calls in the same order, as with collectives. The library does not order
 * submitted calls against collectives that the program calls directly: the program must wait for
 * the submitted calls before it calls such a collective. HCCL_E_PARA: comm is given between
 * HcclGroupStart and HcclGroupEnd.
 *
 * Thread: a thread of the library runs `call` and `done`, with signals blocked. But if callerWaits
 * is true and no submitted call of the communicator is queued or running, the calling thread runs
 * both before HcclSubmit returns, and *request is null. If comm is null, the request has its own
 * thread and no order. This is for calls that make or end communicators, and for waits that the
 * program may abandon.
 *
 * The call uses the null stream. It submits nothing and does not wait for submitted calls of its
 * communicator.
 *
 * The callback may submit calls, wait for them, and wait for calls submitted earlier. In a callback
 * HcclRequestWait ignores timeoutMs. Instead of waiting, it runs the queued calls up to the call of
 * the given request, and then the callback of that call. The callbacks of the other calls run after
 * the current callback has returned. A callback may destroy the communicator. If the callback's
 * request is marked (HcclRequestMark), the calls that the callback submits enter the queue at the
 * mark; otherwise they enter at the end.
 *
 * Signals, on a thread of the library: `call` runs with signals blocked. `done` has the program's
 * signal mask if request is null or marked: threads and processes that `done` starts inherit the
 * mask. Otherwise `done` runs with signals blocked, which saves two system calls.
 *
 * Memory: the library uses `arg` and the buffers of the collectives until `done` begins, or until
 * the request is done if `done` is null.
 *
 * Failure: after a failure or HcclCommAbort the queued calls still run, and their collectives fail
 * at once. But if one running call then holds up a queued call for two seconds, the queued call
 * does not run and ends with the communicator's error. If a thread has left a call by longjmp, the
 * calls behind that call never run. If the thread left a collective, they end with an error soon
 * after the deadline of that collective. If the thread left the program's own code, they end soon
 * after the communicator's failure. Their `done` runs on a thread of the library, or in
 * HcclRequestWait.
 *
 * End: HcclCommDestroy returns HCCL_E_AGAIN while a call is queued or running. At the end of the
 * process calls that have not begun are dropped. In a forked child HcclSubmit returns
 * HCCL_E_NOT_SUPPORT, except with a null comm.
 *
 * request may be null if the program waits by `done` only. If HcclSubmit fails, neither function
 * runs; HCCL_E_SYSCALL: no thread can be started. */
HcclResult HcclSubmit(HcclCall call, HcclComm comm, bool callerWaits, HcclRequestCallback done,
                      void* arg, HcclRequest* request);

/** Fixes the position in the queue of the calls that the request's callback will submit: behind all
 * calls submitted so far. So those calls have the same position on all ranks, no matter when the
 * callback runs. Only the first mark of a request counts. Marking the request of a message has no
 * effect. */
HcclResult HcclRequestMark(HcclRequest request);

/** Sets the tag of the collectives that the calling thread calls from now on; 0: none. Ranks
 * compare tags as they compare counts and types. A framework computes the tag from the name of its
 * operation. Then two operations of one size that ranks call in different orders are an error on
 * all ranks. The error text shows each call with its tag, as "tag #1a2b3c4d"; the highest bit of a
 * shown tag is always set. Ranks do not compare tags of HcclReduceScatterV and HcclAllGatherV. */
HcclResult HcclSetCallTag(uint32_t tag);

/* ---- Point to point with tags ----
 *
 * Messages between two ranks of a communicator are matched by tag. They are independent of the
 * communicator's collectives and of HcclSend and HcclRecv. Any thread may call these functions at
 * any time, several at once, on one communicator.
 *
 * Matching: a receive takes the oldest message of its source with its tag. Messages between two
 * ranks with the same tag match in the order in which they were posted. Messages with different
 * tags overtake each other. If sizes differ, the receive and the send fail with HCCL_E_PARA, naming
 * both sizes, and the communicator goes on. A short send may be done before its size is compared.
 *
 * Short messages are sent at once if the receiver has room for them; then the send is done. Long
 * messages are sent only after the receiver has posted the receive. A program must not rely on
 * either behaviour.
 *
 * The first request of any rank makes the communicator's ranks connect for messages, and starts one
 * thread on each rank. This thread moves messages while the program computes; a thread that waits
 * moves messages, too. The memory of a request belongs to the library until the request is done.
 *
 * Callbacks run on that thread or inside HcclIsend, HcclIrecv and HcclRequestWait, at about the
 * time when the request becomes done. They may not wait for messages and may not destroy the
 * communicator.
 *
 * Failures: the death of a rank ends all requests and collectives of the communicator, and the text
 * names the rank. HcclCommAbort ends all requests on all ranks with HCCL_E_UNAVAIL. HcclCommDestroy
 * ends this rank's requests with HCCL_E_UNAVAIL. On other ranks it ends the requests with this
 * rank; they get HCCL_E_REMOTE and a text that names this rank. While the ranks prepare their first
 * messages, HcclCommDestroy waits at most a second for the others; if they are not ready then, all
 * requests end. A rank that lacks the memory to move a message fails the communicator. In a forked
 * child the functions return HCCL_E_NOT_SUPPORT, because the child has no communicators. */

/** As a source: any rank. */
#define HCCL_ANY_RANK 0xFFFFFFFFu

/** Begins to send; dest may be the rank itself. Never blocks. `done` may be null. request may be
 * null: then the program cannot wait, and only `done` receives the result. buf may be null if bytes
 * is 0. HCCL_E_PARA: no such rank. */
HcclResult HcclIsend(const void* buf, uint64_t bytes, uint32_t dest, int32_t tag, HcclComm comm,
                     HcclRequestCallback done, void* arg, HcclRequest* request);
/** Begins to receive, from source or HCCL_ANY_RANK. The latter fails once all other ranks have left
 * or died. */
HcclResult HcclIrecv(void* buf, uint64_t bytes, uint32_t source, int32_t tag, HcclComm comm,
                     HcclRequestCallback done, void* arg, HcclRequest* request);

/* ---- Cached device memory ----
 *
 * Memory of the device heap (aclrtMalloc): the ranks of a host share this memory, so collectives do
 * not copy it. The library keeps freed blocks by size for the next allocation, up to
 * HCCL_MEMORY_CACHE MB. Any thread may call, at any time, also while the process exits. The
 * functions need no communicator and no device. A child of fork() has memory of its own; acl_rt.h
 * describes how the child sees its parent's memory. */

/** Allocates memory that is aligned to 64 bytes; its contents are undefined. HCCL_E_PARA: bytes is
 * 0. HCCL_E_OOM: the heap has no room even after the kept blocks were freed; the error text has the
 * sizes. */
HcclResult HcclMemAlloc(void** ptr, size_t bytes);
/** Frees memory of HcclMemAlloc; null does nothing. HCCL_E_PARA: ptr is not from HcclMemAlloc, or
 * has been freed. */
HcclResult HcclMemFree(void* ptr);
/** Frees all kept blocks, and returns the free memory of the device heap to the system. */
HcclResult HcclMemTrim(void);

typedef struct {
  size_t inUse;      /**< bytes of the program's blocks, with each size rounded up */
  size_t cached;     /**< bytes of free blocks that are kept */
  size_t cacheLimit; /**< upper limit of `cached` */
  size_t heapUsed;   /**< bytes of the device heap in use, by anything */
  size_t heapTotal;  /**< bytes that the device heap can have */
  uint64_t reused;   /**< allocations that took a kept block */
  uint64_t fresh;    /**< allocations that took new memory of the heap */
} HcclMemInfo;
HcclResult HcclMemGetInfo(HcclMemInfo* info);

/* ---- Groups ---- */

/** Makes a communicator of rankNum ranks of `world`: its rank i is rank rankIds[i] of `world`. Its
 * name is "<world's name>_<name>". Exactly these ranks make the call, with the same arguments. The
 * call waits at most timeoutMs (0: HCCL_CONNECT_TIMEOUT) for the calls of the other ranks.
 * Operations of other communicators, also of `world`, may run meanwhile. Groups are destroyed
 * before their world.
 *
 * Before its first operation or message the group has no thread, no connection, no descriptor and
 * no shared memory; this holds for all groups, whatever function makes them. The first operation of
 * any rank (HcclSend and HcclRecv are operations, too) opens the group on all ranks: the other
 * ranks open it on a thread of the library, and need not call anything. If a rank has destroyed the
 * group before, messages between other ranks still run; collectives fail, and so do messages with
 * that rank, and an operation that fails ends the group (hccl.h). Before the group is open,
 * HcclCommDescribeAlgorithms returns HCCL_E_AGAIN. With the transport of a plugin, such as mpi,
 * groups open at once.
 *
 * HCCL_E_PARA: `world` is a group, or a living communicator has the name. HCCL_E_UNAVAIL: the other
 * ranks have declared this rank dead, so this rank can make no more groups. */
HcclResult HcclCommCreateGroup(HcclComm world, uint32_t rankNum, const uint32_t* rankIds,
                               const char* name, uint64_t timeoutMs, HcclComm* comm);

/** As HcclCommCreateGroup, but each rank may give the group a name of its own. If an error reaches
 * all ranks, its text has the name that the group has on the rank that noticed the error. The
 * members make all groups of exactly these rankIds in the same order: the n-th call of each member
 * makes the n-th group. A call with refused arguments does not count; a call that fails later
 * counts. Groups that other functions make do not count. */
HcclResult HcclCommCreateNextGroup(HcclComm world, uint32_t rankNum, const uint32_t* rankIds,
                                   const char* name, uint64_t timeoutMs, HcclComm* comm);

/** Makes a communicator of the living ranks of `comm`, so that a program can continue after ranks
 * have died. The living ranks make the call with the same arguments, once for each loss. `comm` is
 * a world, a group or the result of an earlier HcclCommShrink, and may have failed or been aborted.
 * The ranks keep their order. excludeIds: ranks that live and are left out; these ranks make no
 * call. excludeIds may be null if excludeNum is 0. `config` may be null: then the configuration of
 * `comm` applies, and the name "<name of comm>_shrunk".
 *
 * The call waits at most HCCL_CONNECT_TIMEOUT for living ranks that have not called yet. It does
 * not wait for ranks that have died or left their world. All callers get the same ranks, or an
 * error. If another rank dies later, operations of the new communicator fail, their error names the
 * rank, and the program shrinks the new communicator. The first operation opens connections, as
 * with HcclCommCreateGroup. Both communicators are independent: `comm` may be destroyed at any
 * time. The new communicator may have groups.
 *
 * HCCL_E_PARA: a bad list, or the ranks' lists differ. HCCL_E_TIMEOUT: some ranks have not called
 * or may be cut off; the text names them. HCCL_E_UNAVAIL: other ranks are silent
 * (HCCL_PEER_TIMEOUT), but their processes may live in another part of a broken network. Of two
 * parts only the part with more ranks may go on; of equal parts, the part with the lowest rank. */
HcclResult HcclCommShrink(HcclComm comm, const uint32_t* excludeIds, uint32_t excludeNum,
                          const HcclCommConfig* config, HcclComm* smaller);

/** Writes the world rank of each rank of `comm`: its rank in the world that `comm` was made from,
 * directly or in several steps. worldRanks has room for as many ranks as HcclGetRankSize returns.
 * If HcclCommShrink made `comm`, the result lacks the world ranks that were left out. The call is
 * local, and `comm` may have failed. */
HcclResult HcclCommGetWorldRanks(HcclComm comm, uint32_t* worldRanks);

/* ---- Ending and limits ---- */

/** Ends the communicator on all its ranks within a second: running and later operations fail with
 * HCCL_E_UNAVAIL and a text that gives the rank and `reason` (may be null). Any thread may call,
 * also while another thread waits in an operation of the communicator. HcclCommDestroy must follow.
 * Succeeds if the communicator has failed already. */
HcclResult HcclCommAbort(HcclComm comm, const char* reason);

/** Reports that the caller rejected the call that would have been the communicator's next
 * collective. It is for callers that check arguments before they call a collective. Ranks that call
 * a collective at this position in the order get HCCL_E_PARA within a second instead of a timeout;
 * the text has their call and `reason`. `reason` names function and argument. If all ranks reject
 * the call, nothing happens. Any thread may call. Succeeds if the communicator has failed already.
 */
HcclResult HcclCommRefuse(HcclComm comm, const char* reason);

/** Sets the time limit of each operation that begins from now on, in milliseconds; 0: no limit. The
 * initial limit is HCCL_EXEC_TIMEOUT. Any thread may call. The limit does not apply to HcclIsend
 * and HcclIrecv; HcclRequestWait has a limit of its own. If ranks set different limits, the
 * shortest limit ends the operation on all ranks. */
HcclResult HcclCommSetTimeout(HcclComm comm, uint64_t milliseconds);
HcclResult HcclCommGetTimeout(HcclComm comm, uint64_t* milliseconds);

#ifdef __cplusplus
}
#endif
#endif /* HCCL_FRAMEWORK_H_ */
