/* Times any MPI library by the method of method.h. Build: mpicc -O2 mpi_bench.c method.c page.c
 * values.c
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "method.h"

static int open_mpi(const struct bench_options* options, int* rank, int* size, char* version) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  (void)options;
  if (MPI_Init(NULL, NULL) != MPI_SUCCESS) return 1;
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, size);
  MPI_Get_library_version(text, &length);
  snprintf(version, BENCH_TEXT, "%.*s", (int)strcspn(text, ",\n\""), text);
  return 0;
}

/* Returns MPI_DATATYPE_NULL if the library has no such type. */
static MPI_Datatype type_of(int type) {
  if (type == BENCH_FP32) return MPI_FLOAT;
#if defined(MPIX_C_BF16)
  if (type == BENCH_BF16) return MPIX_C_BF16;
#elif defined(MPIX_BFLOAT16)
  if (type == BENCH_BF16) return MPIX_BFLOAT16;
#endif
  return MPI_DATATYPE_NULL;
}

static int run(int op, int type, void* send, void* recv, size_t count, int root) {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int all = (int)count, block = all / size;
  const MPI_Datatype kind = type_of(type);
  if (kind == MPI_DATATYPE_NULL) return 1;
  switch (op) {
    case BENCH_ALLREDUCE:
      return MPI_Allreduce(MPI_IN_PLACE, recv, all, kind, MPI_SUM, MPI_COMM_WORLD);
    case BENCH_BROADCAST:
      return MPI_Bcast(recv, all, kind, root, MPI_COMM_WORLD);
    case BENCH_ALLGATHER:
      return MPI_Allgather(send, block, kind, recv, block, kind, MPI_COMM_WORLD);
    case BENCH_REDUCE_SCATTER:
      return MPI_Reduce_scatter_block(send, recv, block, kind, MPI_SUM, MPI_COMM_WORLD);
    case BENCH_REDUCE:
      return MPI_Reduce(send, recv, all, kind, MPI_SUM, root, MPI_COMM_WORLD);
    case BENCH_BARRIER:
      return MPI_Barrier(MPI_COMM_WORLD);
    default:
      return MPI_Alltoall(send, block, kind, recv, block, kind, MPI_COMM_WORLD);
  }
}

static void close_mpi(void) { MPI_Finalize(); }

int main(int argc, char** argv) {
  const struct bench_library library = {open_mpi, NULL, NULL, run, close_mpi};
  return bench_main(argc, argv, &library);
}
