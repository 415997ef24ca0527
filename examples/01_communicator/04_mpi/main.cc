// Processes under mpirun: MPI gives each process its rank and distributes the root info. HCCL does
// the rest.
#define OMPI_SKIP_MPICXX  // MPI's C interface is enough
#include <mpi.h>

#include "../../common/check.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);

  ACL_CHECK(aclInit(nullptr));
  uint32_t devices = 0;
  ACL_CHECK(aclrtGetDeviceCount(&devices));
  const auto device = static_cast<int32_t>(rank % devices);
  ACL_CHECK(aclrtSetDevice(device));

  HcclRootInfo root_info;
  if (rank == 0) HCCL_CHECK(HcclGetRootInfo(&root_info));
  MPI_Bcast(&root_info, sizeof root_info, MPI_CHAR, 0, MPI_COMM_WORLD);
  HcclComm comm = nullptr;
  HCCL_CHECK(HcclCommInitRootInfo(size, &root_info, rank, &comm));
  aclrtStream stream = nullptr;
  ACL_CHECK(aclrtCreateStream(&stream));

  float value = rank;
  void* memory = nullptr;
  ACL_CHECK(aclrtMalloc(&memory, sizeof value, ACL_MEM_MALLOC_HUGE_ONLY));
  ACL_CHECK(aclrtMemcpy(memory, sizeof value, &value, sizeof value, ACL_MEMCPY_HOST_TO_DEVICE));

  HCCL_CHECK(HcclAllReduce(memory, memory, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
  ACL_CHECK(aclrtSynchronizeStream(stream));

  ACL_CHECK(aclrtMemcpy(&value, sizeof value, memory, sizeof value, ACL_MEMCPY_DEVICE_TO_HOST));
  std::printf("rank %d of %d: the ranks add up to %g\n", rank, size, value);

  HCCL_CHECK(HcclCommDestroy(comm));
  ACL_CHECK(aclrtFree(memory));
  ACL_CHECK(aclrtDestroyStream(stream));
  ACL_CHECK(aclrtResetDevice(device));
  ACL_CHECK(aclFinalize());
  MPI_Finalize();
}
