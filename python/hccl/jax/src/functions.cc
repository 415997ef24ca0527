// The MPI functions that XLA's MpiCollectives calls, under the names that MPItrampoline looks up,
// and the handles and numbers that these functions take. Handles are pointers or numbers of the
// size of a pointer.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "comm.h"
#include "hccl/hccl.h"
#include "hccl/hccl_framework.h"

using hccl::jax::check;
using hccl::jax::Comm;
using hccl::jax::fail;

namespace {

constexpr int kErrorText = 512;  // the caller of MPI_Error_string has at least this many bytes
constexpr int kUndefined = -32766;
constexpr intptr_t kWorld = 1;

// A type's handle has two parts: HCCL's type, and the number of its elements that make one MPI
// element.
constexpr intptr_t handle(HcclDataType type, int elements = 1) { return elements << 16 | type; }
HcclDataType type_of(intptr_t handle) { return static_cast<HcclDataType>(handle & 0xffff); }
int elements_of(intptr_t handle) { return static_cast<int>(handle >> 16); }

// A reduction's handle is never zero.
constexpr intptr_t handle(HcclReduceOp op) { return 1 + op; }

struct Request {
  HcclRequest request;
  HcclComm comm;
};

uint64_t count_of(int count, intptr_t type) {
  return static_cast<uint64_t>(static_cast<int64_t>(count) * elements_of(type));
}

// Returns whether the call can be made. If not, stores the reason for MPI_Error_string.
bool usable(const Comm* comm, int count) {
  if (!comm->failure.empty()) {
    fail(comm->failure);
  } else if (count < 0) {
    fail("a count or a number of bytes is above 2^31-1");
  } else {
    return true;
  }
  return false;
}

bool reducible(const Comm* comm, int count, intptr_t type, intptr_t op) {
  if (!usable(comm, count)) return false;
  if (elements_of(type) == 1 || op == handle(HCCL_REDUCE_SUM)) return true;
  fail("complex numbers can be summed, but hccl has no other reduction of them");
  return false;
}

int begin(HcclResult result, HcclRequest begun, const Comm* comm, Request** request) {
  if (result == HCCL_SUCCESS) *request = new Request{begun, comm->handle};
  return check(result);
}

}  // namespace

#define NUMBER HCCL_JAX_EXPORT const int
#define HANDLE HCCL_JAX_EXPORT const intptr_t

NUMBER mpiwrapper_version_major = 2;
NUMBER mpiwrapper_version_minor = 0;
NUMBER mpiwrapper_version_patch = 0;
NUMBER mpiabi_version_major = 2;  // of MPItrampoline 5.3
NUMBER mpiabi_version_minor = 9;
NUMBER mpiabi_version_patch = 0;

NUMBER MPIABI_SUCCESS = 0;
NUMBER MPIABI_UNDEFINED = kUndefined;
NUMBER MPIABI_THREAD_SINGLE = 0;
NUMBER MPIABI_THREAD_FUNNELED = 1;
NUMBER MPIABI_THREAD_SERIALIZED = 2;
NUMBER MPIABI_THREAD_MULTIPLE = 3;
HANDLE MPIABI_COMM_WORLD = kWorld;
HANDLE MPIABI_COMM_NULL = 0;
HANDLE MPIABI_STATUS_IGNORE = 0;
HANDLE MPIABI_BYTE = handle(HCCL_DATA_TYPE_UINT8);
HANDLE MPIABI_INT8_T = handle(HCCL_DATA_TYPE_INT8);
HANDLE MPIABI_INT16_T = handle(HCCL_DATA_TYPE_INT16);
HANDLE MPIABI_INT32_T = handle(HCCL_DATA_TYPE_INT32);
HANDLE MPIABI_INT64_T = handle(HCCL_DATA_TYPE_INT64);
HANDLE MPIABI_UINT8_T = handle(HCCL_DATA_TYPE_UINT8);
HANDLE MPIABI_UINT16_T = handle(HCCL_DATA_TYPE_UINT16);
HANDLE MPIABI_UINT32_T = handle(HCCL_DATA_TYPE_UINT32);
HANDLE MPIABI_UINT64_T = handle(HCCL_DATA_TYPE_UINT64);
HANDLE MPIABI_FLOAT = handle(HCCL_DATA_TYPE_FP32);
HANDLE MPIABI_DOUBLE = handle(HCCL_DATA_TYPE_FP64);
HANDLE MPIABI_C_COMPLEX = handle(HCCL_DATA_TYPE_FP32, 2);
HANDLE MPIABI_C_DOUBLE_COMPLEX = handle(HCCL_DATA_TYPE_FP64, 2);
HANDLE MPIABI_SUM = handle(HCCL_REDUCE_SUM);
HANDLE MPIABI_PROD = handle(HCCL_REDUCE_PROD);
HANDLE MPIABI_MAX = handle(HCCL_REDUCE_MAX);
HANDLE MPIABI_MIN = handle(HCCL_REDUCE_MIN);

#define FUNCTION HCCL_JAX_EXPORT int

HCCL_JAX_EXPORT void mpiwrapper_export_fortran_constants_() {}

FUNCTION MPIABI_Get_library_version(char* text, int* length) {
  *length = static_cast<int>(std::strlen(std::strcpy(text, "hccl")));
  return HCCL_SUCCESS;
}

FUNCTION MPIABI_Init_thread(int*, char***, int, int* provided) {
  *provided = MPIABI_THREAD_MULTIPLE;
  const std::string& failure = hccl::jax::world().failure;
  return failure.empty() ? HCCL_SUCCESS : fail(failure);
}

FUNCTION MPIABI_Finalize() {
  hccl::jax::leave();
  return HCCL_SUCCESS;
}

// Always true, because any thread may make communicators here. If false, XLA makes none.
FUNCTION MPIABI_Is_thread_main(int* flag) {
  *flag = 1;
  return HCCL_SUCCESS;
}

FUNCTION MPIABI_Comm_split(intptr_t, int color, int key, Comm** comm) {
  *comm = hccl::jax::split(color, key);
  return (*comm)->failure.empty() ? HCCL_SUCCESS : HCCL_E_INTERNAL;
}

FUNCTION MPIABI_Comm_free(Comm** comm) {
  hccl::jax::release(*comm);
  *comm = nullptr;
  return HCCL_SUCCESS;
}

FUNCTION MPIABI_Comm_rank(intptr_t comm, int* rank) {
  const Comm& of = comm == kWorld ? hccl::jax::world() : *reinterpret_cast<const Comm*>(comm);
  *rank = static_cast<int>(of.rank);
  return HCCL_SUCCESS;
}

FUNCTION MPIABI_Comm_size(intptr_t comm, int* size) {
  const Comm& of = comm == kWorld ? hccl::jax::world() : *reinterpret_cast<const Comm*>(comm);
  *size = static_cast<int>(of.size);
  return HCCL_SUCCESS;
}

FUNCTION MPIABI_Error_string(int, char* text, int* length) {
  const std::string& last = hccl::jax::last_failure();
  *length = static_cast<int>(std::min<size_t>(last.size(), kErrorText - 1));
  std::memcpy(text, last.c_str(), static_cast<size_t>(*length));
  text[*length] = '\0';
  return HCCL_SUCCESS;
}

FUNCTION MPIABI_Allreduce(void* send, void* receive, int count, intptr_t type, intptr_t op,
                          Comm* comm) {
  if (!reducible(comm, count, type, op)) return HCCL_E_PARA;
  return check(HcclAllReduce(send, receive, count_of(count, type), type_of(type),
                             static_cast<HcclReduceOp>(op - 1), comm->handle, nullptr));
}

// XLA passes the same count for all ranks.
FUNCTION MPIABI_Reduce_scatter(void* send, void* receive, const int* counts, intptr_t type,
                               intptr_t op, Comm* comm) {
  if (!reducible(comm, counts[0], type, op)) return HCCL_E_PARA;
  if (std::any_of(counts, counts + comm->size, [&](int each) { return each != counts[0]; })) {
    return fail("MPI_Reduce_scatter: the counts differ");
  }
  return check(HcclReduceScatter(send, receive, count_of(counts[0], type), type_of(type),
                                 static_cast<HcclReduceOp>(op - 1), comm->handle, nullptr));
}

FUNCTION MPIABI_Allgather(void* send, int count, intptr_t type, void* receive, int, intptr_t,
                          Comm* comm) {
  if (!usable(comm, count)) return HCCL_E_PARA;
  return check(
      HcclAllGather(send, receive, count_of(count, type), type_of(type), comm->handle, nullptr));
}

FUNCTION MPIABI_Sendrecv(void* send, int bytes, intptr_t, int to, int, void* receive,
                         int receive_bytes, intptr_t, int from, int, Comm* comm, void*) {
  if (!usable(comm, std::min(bytes, receive_bytes))) return HCCL_E_PARA;
  HcclSendRecvItem items[] = {
      {HCCL_SEND, send, static_cast<uint64_t>(bytes), HCCL_DATA_TYPE_UINT8,
       static_cast<uint32_t>(to)},
      {HCCL_RECV, receive, static_cast<uint64_t>(receive_bytes), HCCL_DATA_TYPE_UINT8,
       static_cast<uint32_t>(from)},
  };
  return check(HcclBatchSendRecv(items, 2, comm->handle, nullptr));
}

FUNCTION MPIABI_Isend(const void* data, int bytes, intptr_t, int to, int tag, Comm* comm,
                      Request** request) {
  if (!usable(comm, bytes)) return HCCL_E_PARA;
  HcclRequest begun = nullptr;
  const HcclResult result = HcclIsend(data, static_cast<uint64_t>(bytes), static_cast<uint32_t>(to),
                                      tag, comm->handle, nullptr, nullptr, &begun);
  return begin(result, begun, comm, request);
}

FUNCTION MPIABI_Irecv(void* data, int bytes, intptr_t, int from, int tag, Comm* comm,
                      Request** request) {
  if (!usable(comm, bytes)) return HCCL_E_PARA;
  HcclRequest begun = nullptr;
  const HcclResult result =
      HcclIrecv(data, static_cast<uint64_t>(bytes), static_cast<uint32_t>(from), tag, comm->handle,
                nullptr, nullptr, &begun);
  return begin(result, begun, comm, request);
}

// Waits at most the timeout of operations. If the request has not ended by then, aborts the
// communicator, so that nothing uses the request's memory after the return.
FUNCTION MPIABI_Wait(Request** request, void*) {
  const Request wait = **request;
  delete *request;
  *request = nullptr;
  uint64_t limit = 0;
  HcclCommGetTimeout(wait.comm, &limit);
  const HcclResult result = HcclRequestWait(wait.request, static_cast<int64_t>(limit), nullptr);
  const int code = check(result);
  bool done = false;
  if (HcclRequestTest(wait.request, &done) == HCCL_SUCCESS && !done) {
    HcclCommAbort(wait.comm, "a message of JAX did not arrive in HCCL_EXEC_TIMEOUT");
    HcclRequestWait(wait.request, 0, nullptr);
  }
  HcclRequestFree(wait.request);
  return code;
}
