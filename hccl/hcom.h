/* HCOM: communicators by name ("groups"), and the gradient split strategy of each group.
 * Valid C99 and C++. A null group means the world, "hccl_world_group". Names have 1..127 bytes. */
#ifndef HCCL_HCOM_H_
#define HCCL_HCOM_H_

#include "acl/acl.h"
#include "hccl_types.h"

#ifdef __cplusplus
#include <cstdbool>
#define HCCL_DEFAULT(value) = value
extern "C" {
#else
#include <stdbool.h>
#define HCCL_DEFAULT(value)
#endif

#define HCCL_WORLD_GROUP "hccl_world_group"
#define HCCL_MAX_SEGMENT_NUM 8
#define HCOM_GROUP_NAME_MAX_LEN 127

typedef enum { FORCE_NONE = 0, FORCE_SIZE = 1, FORCE_RESERVED = 2 } GradSplitForceMode;
typedef enum { KNOWN_SHAPE = 0, UNKNOWN_SHAPE = 1, SHAPE_RESERVED = 2 } OriginalGraphShapeType;

/** The gradients of one model, in the order of their allreduce operations. */
struct model_feature {
  const char* model_name;
  uint32_t gradient_num;
  float* gradient_size; /**< bytes */
  float* gradient_time; /**< microseconds from the previous gradient to this one */
};

/** Joins the world that a rank table file (.json) describes. identify is this rank's rank_id in
 * decimal digits. HCCL_E_UNAVAIL if the world exists. */
HcclResult HcomInitByFile(const char* rankTablePath, const char* identify);
/** As HcomInitByFile, but rankTable is the text of the table. */
HcclResult HcomInitByString(const char* rankTable, const char* identify);
/** Joins the world that the launcher started; see HcclCommInitLauncher. An addition to HCCL's
 * interface. */
HcclResult HcomInitByLauncher(void);
/** Makes an existing communicator the world. The caller still owns comm and destroys it after
 * HcomDestroy. An addition to HCCL's interface. */
HcclResult HcomInitByComm(HcclComm comm);
/** Leaves the world. Destroys all groups. Removes all split strategies, and the stored requests for
 * groups (HcomCreateGroup). HCCL_E_UNAVAIL: there is no world. HCCL_E_AGAIN: a group is in use;
 * nothing has changed. */
HcclResult HcomDestroy(void);
HcclResult HcomGetInitStatus(bool* initialized);

HcclResult HcomGetRankSize(const char* group, uint32_t* rankSize);
HcclResult HcomGetRankId(const char* group, uint32_t* rankId);
HcclResult HcomGetLocalRankSize(const char* group, uint32_t* localRankSize);
HcclResult HcomGetLocalRankId(const char* group, uint32_t* localRankId);
HcclResult HcomGetWorldRankFromGroupRank(const char* group, uint32_t groupRank,
                                         uint32_t* worldRank);
/** HCCL defines the unusual order of the arguments. */
HcclResult HcomGetGroupRankFromWorldRank(uint32_t worldRank, const char* group,
                                         uint32_t* groupRank);

/** Makes a group; every member calls this. The ids are sorted; a rank's group rank is its position
 * in the sorted list. Before the world exists, the request is stored, and joining the world makes
 * the group. If a group cannot be made, joining fails with the error of its request, and there is
 * no world. HCCL_E_PARA: the world's name, an existing name, rankNum 0 or > world, an id out of
 * range or twice. HCCL_E_NOT_FOUND: the caller is not a member. */
HcclResult HcomCreateGroup(const char* group, uint32_t rankNum, uint32_t* rankIds);
/** HCCL_E_NOT_FOUND: no such group; HCCL_E_PARA: the world; HCCL_E_AGAIN: the group is in use. */
HcclResult HcomDestroyGroup(const char* group);
bool HcomFindGroup(const char* group);
/** The communicator of a group, for use with hccl.h and hccl_fusion.h. The group owns it. */
HcclResult HcomGetCommHandleByGroup(const char* group, HcclComm* comm);

/** Operations on a group, with the rules of hccl.h. tag is a name for logs, 1..255 bytes. */
HcclResult HcomAllReduce(const char* tag, void* inputPtr, void* outputPtr, uint64_t count,
                         HcclDataType dataType, HcclReduceOp op, const char* group,
                         aclrtStream stream);
HcclResult HcomBroadcast(const char* tag, void* ptr, uint64_t count, HcclDataType dataType,
                         uint32_t root, const char* group, aclrtStream stream);
HcclResult HcomReduceScatter(const char* tag, void* inputPtr, void* outputPtr, uint64_t count,
                             HcclDataType dataType, HcclReduceOp op, const char* group,
                             aclrtStream stream);
HcclResult HcomAllGather(const char* tag, void* inputPtr, void* outputPtr, uint64_t inputCount,
                         HcclDataType dataType, const char* group, aclrtStream stream);
HcclResult HcomReduce(const char* tag, void* inputPtr, void* outputPtr, uint64_t count,
                      HcclDataType dataType, HcclReduceOp op, uint32_t root, const char* group,
                      aclrtStream stream);
/** srTag: HcomSend and its HcomReceive have the same srTag, or both ranks get HCCL_E_PARA. srTag
 * does not select a message: the k-th HcomSend to a rank is for that rank's k-th HcomReceive. */
HcclResult HcomSend(const char* tag, void* inputPtr, uint64_t count, HcclDataType dataType,
                    uint32_t destRank, uint32_t srTag, const char* group, aclrtStream stream);
HcclResult HcomReceive(const char* tag, void* outputPtr, uint64_t count, HcclDataType dataType,
                       uint32_t srcRank, uint32_t srTag, const char* group, aclrtStream stream);

HcclResult HcomReduceScatterV(const char* tag, void* sendBuf, const void* sendCounts,
                              const void* sdispls, void* recvBuf, uint64_t recvCount,
                              HcclDataType dataType, HcclReduceOp op, const char* group,
                              aclrtStream stream);
HcclResult HcomAllGatherV(const char* tag, const void* sendBuf, uint64_t sendCount,
                          const void* recvBuf, const void* recvCounts, const void* rdispls,
                          HcclDataType dataType, const char* group, aclrtStream stream);
/* In these three functions the tag comes last: HCCL defines the order. */
HcclResult HcomAlltoAllV(const void* sendBuf, const void* sendCounts, const void* sdispls,
                         HcclDataType sendType, const void* recvBuf, const void* recvCounts,
                         const void* rdispls, HcclDataType recvType, const char* group,
                         aclrtStream stream, const char* tag);
HcclResult HcomAlltoAllVC(const void* sendBuf, const void* sendCountMatrix, HcclDataType sendType,
                          const void* recvBuf, HcclDataType recvType, const char* group,
                          aclrtStream stream, const char* tag);
HcclResult HcomAllToAll(const void* sendBuf, uint64_t sendCount, HcclDataType sendType,
                        const void* recvBuf, uint64_t recvCount, HcclDataType recvType,
                        const char* group, aclrtStream stream, const char* tag);

/** Cuts the group's gradients after these indices. The indices must ascend, and the last index must
 * be the index of the last gradient. */
HcclResult HcomSetGradFusionByIndex(const char* group, uint32_t segmentNum,
                                    const uint32_t* idxList);
/** Cuts the group's gradients so that each segment has its percentage of the bytes (sum 100 within
 * 1e-3). Takes precedence over a setting by index. A second call replaces the first. */
HcclResult HcomSetGradFusionBySize(const char* group, uint32_t segmentNum, const float* sizeList);
/** If the group has no setting by index or by size, cuts its gradients by a plan that is computed
 * from times measured during training (see hccl_fusion.h). The plan is the same on all ranks. All
 * ranks must call this function. HCCL_SPLIT=auto has the same effect for every group. An addition
 * to HCCL's interface. */
HcclResult HcomSetGradFusionAuto(const char* group);
/** Computes the last gradient index of each segment. *segmentIdxPtr is allocated by new uint32_t[]:
 * free it with HcomFreeSplitStrategy (or delete[]). *configured is false if the user's strategy was
 * used, true if the default ratio was used. HCCL_E_PTR: any null pointer. HCCL_E_PARA: no
 * gradients, or a strategy that does not fit them. The call is local, unless the group exists and
 * has an automatic plan. Then every rank of the group must make the call, with its own times for
 * the same gradients. The exact plan is computed from feature->gradient_time and a measurement of
 * at most about 50 ms, and *configured is false. */
HcclResult HcomGetSplitStrategy(const char* group, const struct model_feature* feature,
                                uint32_t** segmentIdxPtr, uint32_t* len, bool* configured,
                                GradSplitForceMode force HCCL_DEFAULT(FORCE_NONE),
                                OriginalGraphShapeType shapeType HCCL_DEFAULT(KNOWN_SHAPE));
/** Frees the result of HcomGetSplitStrategy in C. An addition to HCCL's interface. */
void HcomFreeSplitStrategy(uint32_t* segmentIdx);

#ifdef __cplusplus
}
#endif
#undef HCCL_DEFAULT
#endif /* HCCL_HCOM_H_ */
