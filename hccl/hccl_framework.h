/* What training frameworks need beyond HCCL's interface: more reductions, scaled reductions,
 * collectives that are not waited for, point to point with tags, device memory that is reused,
 * groups, ending a communicator. Valid C99 and C++11.
 *
 * Errors: as in hccl_comm.h; the text of a failure is HcclGetLastErrorText() of the thread that got
 * the result. Calls that are refused have not communicated.
 *
 * Threads: each section says it. */
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
 * Values of HcclReduceOp, accepted wherever one is. Another type than the ones named:
 * HCCL_E_NOT_SUPPORT, naming both. */

/** The sum divided by the number of ranks. A float is rounded as HcclScale says. The sum of
 * integers wraps around in their type, and is divided towards zero. */
#define HCCL_REDUCE_AVG ((HcclReduceOp)16)
/** Bit by bit: integer types. */
#define HCCL_REDUCE_BAND ((HcclReduceOp)17)
#define HCCL_REDUCE_BOR ((HcclReduceOp)18)
#define HCCL_REDUCE_BXOR ((HcclReduceOp)19)
/** Of the truth of each input (not zero): integer types; the results are 0 and 1. */
#define HCCL_REDUCE_LAND ((HcclReduceOp)20)
#define HCCL_REDUCE_LOR ((HcclReduceOp)21)
#define HCCL_REDUCE_LXOR ((HcclReduceOp)22)

/* ---- Scaled reductions ---- */

/** Factors of a sum or average of floats: every input is multiplied by `before`, the result by
 * `after`. Both are finite. Products and quotients are computed in fp32 (fp64 for fp64), with the
 * factors rounded to that type.
 *
 * Roundings: a product with `before` is rounded to the element's type before it is summed, whatever
 * the algorithm. `after`, and the division of an average, are applied to the sum in fp32 (fp64)
 * before it is rounded to the element's type, once, where one fold makes it: inside a host, and
 * with HCCL_DETERMINISTIC=strict. Algorithms that sum in steps between hosts round a 16-bit or
 * 8-bit sum before. All ranks get the same bits; strict ones do not depend on the algorithm.
 *
 * Cost: `before` other than 1 reads the inputs and writes the products once more, into recvBuf
 * (HcclAllReduceScaled) or memory that the communicator keeps. `after` costs nothing where one fold
 * makes the result, and else one more pass over it. */
typedef struct {
  double before;
  double after;
} HcclScale;

/** As HcclAllReduce, HcclReduce and HcclReduceScatter (hccl.h), with factors; null: both are 1. All
 * ranks give the same factors: a difference is an error on all of them that has both calls.
 * HCCL_E_PARA: a factor is not finite. HCCL_E_NOT_SUPPORT: factors with another op than
 * HCCL_REDUCE_SUM and HCCL_REDUCE_AVG, or of a type that is no float. *scale is copied. */
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
 * thread may use these functions. A message is done when it has ended, well or not. A call is done
 * when its callback has returned. */

typedef struct HcclRequest_* HcclRequest;

/** Called once, when the operation has ended, with no lock held. The callback may begin requests.
 * The function that takes the callback says which thread calls it and what else it may do. The text
 * of a failure is HcclGetLastErrorText() there. */
typedef void (*HcclRequestCallback)(void* arg, HcclResult result);

/** Waits until the request is done and returns its result; *source (may be null) is then the rank
 * that sent the message (of a send: dest). timeoutMs 0: no limit. HCCL_E_TIMEOUT with timeoutMs:
 * the request goes on; HcclRequestTest tells this case from an operation that timed out. May be
 * called again, also after the communicator's end, until HcclRequestFree. The text of a failed call
 * is the text that the call left. */
HcclResult HcclRequestWait(HcclRequest request, int64_t timeoutMs, uint32_t* source);
/** Whether the request is done, well or not. Never blocks. */
HcclResult HcclRequestTest(HcclRequest request, bool* done);
/** Gives the handle back; HCCL_E_AGAIN while another thread waits with it. A request that is under
 * way goes on without it. */
HcclResult HcclRequestFree(HcclRequest request);

/* ---- Collectives in the background ----
 *
 * A program submits a function that calls collectives. A thread of the communicator, started by the
 * first submission, runs the function. So an operation of a framework is one request, also if it
 * packs, calls several collectives and unpacks. */

/** Calls the library with `arg`. Returns the first failure; the text of that failure is then the
 * last one of the thread. */
typedef HcclResult (*HcclCall)(void* arg);

/** Runs `call` once, and then `done` (may be null) on the same thread, both with `arg`.
 *
 * Order: the submitted calls of a communicator run one at a time, in the order of submission. All
 * ranks submit the same calls in the same order, as with collectives. No order holds between them
 * and collectives that the program calls directly: it waits for the submitted calls first. In an
 * open HcclGroupStart a submission with a communicator is refused (HCCL_E_PARA).
 *
 * Thread: a thread of the library with signals blocked. With callerWaits, and if no submitted call
 * of the communicator waits or runs, the calling thread runs both before HcclSubmit returns, and
 * *request is null. If comm is null, the request has its own thread and no order: for calls that
 * make or end communicators, and for waits that the program may abandon.
 *
 * The call uses the null stream. It submits nothing and waits for no submitted call of its
 * communicator.
 *
 * The callback may submit calls, wait for them, and wait for calls submitted earlier. In a callback
 * HcclRequestWait runs the waiting calls up to the given one, whatever timeoutMs is, and then the
 * given one's callback. The other callbacks of these calls run when the waiting callback has
 * returned. A callback may destroy the communicator. Calls that a callback submits come at the mark
 * of its request (HcclRequestMark); without a mark they come last.
 *
 * Signals: `call` runs with signals blocked. `done` has the program's signal mask if request is
 * null or marked, so that threads and processes which it starts inherit that one. Else `done` runs
 * with signals blocked, which saves two system calls.
 *
 * Memory: the library uses `arg` and the buffers of the collectives until `done` begins, or until
 * the request is done if `done` is null.
 *
 * Failure and end: after a failure or HcclCommAbort the waiting calls still run, and their
 * collectives fail at once; a call that has waited for two seconds behind the same call since then
 * does not run, and ends with the communicator's error. If a thread has left a call by longjmp, the
 * calls behind that one never run. They end with an error: soon after the deadline of the
 * collective that was left, else soon after the communicator's failure, as the program's own code
 * has no deadline. Their `done` runs on a thread of the library, or in HcclRequestWait.
 * HcclCommDestroy returns HCCL_E_AGAIN while a call waits or runs. At the end of the process calls
 * that have not begun are dropped. A forked child may submit only with a null comm
 * (HCCL_E_NOT_SUPPORT).
 *
 * request may be null if the program waits by `done` only. If HcclSubmit fails, neither function
 * runs; HCCL_E_SYSCALL: no thread can be started. */
HcclResult HcclSubmit(HcclCall call, HcclComm comm, bool callerWaits, HcclRequestCallback done,
                      void* arg, HcclRequest* request);

/** Sets the place of the calls that the request's callback submits: behind all calls submitted so
 * far. Only the first mark of a request counts. So these calls have the same place on all ranks, no
 * matter when the callback runs. Messages have no place. */
HcclResult HcclRequestMark(HcclRequest request);

/** Gives the collectives that the calling thread calls from now on a tag; 0: none. Ranks compare
 * tags as they compare counts and types. A framework makes the tag of its operation's name. Two
 * operations of one size that ranks call in different orders are then an error on all ranks. The
 * error has "tag #1a2b3c4d" in each call; the highest bit is always set. Ranks do not compare tags
 * of HcclReduceScatterV and HcclAllGatherV. */
HcclResult HcclSetCallTag(uint32_t tag);

/* ---- Point to point with tags ----
 *
 * Messages between two ranks of a communicator, by tag. They have nothing to do with the order and
 * the progress of its collectives, nor with HcclSend and HcclRecv. Any thread may call these
 * functions at any time, several at once, on one communicator.
 *
 * Matching: a receive takes the oldest message of its source with its tag; messages between two
 * ranks with the same tag match in the order in which they were posted. Messages with different
 * tags overtake each other. Sizes must be equal: otherwise the receive and the send fail with
 * HCCL_E_PARA, naming both sizes, and the communicator goes on; a short send may be done already.
 *
 * Short messages are sent before the receiver asks, as long as the receiver has room for them (and
 * the send is done then); long ones after it has asked. A program must not count on either.
 *
 * The first request of any rank makes the communicator's ranks connect for messages, and starts one
 * thread on each, which moves messages while the program computes; so does a thread that waits. The
 * memory of a request belongs to the library until it is done.
 *
 * Callbacks run on that thread or inside HcclIsend and HcclIrecv, about when the request becomes
 * done. They may not wait for messages and may not destroy the communicator.
 *
 * Failures: the death of a rank ends all requests of the communicator, as it ends its collectives,
 * and the text names the rank. So do HcclCommAbort, and HcclCommDestroy, which ends requests that
 * are under way with HCCL_E_UNAVAIL. A rank that lacks the memory to move a message fails the
 * communicator. A forked child has no communicators: HCCL_E_NOT_SUPPORT. */

/** As a source: any rank. */
#define HCCL_ANY_RANK 0xFFFFFFFFu

/** Begins to send; dest may be the rank itself. `done` may be null. request may be null: nobody
 * waits then, and a failure is told to `done` only. Never blocks. HCCL_E_PARA: no such rank. buf
 * may be null if bytes is 0. */
HcclResult HcclIsend(const void* buf, uint64_t bytes, uint32_t dest, int32_t tag, HcclComm comm,
                     HcclRequestCallback done, void* arg, HcclRequest* request);
/** Begins to receive, from source or HCCL_ANY_RANK. */
HcclResult HcclIrecv(void* buf, uint64_t bytes, uint32_t source, int32_t tag, HcclComm comm,
                     HcclRequestCallback done, void* arg, HcclRequest* request);

/* ---- Device memory that is reused ----
 *
 * Memory of the device heap (aclrtMalloc), which the ranks of a host share, so that collectives do
 * not copy it. Freed blocks are kept by size for the next allocation, up to HCCL_MEMORY_CACHE MB of
 * them. Any thread, at any time, also while the process exits; no communicator and no device are
 * needed. A child of fork() has memory of its own; acl_rt.h describes its parent's. */

/** Memory aligned to 64 bytes; contents undefined. HCCL_E_PARA: bytes is 0. HCCL_E_OOM: the heap
 * has no room, also without the blocks that are kept; the text has the numbers. */
HcclResult HcclMemAlloc(void** ptr, size_t bytes);
/** Null does nothing. HCCL_E_PARA: ptr is not of HcclMemAlloc, or is free already. */
HcclResult HcclMemFree(void* ptr);
/** Gives all blocks that are kept back to the device heap, and what is free there to the system. */
HcclResult HcclMemTrim(void);

typedef struct {
  size_t inUse;      /**< bytes of blocks that the program has, as rounded up */
  size_t cached;     /**< bytes of free blocks that are kept */
  size_t cacheLimit; /**< of `cached` */
  size_t heapUsed;   /**< bytes of the device heap in use, these and others */
  size_t heapTotal;  /**< bytes that the device heap can have */
  uint64_t reused;   /**< allocations that took a kept block */
  uint64_t fresh;    /**< allocations that took new memory of the heap */
} HcclMemInfo;
HcclResult HcclMemGetInfo(HcclMemInfo* info);

/* ---- Groups ---- */

/** A communicator of rankNum ranks of `world`: rank i of it is rank rankIds[i] of `world`. Its name
 * is "<world's name>_<name>". Exactly these ranks make the call, with the same arguments.
 * Operations of other communicators, also of `world`, may run meanwhile. The ranks meet by the
 * world alone. The call waits timeoutMs (0: HCCL_CONNECT_TIMEOUT) until all of these ranks have
 * made it. Groups are destroyed before their world.
 *
 * Before its first operation or message the group has no thread, no connection, no descriptor and
 * no shared memory. The first operation ends only when all ranks have begun theirs; HcclSend and
 * HcclRecv are operations, too. It needs the process that made the world's root info. Before it
 * HcclCommDescribeAlgorithms returns HCCL_E_AGAIN.
 *
 * HCCL_E_PARA: `world` is a group, or a living communicator has the name. HCCL_E_UNAVAIL: the
 * process that made the world's root info has ended, and so the world can have no more groups. */
HcclResult HcclCommCreateGroup(HcclComm world, uint32_t rankNum, const uint32_t* rankIds,
                               const char* name, uint64_t timeoutMs, HcclComm* comm);

/* ---- Ending and limits ---- */

/** Ends the communicator on all its ranks, within a second: operations that run, and those that
 * come, fail with HCCL_E_UNAVAIL and a text that has the rank and `reason` (may be null). Any
 * thread, also while another one waits in an operation of the communicator. The communicator is
 * still to be destroyed. Success if it has failed already. */
HcclResult HcclCommAbort(HcclComm comm, const char* reason);

/** For who checks arguments itself before it calls a collective: it has refused one in place of the
 * communicator's next collective. The other ranks do not wait for that until a deadline: those that
 * do, in that place of the order, get HCCL_E_PARA within a second, with both sides of the story:
 * their call and `reason`, which names function and argument. Nothing happens if all ranks refuse.
 * Any thread. Success if the communicator has failed already. */
HcclResult HcclCommRefuse(HcclComm comm, const char* reason);

/** How long each operation that begins from now on may take, in milliseconds; 0: no limit. At
 * first: HCCL_EXEC_TIMEOUT. Any thread. Does not concern HcclIsend and HcclIrecv, whose limit is
 * HcclRequestWait's. A local setting: ranks may differ, and the shortest one ends the operation on
 * all ranks. */
HcclResult HcclCommSetTimeout(HcclComm comm, uint64_t milliseconds);
HcclResult HcclCommGetTimeout(HcclComm comm, uint64_t* milliseconds);

#ifdef __cplusplus
}
#endif
#endif /* HCCL_FRAMEWORK_H_ */
