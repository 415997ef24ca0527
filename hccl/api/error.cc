// The words of failures.
#include "hccl/api/guard.h"
#include "hccl/hccl_comm.h"

namespace hccl::api {
namespace {

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

}  // namespace

void set_last_error(std::string text) { last_error() = std::move(text); }

}  // namespace hccl::api

extern "C" {

const char* HcclGetErrorString(HcclResult code) {
  const int number = static_cast<int>(code);
  if (number < 0 || number > HCCL_E_IN_STATUS) return "unknown error";
  if (number > HCCL_E_OOM) return "unknown err";
  return hccl::words(static_cast<hccl::Code>(number)).data();
}

const char* HcclGetLastErrorText(void) { return hccl::api::last_error().c_str(); }

}  // extern "C"
