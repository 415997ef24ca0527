/* Gradient fusion for training frameworks: gradients are handed over one by one as backward
 * produces them; each segment (consecutive gradients) is one allreduce. Valid C99 and C++.
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
 * Gradients may become ready in any order. A segment whose gradients are contiguous in memory is
 * reduced in place without a copy; any other segment goes through a fusion buffer, allocated once.
 *
 * Without a strategy of the program, and with HCCL_SPLIT=auto or HcomSetGradFusionAuto, the
 * segments change while training runs: the first iterations run HCCL's default and are measured
 * (every second one of them without overlap); then all ranks change, in the same iteration, to the
 * segments whose last allreduce ends first, and again only when another plan promises more than 1 %
 * three times in a row. HCCL_LOG=info logs the plan and the reason. HCCL_SPLIT=trace measures in
 * the same way and changes nothing. The traces of such iterations also contain the time that each
 * rank waited for other ranks, and processor time.
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
  /** Not 0: hcom_parallel, a ready segment is reduced by the communicator's worker thread while the
   * caller computes. 0 (default): segments run, in order, inside HcclFusionWait. */
  int hcomParallel;
  /** Exactly one of the two may be given; neither: the strategy set for `group` with
   * HcomSetGradFusionBySize / ByIndex, else HCCL's default (96.54 % / 3.46 %). */
  const uint32_t* lastIndices; /**< last gradient of each segment */
  const float* percentages;    /**< of the bytes, per segment; sum 100 within 1e-3 */
  uint32_t segmentNum;         /**< length of the given list */
  const char* group;           /**< whose HCOM strategy applies; null: the world group */
} HcclFusionOptions;

/** gradients: gradientNum entries in the order backward completes them. options may be null: fp32,
 * sum, serial, default segments. HCCL_E_PARA: no gradients, or a strategy that does not fit them
 * (the text gives the reason). Local: no communication. */
HcclResult HcclFusionCreate(HcclComm comm, const HcclFusionGradient* gradients,
                            uint32_t gradientNum, const HcclFusionOptions* options,
                            HcclFusion* fusion);

/** Gradient `index` is complete. HCCL_E_PARA (the text names the gradient): index out of range, or
 * marked twice in this iteration. Never blocks on communication. */
HcclResult HcclFusionReady(HcclFusion fusion, uint32_t index);

/** Returns when all segments are reduced, and begins the next iteration. HCCL_E_PARA if a gradient
 * was never marked; the text names the missing ones, and the iteration can continue: mark them and
 * wait again. The first time, ranks compare their gradients and segments before anything is sent
 * (so nothing overlaps yet): if they differ, HCCL_E_PARA on all of them, naming the first gradient
 * that does. */
HcclResult HcclFusionWait(HcclFusion fusion);

/** Returns when segment `segment` of the iteration at hand, and all before it, are reduced: so that
 * its weights can be updated while later segments run. HcclFusionWait must follow, and the memory
 * of the segment's gradients belongs to the library until then but for reading. On all ranks or
 * none in the first iteration. HCCL_E_PARA: no such segment, or not all of its gradients, and of
 * those before, are marked. */
HcclResult HcclFusionWaitSegment(HcclFusion fusion, uint32_t segment);

/** The segments of the iteration at hand as index pairs: lastIndices[k] for k < *segmentNum (in:
 * capacity, out: number). */
HcclResult HcclFusionGetSegments(HcclFusion fusion, uint32_t* lastIndices, uint32_t* segmentNum);

/** Elements [begin, end) of all gradients, one behind the other. */
typedef struct {
  uint64_t begin;
  uint64_t end;
} HcclFusionMessage;

typedef struct {
  const HcclFusionMessage* messages; /**< in the order in which all ranks reduce them */
  uint32_t messageNum;
  double waitInOrder; /**< seconds that the next forward waits, with the segments at hand */
  double wait;        /**< and with these messages */
} HcclFusionOrder;

/** For programs that update the weights of each gradient on its own, and whose next forward waits
 * for what it needs only: the order with which it waits the shortest. The newest gradient that is
 * ready goes first, in chunks. A message may be sent when all gradients that it has a part of are
 * ready, and those before it have been: a fusion object with the messages as its gradients, each a
 * segment, does that. Planned from rank 0's iterations so far; the same on all ranks, which call
 * this between HcclFusionWait and the next HcclFusionReady. Owned by the fusion object; valid until
 * the next call. HCCL_E_PARA: within an iteration, or before there was one. */
HcclResult HcclFusionPlanNewestFirst(HcclFusion fusion, HcclFusionOrder* order);

typedef enum {
  HCCL_FUSION_FP_START = 0,
  HCCL_FUSION_BP_END = 1,
  HCCL_FUSION_ITERATION_END = 2
} HcclFusionPoint;

/** Notes the time of a point of the iteration for the trace. */
HcclResult HcclFusionMark(HcclFusion fusion, HcclFusionPoint point);

/** The trace of the last complete iteration as text, one point a line: "<microseconds from the
 * first point> <name>", names fp_start, bp_end, allreduce1_start, allreduce1_end, ...,
 * iteration_end. Owned by the fusion object; valid until the next call with it. */
HcclResult HcclFusionTraceText(HcclFusion fusion, const char** text);

/** Writes the traces of this rank's last iterations (1,000, or as many as fit in 16 MiB): .pb.json
 * gives the Protobuf message Trace (hccl/files/plugin/trace.proto) in JSON, any other .json
 * Chrome's trace format (opens in Perfetto), .csv a table, any other name the message in binary.
 * HCCL_E_OPEN_FILE_FAILURE: it cannot be written whole. */
HcclResult HcclFusionTraceWrite(HcclFusion fusion, const char* path);

/** Finishes, together with the other ranks, the segments whose gradients are all ready. */
HcclResult HcclFusionDestroy(HcclFusion fusion);

#ifdef __cplusplus
}
#endif
#endif /* HCCL_FUSION_H_ */
