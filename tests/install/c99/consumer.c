/* A program in C99 that uses the public headers of the installed libhccl. */
#include <acl/acl.h>
#include <hccl/hccl.h>
#include <hccl/hccl_comm.h>
#include <hccl/hccl_framework.h>
#include <hccl/hccl_fusion.h>
#include <hccl/hccl_types.h>
#include <hccl/hcom.h>
#include <stdio.h>
#include <string.h>

static int failed(const char* what, HcclResult result) {
  if (result == HCCL_SUCCESS) return 0;
  fprintf(stderr, "%s: %s: %s\n", what, HcclGetErrorString(result), HcclGetLastErrorText());
  return 1;
}

static int split(void) {
  float bytes[4] = {8, 8, 8, 8};
  float times[4] = {1, 1, 1, 1};
  const float shares[2] = {50, 50};
  struct model_feature feature = {"model", 4, bytes, times};
  uint32_t* list = NULL;
  uint32_t length = 0;
  bool by_default = true;
  if (failed("strategy", HcomSetGradFusionBySize(NULL, 2, shares))) return 1;
  if (failed("split", HcomGetSplitStrategy(NULL, &feature, &list, &length, &by_default, FORCE_NONE,
                                           KNOWN_SHAPE))) {
    return 1;
  }
  if (by_default || length != 2 || list[0] != 1 || list[1] != 3) return 1;
  HcomFreeSplitStrategy(list);
  return 0;
}

static int fuse(HcclComm comm) {
  float weights[4] = {1, 2, 3, 4};
  const uint32_t last = 0;
  HcclFusionGradient gradient = {"weights", NULL, 4};
  HcclFusionOptions options;
  HcclFusion fusion = NULL;
  gradient.data = weights;
  memset(&options, 0, sizeof options);
  options.dataType = HCCL_DATA_TYPE_FP32;
  options.lastIndices = &last;
  options.segmentNum = 1;
  if (failed("fusion", HcclFusionCreate(comm, &gradient, 1, &options, &fusion))) return 1;
  if (failed("ready", HcclFusionReady(fusion, 0))) return 1;
  if (failed("wait", HcclFusionWait(fusion))) return 1;
  if (failed("trace", HcclFusionTraceWrite(fusion, "/dev/null"))) return 1;
  if (failed("destroy", HcclFusionDestroy(fusion))) return 1;
  return weights[3] == 4 ? 0 : 1;
}

int main(void) {
  aclrtStream stream = NULL;
  HcclComm comm = NULL;
  float value = 42;
  bool there = false;
  if (failed("join", HcclCommInitLauncher(&comm))) return 1;
  if (failed("allreduce", HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM,
                                        comm, stream))) {
    return 1;
  }
  if (failed("world", HcomInitByComm(comm))) return 1;
  if (failed("status", HcomGetInitStatus(&there)) || !there) return 1;
  if (split() || fuse(comm)) return 1;
  if (failed("end of world", HcomDestroy())) return 1;
  if (failed("leave", HcclCommDestroy(comm))) return 1;
  printf("%g\n", (double)value);
  return value == 42 ? 0 : 1;
}
