// The communicators that JAX's CPU backend makes, over the public C API.
#ifndef PYTHON_HCCL_JAX_SRC_COMM_H_
#define PYTHON_HCCL_JAX_SRC_COMM_H_

#include <cstdint>
#include <string>

#include "hccl/hccl_comm.h"

#define HCCL_JAX_EXPORT extern "C" __attribute__((visibility("default")))

namespace hccl::jax {

/// The object behind an MPI_Comm. XLA does not look at the result of MPI_Comm_split, so a failed
/// split makes one, too: every call on it fails with `failure`.
struct Comm {
  HcclComm handle = nullptr;
  uint32_t rank = 0;
  uint32_t size = 1;
  std::string failure;  ///< empty: the communicator works
};

/// The ranks that the launcher started. The first call joins them. Any thread.
Comm& world();

/// The ranks that give the same color, ordered by their keys, which must be 0, 1, 2, ... All ranks
/// of the world call it, in the same order. Any thread. Never null; the caller gives the
/// communicator back with release().
Comm* split(int color, int key);

/// Destroys a communicator of split(). Null and those that leave() has ended are ignored.
void release(Comm* comm);

/// Destroys all communicators, the world at last.
void leave();

/// Keeps the text for the thread's MPI_Error_string. The first one of the process also goes to
/// stderr: JAX may end the process before Python shows the error. Returns HCCL_E_INTERNAL.
int fail(const std::string& text);

/// fail() with the library's text, if the result is a failure. Returns `result`.
int check(HcclResult result);

/// The text of the thread's last failure.
const std::string& last_failure();

}  // namespace hccl::jax

/// For Python, before JAX begins: joins the ranks that the launcher started. The communicator stays
/// the library's; until JAX begins, the caller may use it. The text of a failure is
/// HcclGetLastErrorText().
HCCL_JAX_EXPORT HcclResult HcclJaxWorld(HcclComm* comm);

/// For Python, when the program of this rank fails: ends all communicators on all ranks, with
/// `reason`.
HCCL_JAX_EXPORT void HcclJaxAbort(const char* reason);

#endif  // PYTHON_HCCL_JAX_SRC_COMM_H_
