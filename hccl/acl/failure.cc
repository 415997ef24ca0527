// The texts and codes of failures.
#include "hccl/acl/failure.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "hccl/acl/acl_rt.h"
#include "hccl/base/caught.h"

namespace hccl::acl {
namespace {

// A fixed buffer: reporting a failure must not fail.
struct Last {
  aclError code = ACL_SUCCESS;
  bool told = true;
  std::uint64_t texts = 0;
  std::array<char, 4096> text{};

  void append(std::string_view words) {
    const std::size_t at = std::strlen(text.data());
    const std::size_t length = std::min(words.size(), text.size() - 1 - at);
    std::memcpy(text.data() + at, words.data(), length);
    text[at + length] = '\0';
  }
};

Last& last() {
  static thread_local Last kept;
  return kept;
}

}  // namespace

aclError code_of(const Status& status) {
  const int number = static_cast<int>(status.code());
  if (number == 0 || number >= ACL_ERROR_INVALID_PARAM) return number;
  switch (status.code()) {
    case Code::kPara:
    case Code::kPtr:
      return ACL_ERROR_RT_PARAM_INVALID;
    case Code::kMemory:
    case Code::kOom:
      return ACL_ERROR_RT_MEMORY_ALLOCATION;
    case Code::kNotSupport:
      return ACL_ERROR_RT_FEATURE_NOT_SUPPORT;
    case Code::kTimeout:
      return ACL_ERROR_RT_TASK_TIMEOUT;
    case Code::kRemote:
      return ACL_ERROR_RT_SUSPECT_REMOTE_ERROR;
    default:
      return ACL_ERROR_RT_INTERNAL_ERROR;
  }
}

void record_text(std::string_view function, std::string_view text) noexcept {
  Last& kept = last();
  kept.told = false;
  ++kept.texts;
  kept.text[0] = '\0';
  kept.append(function);
  if (!function.empty()) kept.append(": ");
  kept.append(text);
}

const char* last_text() noexcept { return last().text.data(); }

std::uint64_t texts_recorded() noexcept { return last().texts; }

aclError record_error(aclError code, std::string_view function, std::string_view text) noexcept {
  record_text(function, text);
  last().code = code;
  return code;
}

aclError record_exception(std::string_view function) noexcept {
  const Status status = caught();
  const bool no_memory = status.code() == Code::kOom;
  return record_error(no_memory ? ACL_ERROR_BAD_ALLOC : ACL_ERROR_INTERNAL_ERROR, function,
                      status.message());
}

}  // namespace hccl::acl

using hccl::acl::last;

extern "C" {

const char* aclGetRecentErrMsg(void) {
  auto& kept = last();
  if (kept.told) return nullptr;
  kept.told = true;
  return kept.text.data();
}

aclError aclrtPeekAtLastError(aclrtLastErrLevel level) {
  if (hccl::acl::number(level) != ACL_RT_THREAD_LEVEL) return ACL_ERROR_RT_PARAM_INVALID;
  return last().code;
}

aclError aclrtGetLastError(aclrtLastErrLevel level) {
  const aclError code = aclrtPeekAtLastError(level);
  if (hccl::acl::number(level) == ACL_RT_THREAD_LEVEL) last().code = ACL_SUCCESS;
  return code;
}

}  // extern "C"
