// Times this project's library by the method of method.h. Needs no launcher: BENCH_RANK and
// BENCH_SIZE give rank and size. With HCCL_TRANSPORT=tcp it times the tcp cases; with --memory heap
// it allocates with aclrtMalloc. It calls only the public interface, so it can time any version of
// the library that LD_LIBRARY_PATH names.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "acl/acl.h"
#include "benchmarks/rivals/method.h"
#include "hccl/hccl.h"

namespace {

HcclComm world = nullptr;
bool heap = false;
uint64_t ranks = 1;

int check(HcclResult result, const char* what) {
  if (result == HCCL_SUCCESS) return 0;
  std::fprintf(stderr, "hccl: %s: %s: %s\n", what, HcclGetErrorString(result),
               HcclGetLastErrorText());
  return 1;
}

int open_hccl(const bench_options* options, int* rank, int* size, char* version) {
  heap = std::strcmp(options->memory, "heap") == 0;
  if (!heap && std::strcmp(options->memory, "private") != 0) {
    std::fprintf(stderr, "hccl: --memory is heap or private\n");
    return 1;
  }
  if (heap && aclrtSetDevice(0) != ACL_SUCCESS) {
    std::fprintf(stderr, "hccl: aclrtSetDevice failed\n");
    return 1;
  }
  *rank = bench_environment("BENCH_RANK");
  *size = bench_environment("BENCH_SIZE");
  ranks = static_cast<uint64_t>(*size);
  HcclRootInfo root;
  if (*rank == 0) {
    if (check(HcclGetRootInfo(&root), "HcclGetRootInfo")) return 1;
    bench_post(&root, sizeof root);
  } else {
    bench_fetch(&root, sizeof root);
  }
  if (check(HcclCommInitRootInfo(static_cast<uint32_t>(ranks), &root, static_cast<uint32_t>(*rank),
                                 &world),
            "HcclCommInitRootInfo")) {
    return 1;
  }
  Dl_info where{};
  void* function = ::dlsym(RTLD_DEFAULT, "HcclAllReduce");
  if (function == nullptr || ::dladdr(function, &where) == 0) return 1;
  std::snprintf(version, BENCH_TEXT, "hccl %s", where.dli_fname);
  return 0;
}

void* allocate(size_t bytes) {
  void* memory = nullptr;
  if (!heap) return ::posix_memalign(&memory, 4096, bytes) == 0 ? memory : nullptr;
  return aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS ? memory : nullptr;
}

int run(int op, int type, void* send, void* recv, size_t count, int root) {
  const HcclDataType kTypes[] = {HCCL_DATA_TYPE_FP32, HCCL_DATA_TYPE_FP16, HCCL_DATA_TYPE_BFP16};
  const HcclDataType data = kTypes[type];
  const uint64_t block = count / ranks;
  switch (op) {
    case BENCH_ALLREDUCE:
      return check(HcclAllReduce(send, recv, count, data, HCCL_REDUCE_SUM, world, nullptr),
                   "allreduce");
    case BENCH_BROADCAST:
      return check(HcclBroadcast(recv, count, data, static_cast<uint32_t>(root), world, nullptr),
                   "broadcast");
    case BENCH_ALLGATHER:
      return check(HcclAllGather(send, recv, block, data, world, nullptr), "allgather");
    case BENCH_REDUCE_SCATTER:
      return check(HcclReduceScatter(send, recv, block, data, HCCL_REDUCE_SUM, world, nullptr),
                   "reduce-scatter");
    case BENCH_REDUCE:
      return check(HcclReduce(send, recv, count, data, HCCL_REDUCE_SUM, static_cast<uint32_t>(root),
                              world, nullptr),
                   "reduce");
    case BENCH_BARRIER:
      return check(HcclBarrier(world, nullptr), "barrier");
    default:
      return check(HcclAlltoAll(send, block, data, recv, block, data, world, nullptr), "alltoall");
  }
}

void close_hccl() { check(HcclCommDestroy(world), "HcclCommDestroy"); }

}  // namespace

int main(int argc, char** argv) {
  const bench_library library = {open_hccl, allocate, nullptr, run, close_hccl};
  return bench_main(argc, argv, &library);
}
