// The texts of failures.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "hccl/api/guard.h"
#include "hccl/base/caught.h"
#include "hccl/hccl_comm.h"

namespace hccl::api {
namespace {

// A fixed buffer: reporting a failure must not fail.
std::array<char, 4096>& last_error() {
  static thread_local std::array<char, 4096> text{};
  return text;
}

}  // namespace

void set_last_error(std::string_view text) noexcept {
  auto& kept = last_error();
  const std::size_t length = std::min(text.size(), kept.size() - 1);
  std::memcpy(kept.data(), text.data(), length);
  kept[length] = '\0';
}

HcclResult record_error(const Status& failure, const char* function) noexcept {
  auto& kept = last_error();  // allocates nothing: there may be no memory
  std::snprintf(kept.data(), kept.size(), "%s: %s", function, failure.message().c_str());
  return static_cast<HcclResult>(failure.code());
}

HcclResult record_exception(const char* function) noexcept {
  return record_error(caught(), function);
}

Status null_pointer(const char* argument) {
  return Status(Code::kPtr, std::string(argument) + " is null");
}

}  // namespace hccl::api

extern "C" {

const char* HcclGetErrorString(HcclResult code) {
  const int number = static_cast<int>(code);
  if (number < 0 || number > HCCL_E_IN_STATUS) return "unknown error";
  if (number > HCCL_E_OOM) return "unknown err";
  return hccl::to_string(static_cast<hccl::Code>(number)).data();
}

const char* HcclGetLastErrorText(void) { return hccl::api::last_error().data(); }

}  // extern "C"
