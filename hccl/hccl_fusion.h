/* Gradient fusion for training frameworks: the program passes gradients one by one as backward
 * produces them. Consecutive gradients form a segment, which is one allreduce. Valid C99 and C++.
 *
 *   HcclFusionCreate(comm, gradients, n, &options, &fusion);          once
 *   each iteration: HcclFusionMark(fusion, HCCL_FUSION_FP_START);     optional, for the trace
 *                   ... forward, backward: HcclFusionReady(fusion, i) as gradient i is complete ...
 *                   HcclFusionMark(fusion, HCCL_FUSION_BP_END);       optional
 *                   HcclFusionWait(fusion);                           now every gradient is reduced
 *                   ... update weights ...
 *                   HcclFusionMark(fusion, HCCL_FUSION_ITERATION_END);
 *   HcclFusionDestroy(fusion);                                        before the communicator
 *
 * A segment starts when all of its gradients are ready and all earlier segments have started.
 * Gradients may become ready in any order. If the gradients of a segment are contiguous in memory,
 * they are reduced in place without a copy. Other segments go through a fusion buffer, which is
 * allocated once.
 *
 * With HCCL_SPLIT=auto or HcomSetGradFusionAuto, and if the program has set no strategy, the
 * segments change while training runs. The first iterations run HCCL's default and are measured,
 * every second one without overlap. Then all ranks run each of the planner's few candidates for 10
 * iterations; they change the candidate in the same iteration. The fastest candidate stays. The
 * ranks measure again only if compute or a segment takes over 20 % more or less time than when they
 * last measured. HCCL_LOG=info logs the plan and the reason. HCCL_SPLIT=trace measures in the same
 * way and changes nothing. The traces of measured iterations also contain the time that each rank
 * waited for other ranks, and processor time.
 *
 * Threads: one fusion object is used by one thread at a time. Between Ready(i) and Wait the memory
 * of gradient i belongs to the library. Other operations on the same communicator may be issued
 * only outside that time, and in the same order on all ranks. */
#ifndef HCCL_FUSION_H_
#define HCCL_FUSION_H_

#include "hccl_comm.h"
#include "hccl_types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void* HcclFusion;

typedef struct {
  const char* name; /**< for traces and errors; copied; may be null */
  void* data;       /**< the gradient: input and result of the allreduce */
  uint64_t count;   /**< elements */
} HcclFusionGradient;

typedef struct {
  HcclDataType dataType;
  HcclReduceOp op;
  /** Not 0 (hcom_parallel): the communicator's worker thread reduces a ready segment while the
   * caller computes. 0 (default): segments run in order inside HcclFusionWait. */
  int hcomParallel;
  /** At most one of lastIndices and percentages may be given. Without either, the strategy that
   * HcomSetGradFusionBySize or HcomSetGradFusionByIndex set for `group` applies. If none was set,
   * HCCL's default (96.54 % / 3.46 %) applies. */
  const uint32_t* lastIndices; /**< last gradient of each segment */
  const float* percentages;    /**< each segment's share of the bytes; sum 100 within 1e-3 */
  uint32_t segmentNum;         /**< length of the given list */
  const char* group;           /**< the group whose HCOM strategy applies; null: the world */
} HcclFusionOptions;

/** Makes a fusion object. `gradients` has gradientNum entries, in the order in which backward
 * completes the gradients. Null options mean fp32, sum, serial, default segments. HCCL_E_PARA: no
 * gradients, gradients that overlap, or a strategy that does not fit them (the text gives the
 * reason). Local: no communication. But a call that is refused counts as a refused operation: ranks
 * that wait for this rank get HCCL_E_PARA if it makes no right call within half a second. */
HcclResult HcclFusionCreate(HcclComm comm, const HcclFusionGradient* gradients,
                            uint32_t gradientNum, const HcclFusionOptions* options,
                            HcclFusion* fusion);

/** Moves the fusion object to another communicator, for example one that HcclCommShrink made:
 * gradients, segments and options stay, and an automatic plan measures anew. The iteration begins
 * again: no gradient is marked, and the gradients have undefined values if a segment had started.
 * All ranks of `comm` call this between their iterations. If the old communicator has not failed,
 * the call first finishes the segments whose gradients are all ready, as HcclFusionDestroy does.
 * The old communicator is destroyed after this call. Local: no communication. A failure changes
 * nothing. */
HcclResult HcclFusionRebind(HcclFusion fusion, HcclComm comm);

/** Marks gradient `index` as complete. HCCL_E_PARA (the text names the gradient): index out of
 * range, or gradient marked twice in this iteration. Never blocks on communication. */
HcclResult HcclFusionReady(HcclFusion fusion, uint32_t index);

/** Returns when all segments are reduced, and begins the next iteration. HCCL_E_PARA: a gradient
 * was not marked. The text names the missing gradients, and the iteration can continue: mark them
 * and wait again. The first call compares gradients and segments of the ranks before any data is
 * sent, so the first iteration has no overlap. If the ranks differ, all get HCCL_E_PARA, and the
 * text names the first gradient that differs. Ranks may use different names, but not the same names
 * in different orders. */
HcclResult HcclFusionWait(HcclFusion fusion);

/** Returns when segment `segment` of the current iteration and all earlier segments are reduced, so
 * that the program can update their weights while later segments run. HcclFusionWait must follow.
 * Until then the program may only read the segment's gradients. In the first iteration, either all
 * ranks call this or none. HCCL_E_PARA: no such segment, or some gradient of this segment or an
 * earlier one is not marked. */
HcclResult HcclFusionWaitSegment(HcclFusion fusion, uint32_t segment);

/** Writes the segments of the current iteration: lastIndices[k] is the last gradient of segment k.
 * *segmentNum is the capacity before the call and the number of segments after it. */
HcclResult HcclFusionGetSegments(HcclFusion fusion, uint32_t* lastIndices, uint32_t* segmentNum);

/** Elements [begin, end) of the concatenation of all gradients. */
typedef struct {
  uint64_t begin;
  uint64_t end;
} HcclFusionMessage;

typedef struct {
  const HcclFusionMessage* messages; /**< in the order in which all ranks reduce them */
  uint32_t messageNum;
  double waitInOrder; /**< seconds that the next forward waits with the current segments */
  double wait;        /**< seconds that the next forward waits with these messages */
} HcclFusionOrder;

/** Plans the order of messages with which the next forward waits for the shortest time. The plan is
 * for programs that update the weights of each gradient separately; each part of their forward
 * waits only for the weights that it needs. The plan sends the newest ready gradient first, in
 * chunks. A message may be sent when all earlier messages have been sent and all gradients that the
 * message contains, whole or in part, are ready. To run the plan, make a fusion object with the
 * messages as its gradients, and make each gradient a segment.
 *
 * The plan is based on rank 0's iterations so far and is the same on all ranks. All ranks call this
 * between HcclFusionWait and the next HcclFusionReady. The fusion object owns the plan; it is valid
 * until the next call. HCCL_E_PARA: called within an iteration, or before the first one. */
HcclResult HcclFusionPlanNewestFirst(HcclFusion fusion, HcclFusionOrder* order);

typedef enum {
  HCCL_FUSION_FP_START = 0,
  HCCL_FUSION_BP_END = 1,
  HCCL_FUSION_ITERATION_END = 2
} HcclFusionPoint;

/** Records the time of a point of the iteration in the trace. */
HcclResult HcclFusionMark(HcclFusion fusion, HcclFusionPoint point);

/** Returns the trace of the last complete iteration as text, one point on each line: "<microseconds
 * from the first point> <name>". The names are fp_start, bp_end, allreduce1_start, allreduce1_end,
 * ..., iteration_end. The fusion object owns the text; it is valid until the next call with the
 * object. */
HcclResult HcclFusionTraceText(HcclFusion fusion, const char** text);

/** Writes the traces of this rank's last iterations (1,000, or as many as fit in 16 MiB) that did
 * not fail. The end of the name decides the format. .pb.json: the Protobuf message Trace
 * (hccl/files/plugin/trace.proto) in JSON. Any other .json: Chrome's trace format (opens in
 * Perfetto), which also contains the message Trace. .csv: a table. Any other name: the message in
 * binary. hccl-plan reads all formats but the table. HCCL_E_OPEN_FILE_FAILURE: the file cannot be
 * written completely. */
HcclResult HcclFusionTraceWrite(HcclFusion fusion, const char* path);

/** Finishes, together with the other ranks, the segments whose gradients are all ready. */
HcclResult HcclFusionDestroy(HcclFusion fusion);

#ifdef __cplusplus
}
#endif
#endif /* HCCL_FUSION_H_ */
