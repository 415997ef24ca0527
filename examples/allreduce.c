/* The smallest program: every rank gives its number, every rank gets the sum. */
#include <hccl/hccl.h>
#include <hccl/hccl_comm.h>
#include <stdio.h>

static int failed(const char* call, HcclResult result) {
  if (result == HCCL_SUCCESS) return 0;
  fprintf(stderr, "%s: %s: %s\n", call, HcclGetErrorString(result), HcclGetLastErrorText());
  return 1;
}

int main(void) {
  HcclComm comm;
  uint32_t rank, size;
  if (failed("HcclCommInitLauncher", HcclCommInitLauncher(&comm))) return 1;
  if (failed("HcclGetRankId", HcclGetRankId(comm, &rank))) return 1;
  if (failed("HcclGetRankSize", HcclGetRankSize(comm, &size))) return 1;

  float value[2] = {(float)rank, 1.0f};
  if (failed("HcclAllReduce",
             HcclAllReduce(value, value, 2, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, NULL))) {
    return 1;
  }
  printf("rank %u of %u: the ranks add up to %g, there are %g of them\n", rank, size, value[0],
         value[1]);
  return failed("HcclCommDestroy", HcclCommDestroy(comm));
}
