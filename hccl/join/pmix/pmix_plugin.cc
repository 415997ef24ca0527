#include "hccl/join/pmix/pmix_plugin.h"

#include <pmix.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "hccl/base/mutex.h"
#include "hccl/base/status.h"
#include "hccl/base/thread.h"
#include "hccl/base/waiter.h"

namespace hccl {
namespace {

Status pmix_error(Code code, const std::string& what, pmix_status_t error) {
  return Status(code, what + " (" + PMIx_Error_string(error) + ")");
}

/// PMIx in this process, initialised once and finalised at exit: after a full finalise PMIx 4.2
/// forgets the job, and neither PMIx nor a later MPI_Init works again. Without a finalise, mpirun
/// considers the end of the process a crash. PMIx counts its users, so MPI may initialise and
/// finalise in between.
class Client {
 public:
  /// Any thread may call. After a failure to start PMIx, the next call tries again.
  static Result<const Client*> get() {
    static Client* const client = new Client;  // never destroyed: the exit handler needs it
    const MutexLock lock(client->mutex_);
    if (client->process_ == 0) {
      const SignalsBlocked blocked;  // PMIx starts threads
      if (const auto r = PMIx_Init(&client->self_, nullptr, 0); r != PMIX_SUCCESS) {
        return pmix_error(Code::kUnavail,
                          "there is no PMIx server; start the program with mpirun or another "
                          "launcher that speaks PMIx",
                          r);
      }
      client->process_ = getpid();
      std::atexit([] {
        // A forked child is no client of the server.
        if (const auto self = get(); self.ok() && self.value()->process_ == getpid()) {
          PMIx_Finalize(nullptr, 0);
        }
      });
    }
    if (client->process_ != getpid()) {
      return Status(Code::kNotSupport, "a forked child cannot use its parent's PMIx");
    }
    return client;
  }

  int rank() const { return static_cast<int>(self_.rank); }

  Result<int> size() const {
    pmix_proc_t job = self_;
    job.rank = PMIX_RANK_WILDCARD;
    pmix_value_t* value = nullptr;
    if (const auto r = PMIx_Get(&job, PMIX_JOB_SIZE, nullptr, 0, &value); r != PMIX_SUCCESS) {
      return pmix_error(Code::kUnavail, "PMIx does not tell the size of the job", r);
    }
    std::uint32_t size = 0;
    const bool understood = value->type == PMIX_UINT32;
    if (understood) size = value->data.uint32;
    PMIX_VALUE_RELEASE(value);
    if (!understood || size == 0 || size > 1u << 24 || self_.rank >= size) {
      return Status(Code::kInternal, "PMIx tells an impossible size of the job");
    }
    return static_cast<int>(size);
  }

  Status publish(const std::string& key, const void* bytes, std::size_t size) const {
    pmix_value_t value;
    PMIX_VALUE_CONSTRUCT(&value);
    value.type = PMIX_BYTE_OBJECT;
    // PMIx_Put copies; it takes no const.
    value.data.bo.bytes = static_cast<char*>(const_cast<void*>(bytes));
    value.data.bo.size = size;
    auto r = PMIx_Put(PMIX_GLOBAL, key.c_str(), &value);
    if (r == PMIX_SUCCESS) r = PMIx_Commit();
    return r == PMIX_SUCCESS ? Status()
                             : pmix_error(Code::kUnavail, "PMIx cannot publish the root info", r);
  }

  /// Waits for the bytes that process 0 publishes, and copies them to `out`.
  Status fetch(const std::string& key, unsigned timeout_seconds, void* out,
               std::size_t size) const {
    pmix_proc_t owner = self_;
    owner.rank = 0;
    const Deadline deadline = Deadline::after(std::chrono::seconds(timeout_seconds));
    pmix_value_t* value = nullptr;
    pmix_status_t result = PMIX_ERR_NOT_FOUND;
    const auto there = [&] {
      // The server answers only after the owner's first commit. Until the owner commits the key,
      // the answer is "not found", so this loop asks again; each request takes one second at most.
      int one = 1;
      bool refresh = true;
      pmix_info_t info[2];
      PMIX_INFO_CONSTRUCT(&info[0]);
      PMIX_INFO_CONSTRUCT(&info[1]);
      PMIX_INFO_LOAD(&info[0], PMIX_TIMEOUT, &one, PMIX_INT);
      PMIX_INFO_LOAD(&info[1], PMIX_GET_REFRESH_CACHE, &refresh, PMIX_BOOL);
      result = PMIx_Get(&owner, key.c_str(), info, 2, &value);
      PMIX_INFO_DESTRUCT(&info[0]);
      PMIX_INFO_DESTRUCT(&info[1]);
      return result != PMIX_ERR_NOT_FOUND && result != PMIX_ERR_PROC_ENTRY_NOT_FOUND &&
             result != PMIX_ERR_TIMEOUT;
    };
    // A request costs a round trip to the server, so there are 20 ms between two requests.
    while (!there()) {
      if (deadline.expired()) {
        return pmix_error(Code::kTimeout,
                          "process 0 did not publish the root info within " +
                              std::to_string(timeout_seconds) + " s",
                          result);
      }
      nap(std::chrono::milliseconds(20), deadline);
    }
    if (result != PMIX_SUCCESS) {
      return pmix_error(Code::kUnavail, "PMIx cannot fetch the root info of process 0", result);
    }
    Status status;
    if (value->type != PMIX_BYTE_OBJECT || value->data.bo.size != size) {
      status = Status(Code::kPara, "process 0 published a root info of another size or version");
    } else {
      std::memcpy(out, value->data.bo.bytes, size);
      explicit_bzero(value->data.bo.bytes, size);  // the blob holds a secret
    }
    PMIX_VALUE_RELEASE(value);
    return status;
  }

 private:
  Client() = default;
  Mutex mutex_;
  pid_t process_ = 0;  ///< the process that initialised PMIx; 0: none yet
  pmix_proc_t self_{};
};

int report(const Status& status, char* error, std::size_t error_size) {
  std::snprintf(error, error_size, "%s", status.message().c_str());
  return static_cast<int>(status.code());
}

Status world(int* rank, int* size) {
  HCCL_ASSIGN_OR_RETURN(const Client* const client, Client::get());
  HCCL_ASSIGN_OR_RETURN(*size, client->size());
  *rank = client->rank();
  return Status();
}

Status share(void* blob, std::size_t bytes, std::uint64_t instance, unsigned timeout_seconds) {
  HCCL_ASSIGN_OR_RETURN(const Client* const client, Client::get());
  const std::string key = "hccl.root_info." + std::to_string(instance);
  return client->rank() == 0 ? client->publish(key, blob, bytes)
                             : client->fetch(key, timeout_seconds, blob, bytes);
}

}  // namespace
}  // namespace hccl

int hccl_pmix_world(int* rank, int* size, char* error, size_t error_size) {
  return hccl::report(hccl::world(rank, size), error, error_size);
}

int hccl_pmix_share(void* blob, size_t bytes, uint64_t instance, unsigned timeout_seconds,
                    char* error, size_t error_size) {
  return hccl::report(hccl::share(blob, bytes, instance, timeout_seconds), error, error_size);
}
