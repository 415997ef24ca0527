// Ranks as threads, in one process or in several under mpirun, all in one communicator:
//   mixed_ranks_test THREADS
// Each thread is a device and a rank. Every symmetric operator runs on a stream of its own, on
// device memory, on ordinary memory, and on both mixed. The test compares every element with its
// expected value.
#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "hccl/hccl.h"
#include "hccl/hccl_comm.h"

namespace {

std::atomic<int> wrong{0};

#define CHECK_OK(call)                                                                         \
  do {                                                                                         \
    const int code = static_cast<int>(call);                                                   \
    if (code != 0) {                                                                           \
      std::fprintf(stderr, "rank %u: %s: %d %s\n", rank, #call, code, HcclGetLastErrorText()); \
      ++wrong;                                                                                 \
      return;                                                                                  \
    }                                                                                          \
  } while (0)

int64_t element(uint32_t rank, uint64_t i) {
  return static_cast<int64_t>(rank * 1000003ull + i * 7ull + 1);
}

enum class Memory { kDevice, kOrdinary, kMixed };

/// `count` elements of the kind of memory that this rank uses.
class Buffer {
 public:
  Buffer(Memory memory, uint32_t rank, uint64_t count)
      : on_device_(memory == Memory::kDevice || (memory == Memory::kMixed && rank % 2 == 0)) {
    const size_t bytes = count * sizeof(int64_t);
    if (on_device_) {
      void* place = nullptr;
      if (aclrtMalloc(&place, bytes, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS) std::abort();
      data = static_cast<int64_t*>(place);
    } else {
      data = static_cast<int64_t*>(std::malloc(bytes));
    }
  }
  ~Buffer() {
    if (on_device_) {
      aclrtFree(data);
    } else {
      std::free(data);
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  int64_t* data;

 private:
  bool on_device_;
};

void rank_main(uint32_t rank, uint32_t size, int32_t device, const HcclRootInfo& root_info) {
  CHECK_OK(aclrtSetDevice(device));
  HcclComm comm = nullptr;
  CHECK_OK(HcclCommInitRootInfo(size, &root_info, rank, &comm));
  aclrtStream stream = nullptr;
  CHECK_OK(aclrtCreateStream(&stream));
  for (const Memory memory : {Memory::kDevice, Memory::kOrdinary, Memory::kMixed}) {
    for (const uint64_t count : {1ull, 5ull, 700ull, 9000ull, 90000ull}) {
      Buffer in(memory, rank, count * size);
      Buffer out(memory, rank, count * size);
      const auto fill = [&] {
        for (uint64_t i = 0; i < count * size; ++i) in.data[i] = element(rank, i);
        std::memset(out.data, 0, count * size * sizeof(int64_t));
      };
      const auto expect = [&](const char* what, uint64_t first, uint64_t n, auto expected) {
        if (aclrtSynchronizeStream(stream) != ACL_SUCCESS) {
          std::fprintf(stderr, "rank %u: %s failed: %s\n", rank, what, aclGetRecentErrMsg());
          ++wrong;
          return;
        }
        for (uint64_t i = 0; i < n; ++i) {
          if (out.data[first + i] == expected(i)) continue;
          std::fprintf(stderr, "rank %u: %s of %lu: element %lu is %ld, not %ld\n", rank, what,
                       static_cast<unsigned long>(count), static_cast<unsigned long>(first + i),
                       static_cast<long>(out.data[first + i]), static_cast<long>(expected(i)));
          ++wrong;
          return;
        }
      };
      const auto sum = [&](uint64_t i) {
        int64_t total = 0;
        for (uint32_t r = 0; r < size; ++r) total += element(r, i);
        return total;
      };
      fill();
      CHECK_OK(HcclAllReduce(in.data, out.data, count, HCCL_DATA_TYPE_INT64, HCCL_REDUCE_SUM, comm,
                             stream));
      expect("allreduce", 0, count, sum);
      fill();
      CHECK_OK(HcclReduceScatter(in.data, out.data, count, HCCL_DATA_TYPE_INT64, HCCL_REDUCE_SUM,
                                 comm, stream));
      expect("reduce-scatter", 0, count, [&](uint64_t i) { return sum(rank * count + i); });
      fill();
      CHECK_OK(HcclAllGather(in.data, out.data, count, HCCL_DATA_TYPE_INT64, comm, stream));
      for (uint32_t r = 0; r < size; ++r) {
        expect("allgather", r * count, count, [&](uint64_t i) { return element(r, i); });
      }
      fill();
      CHECK_OK(HcclAlltoAll(in.data, count, HCCL_DATA_TYPE_INT64, out.data, count,
                            HCCL_DATA_TYPE_INT64, comm, stream));
      for (uint32_t r = 0; r < size; ++r) {
        expect("alltoall", r * count, count,
               [&](uint64_t i) { return element(r, rank * count + i); });
      }
      const uint32_t root = static_cast<uint32_t>(count % size);
      fill();
      CHECK_OK(HcclReduce(in.data, out.data, count, HCCL_DATA_TYPE_INT64, HCCL_REDUCE_SUM, root,
                          comm, stream));
      if (rank == root) expect("reduce", 0, count, sum);
      CHECK_OK(aclrtSynchronizeStream(stream));
      fill();
      if (rank == root) std::memcpy(out.data, in.data, count * sizeof(int64_t));
      CHECK_OK(HcclBroadcast(out.data, count, HCCL_DATA_TYPE_INT64, root, comm, stream));
      expect("broadcast", 0, count, [&](uint64_t i) { return element(root, i); });
      fill();
      CHECK_OK(HcclScatter(in.data, out.data, count, HCCL_DATA_TYPE_INT64, root, comm, stream));
      expect("scatter", 0, count, [&](uint64_t i) { return element(root, rank * count + i); });
      // Rank r sends rank p the first (r + p) % 3 thirds of a block.
      std::vector<uint64_t> gives(size), takes(size), at(size);
      for (uint32_t p = 0; p < size; ++p) {
        gives[p] = count * ((rank + p) % 3) / 3;
        takes[p] = gives[p];  // the length is the same in both directions
        at[p] = p * count;
      }
      fill();
      CHECK_OK(HcclAlltoAllV(in.data, gives.data(), at.data(), HCCL_DATA_TYPE_INT64, out.data,
                             takes.data(), at.data(), HCCL_DATA_TYPE_INT64, comm, stream));
      for (uint32_t r = 0; r < size; ++r) {
        expect("alltoallv", r * count, takes[r],
               [&](uint64_t i) { return element(r, rank * count + i); });
      }
      CHECK_OK(HcclBarrier(comm, stream));
      CHECK_OK(aclrtSynchronizeStream(stream));
      if (wrong != 0) break;
    }
  }
  CHECK_OK(HcclCommDestroy(comm));
  CHECK_OK(aclrtDestroyStream(stream));
  CHECK_OK(aclrtResetDevice(device));
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const uint32_t threads = argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 1;
  int process = 0;
  int processes = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &process);
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  const uint32_t size = threads * static_cast<uint32_t>(processes);
  aclInit(nullptr);
  HcclRootInfo root_info;
  if (process == 0 && HcclGetRootInfo(&root_info) != HCCL_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Bcast(&root_info, sizeof root_info, MPI_BYTE, 0, MPI_COMM_WORLD);
  std::vector<std::thread> ranks;
  for (uint32_t t = 0; t < threads; ++t) {
    const uint32_t rank = static_cast<uint32_t>(process) * threads + t;
    ranks.emplace_back(
        [=, &root_info] { rank_main(rank, size, static_cast<int32_t>(t), root_info); });
  }
  for (std::thread& each : ranks) each.join();
  aclFinalize();
  int all = wrong;
  MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (process == 0) {
    std::printf("%u ranks, %u in each of %d processes: %s\n", size, threads, processes,
                all == 0 ? "right" : "WRONG");
  }
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
