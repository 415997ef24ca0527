// The functions for numbers in memory, which streams write and wait for.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "hccl/acl/acl_rt.h"
#include "hccl/acl/failure.h"
#include "hccl/acl/runtime.h"

namespace hccl::acl {
namespace {

Status check_address(const void* devAddr) {
  ACL_CHECK_PTR(devAddr);
  if (reinterpret_cast<std::uintptr_t>(devAddr) % sizeof(std::uint64_t) == 0) return {};
  return bad("devAddr is not a multiple of 8");
}

bool holds(std::uint64_t now, std::uint64_t value, std::uint32_t flag) {
  switch (flag) {
    case ACL_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::int64_t>(now - value) >= 0;
    case ACL_STREAM_WAIT_VALUE_EQ:
      return now == value;
    case ACL_STREAM_WAIT_VALUE_AND:
      return (now & value) != 0;
    default:
      return ~(now | value) != 0;
  }
}

// A writer other than aclrtValueWrite rings no doorbell, so the waiting thread also reads the
// number every millisecond.
Status wait_for_value(std::uint64_t* number, std::uint64_t value, std::uint32_t flag,
                      const AbortFlag* abandoned) {
  Waiter patient = waiter(Deadline::never(), abandoned);
  patient.policy.longest_nap = std::chrono::milliseconds(1);
  const auto ready = [=] { return holds(std::atomic_ref(*number).load(), value, flag); };
  return patient.until(ready, Runtime::get().values_bell()) == Waited::kAborted
             ? abandoned->reason()
             : Status();
}

}  // namespace
}  // namespace hccl::acl

using namespace hccl::acl;  // NOLINT(google-build-using-namespace): C functions' bodies
using hccl::AbortFlag;
using hccl::Status;

extern "C" {

aclError aclrtValueWrite(void* devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
  return guard(__func__, [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_address(devAddr));
    if (flag != 0) return bad("flag must be 0");
    return submit(stream, [number = static_cast<std::uint64_t*>(devAddr), value] {
      std::atomic_ref(*number).store(value);
      Runtime::get().values_bell().ring();
      return Status();
    });
  });
}

aclError aclrtValueWait(void* devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
  return guard(__func__, [&]() -> Status {
    HCCL_RETURN_IF_ERROR(check_address(devAddr));
    if (flag > ACL_STREAM_WAIT_VALUE_NOR) {
      return bad("flag " + std::to_string(flag) + " is unknown");
    }
    auto* const number = static_cast<std::uint64_t*>(devAddr);
    if (stream == nullptr) return wait_for_value(number, value, flag, nullptr);
    HCCL_ASSIGN_OR_RETURN(const auto found, known(find_stream(stream)));
    // The stream outlives its tasks.
    const AbortFlag* const abandoned = &found->abandoned();
    found->submit([=] { return wait_for_value(number, value, flag, abandoned); });
    return {};
  });
}

}  // extern "C"
