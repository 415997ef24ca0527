// The communicators that JAX's CPU backend makes, over the public C API.
#ifndef PYTHON_HCCL_JAX_SRC_COMM_H_
#define PYTHON_HCCL_JAX_SRC_COMM_H_

#include <cstdint>
#include <string>

#include "hccl/hccl_comm.h"

#define HCCL_JAX_EXPORT extern "C" __attribute__((visibility("default")))

namespace hccl::jax {

/// The object behind an MPI_Comm. XLA ignores the result of MPI_Comm_split, so a failed split makes
/// an object, too: every call on it fails with the text `failure`.
struct Comm {
  HcclComm handle = nullptr;
  uint32_t rank = 0;
  uint32_t size = 1;
  std::string failure;  ///< empty: the communicator works
};

/// Returns the communicator of the ranks that the launcher started. The first call joins. Any
/// thread may call it.
Comm& world();

/// Makes a communicator of the ranks that pass the same color, ordered by their keys, which must be
/// 0, 1, 2, ... All ranks of the world must call it, in the same order, on any thread. Never
/// returns null. The caller must pass the result to release().
Comm* split(int color, int key);

/// Destroys a communicator of split(). Ignores null, and communicators that leave() has destroyed.
void release(Comm* comm);

/// Destroys all communicators; the world is the last.
void leave();

/// Stores the text for this thread's MPI_Error_string. Also prints the first text of the process on
/// stderr, because JAX may end the process before Python shows the error. Returns HCCL_E_INTERNAL.
int fail(const std::string& text);

/// If `result` is a failure, calls fail() with the library's text. Returns `result`.
int check(HcclResult result);

/// Returns the text of the thread's last failure.
const std::string& last_failure();

}  // namespace hccl::jax

/// Joins the ranks that the launcher started, and returns their communicator. Python calls it
/// before JAX begins, and may use the communicator until then. This library owns the communicator.
/// After a failure, HcclGetLastErrorText() returns the text.
HCCL_JAX_EXPORT HcclResult HcclJaxWorld(HcclComm* comm);

/// Ends all communicators on all ranks, with `reason`. Python calls it when the program of this
/// rank fails.
HCCL_JAX_EXPORT void HcclJaxAbort(const char* reason);

#endif  // PYTHON_HCCL_JAX_SRC_COMM_H_
