// The texts of failures.
#include <string>

#include "hccl/acl/failure.h"
#include "hccl/api/guard.h"
#include "hccl/base/caught.h"
#include "hccl/hccl_comm.h"

namespace hccl::api {

void set_last_error(std::string_view text) noexcept { acl::record_text("", text); }

HcclResult record_error(const Status& failure, const char* function) noexcept {
  acl::record_text(function, failure.message());  // allocates nothing: there may be no memory
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

const char* HcclGetLastErrorText(void) { return hccl::acl::last_text(); }

}  // extern "C"
