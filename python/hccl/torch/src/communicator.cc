#include "communicator.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "error.h"
#include "hccl/hccl_framework.h"

namespace hccl::pytorch {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// torchrun restarts ranks with the store of the attempt before. So rank 0 removes the key when all
// have joined; and if ranks die before, the number of the attempt is in the key, which the agents
// of several hosts do not agree on.
std::string root_info_key() {
  const bool one_host = environment("LOCAL_WORLD_SIZE") == environment("WORLD_SIZE");
  const std::string attempt = environment("TORCHELASTIC_RESTART_COUNT");
  return "hccl/" + (one_host && !attempt.empty() ? attempt : "0");
}

using Bytes = std::vector<uint8_t>;

// On failure the other ranks get the reason instead, which is shorter.
HcclRootInfo make_root_info(c10d::Store& store, const std::string& key) {
  HcclRootInfo info;
  const HcclResult result = HcclGetRootInfo(&info);
  const std::string text =
      result == HCCL_SUCCESS ? std::string() : failure_text(result, "root info");
  const char* begin = result == HCCL_SUCCESS ? info.internal : text.data();
  const size_t length = result == HCCL_SUCCESS ? sizeof info.internal : text.size();
  store.set(key, Bytes(begin, begin + length));
  check(result, "root info");
  return info;
}

HcclRootInfo get_root_info(c10d::Store& store, const std::string& key,
                           std::chrono::milliseconds timeout) {
  store.wait({key}, timeout);
  const Bytes bytes = store.get(key);
  HcclRootInfo info;
  TORCH_CHECK_WITH(
      DistBackendError, bytes.size() == sizeof info.internal,
      "hccl: rank 0 of the group cannot be joined: ", std::string(bytes.begin(), bytes.end()));
  std::memcpy(info.internal, bytes.data(), sizeof info.internal);
  return info;
}

}  // namespace

Communicator::Communicator(c10d::Store& store, int rank, int size,
                           std::chrono::milliseconds timeout) {
  const std::string key = root_info_key();
  const HcclRootInfo info =
      rank == 0 ? make_root_info(store, key) : get_root_info(store, key, timeout);
  check(HcclCommInitRootInfo(static_cast<uint32_t>(size), &info, static_cast<uint32_t>(rank),
                             &handle_),
        "init_process_group");
  if (rank == 0) store.deleteKey(key);
}

void Communicator::set_timeout(std::chrono::milliseconds timeout) {
  if (timeout == timeout_) return;
  check(HcclCommSetTimeout(handle_, static_cast<uint64_t>(timeout.count())), "set_timeout");
  timeout_ = timeout;
}

void Communicator::abort(const char* reason) noexcept {
  const std::lock_guard lock(leaving_);
  if (handle_ != nullptr) static_cast<void>(HcclCommAbort(handle_, reason));
}

void Communicator::leave() noexcept {
  const std::lock_guard lock(leaving_);
  if (handle_ == nullptr) return;
  const HcclResult result = HcclCommDestroy(std::exchange(handle_, nullptr));
  if (result != HCCL_SUCCESS) LOG(WARNING) << failure_text(result, "destroy_process_group");
}

}  // namespace hccl::pytorch
