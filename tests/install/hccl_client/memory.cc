#include "memory.h"

#define OMPI_SKIP_MPICXX
#include <mpi.h>

#include "check.h"

namespace {

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

bool device_memory(aclrtPhysicalMemProp* property) {
  int32_t device = 0;
  CLIENT_CHECK(aclrtGetDevice(&device));
  *property = {ACL_MEM_HANDLE_TYPE_NONE,
               ACL_MEM_ALLOCATION_TYPE_PINNED,
               ACL_HBM_MEM_HUGE,
               {static_cast<uint32_t>(device), ACL_MEM_LOCATION_TYPE_DEVICE},
               0};
  return true;
}

// Asks for huge pages; the documented value is 0.
const uint64_t kReserveFlags = 1;
// The only flag that windows have.
const uint32_t kWindowFlags = 1;

}  // namespace

// ---- plain ----

bool PlainMemory::take(size_t send_bytes, size_t recv_bytes, void** send, void** recv) {
  if (send_bytes > 0) CLIENT_CHECK(aclrtMalloc(&send_, send_bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  if (recv_bytes > 0) CLIENT_CHECK(aclrtMalloc(&recv_, recv_bytes, ACL_MEM_MALLOC_HUGE_ONLY));
  *send = send_;
  *recv = recv_;
  return true;
}

bool PlainMemory::give_back() {
  if (send_ != nullptr) CLIENT_CHECK(aclrtFree(send_));
  if (recv_ != nullptr) CLIENT_CHECK(aclrtFree(recv_));
  send_ = recv_ = nullptr;
  return true;
}

// ---- zero copy ----

bool ZeroCopyMemory::reserve(size_t bytes) {
  aclrtPhysicalMemProp property;
  if (!device_memory(&property)) return false;
  CLIENT_CHECK(aclrtMemGetAllocationGranularity(&property, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM,
                                                &granularity_));
  reserved_ = round_up(bytes, granularity_);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  CLIENT_CHECK(aclrtGetMemInfo(ACL_HBM_MEM_HUGE, &free_bytes, &total_bytes));
  if (free_bytes < reserved_ || total_bytes < free_bytes) {
    std::fprintf(stderr, "%zu bytes are free of %zu, not %zu\n", free_bytes, total_bytes,
                 reserved_);
    return false;
  }
  void* base = nullptr;
  CLIENT_CHECK(aclrtReserveMemAddress(&base, reserved_, 0, nullptr, kReserveFlags));
  base_ = static_cast<char*>(base);
  return true;
}

bool ZeroCopyMemory::begin(HcclComm comm) {
  comm_ = comm;
  CLIENT_CHECK(HcclCommSetMemoryRange(comm_, base_, reserved_, 0, 0));
  return true;
}

bool ZeroCopyMemory::take(size_t send_bytes, size_t recv_bytes, void** send, void** recv) {
  const size_t recv_at = round_up(send_bytes, 64);
  const size_t needed = round_up(recv_at + recv_bytes, granularity_);
  if (needed > used_) {
    aclrtPhysicalMemProp property;
    if (!device_memory(&property)) return false;
    const size_t more = needed - used_;
    Block block = {base_ + used_, nullptr};
    CLIENT_CHECK(aclrtMallocPhysical(&block.handle, more, &property, 0));
    CLIENT_CHECK(aclrtMapMem(block.at, more, 0, block.handle, 0));
    CLIENT_CHECK(HcclCommActivateCommMemory(comm_, block.at, more, 0, block.handle, 0));
    blocks_.push_back(block);
    used_ = needed;
  }
  *send = base_;
  *recv = base_ + recv_at;
  return true;
}

bool ZeroCopyMemory::end() {
  for (const Block& block : blocks_) {
    CLIENT_CHECK(HcclCommDeactivateCommMemory(comm_, block.at));
    CLIENT_CHECK(aclrtUnmapMem(block.at));
    CLIENT_CHECK(aclrtFreePhysical(block.handle));
  }
  CLIENT_CHECK(HcclCommUnsetMemoryRange(comm_, base_));
  return true;
}

bool ZeroCopyMemory::release() {
  CLIENT_CHECK(aclrtReleaseMemAddress(base_));
  return true;
}

// ---- symmetric ----

bool SymmetricMemory::begin(HcclComm comm) {
  comm_ = comm;
  return true;
}

bool SymmetricMemory::take(size_t send_bytes, size_t recv_bytes, void** send, void** recv) {
  aclrtPhysicalMemProp property;
  if (!device_memory(&property)) return false;
  size_t granularity = 0;
  CLIENT_CHECK(aclrtMemGetAllocationGranularity(&property, ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED,
                                                &granularity));
  // Windows have the same size on all ranks, buffers need not.
  unsigned long long largest = send_bytes + recv_bytes;
  MPI_Allreduce(MPI_IN_PLACE, &largest, 1, MPI_UNSIGNED_LONG_LONG, MPI_MAX, MPI_COMM_WORLD);
  const size_t size = round_up(largest, granularity);
  CLIENT_CHECK(aclrtReserveMemAddress(&base_, size, 0, nullptr, kReserveFlags));
  CLIENT_CHECK(aclrtMallocPhysical(&handle_, size, &property, 0));
  CLIENT_CHECK(aclrtMapMem(base_, size, 0, handle_, 0));
  CLIENT_CHECK(HcclCommSymWinRegister(comm_, base_, size, &window_, kWindowFlags));
  *send = base_;
  *recv = static_cast<char*>(base_) + send_bytes;
  return true;
}

bool SymmetricMemory::give_back() {
  CLIENT_CHECK(HcclCommSymWinDeregister(window_));
  MPI_Barrier(MPI_COMM_WORLD);
  CLIENT_CHECK(aclrtUnmapMem(base_));
  CLIENT_CHECK(aclrtFreePhysical(handle_));
  CLIENT_CHECK(aclrtReleaseMemAddress(base_));
  return true;
}
