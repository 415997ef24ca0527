// Memory that programs register, look up, or share with other processes.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "hccl/acl/acl_rt.h"
#include "hccl/acl/failure.h"
#include "hccl/acl/runtime.h"

namespace hccl::acl {
namespace {

constexpr std::size_t kKeyBytes = SharedMemory::kKeyDigits + 1;  // with the 0 at its end

Status check_flags(std::uint64_t flags) {
  return flags <= 1 ? Status() : bad("flags must be 0 or 1");
}

/// Returns the text of a key from the program. Reads at most kKeyBytes.
std::string_view text(const char* key) { return {key, ::strnlen(key, kKeyBytes)}; }

std::span<std::byte> block_of(const memory::Heap& heap, const void* memory) {
  Runtime& runtime = Runtime::get();
  for (const std::span<std::byte> block :
       {heap.block_of(memory), runtime.addresses().block_of(memory),
        runtime.host_memory().block_of(memory)}) {
    if (!block.empty()) return block;
  }
  return {};
}

}  // namespace
}  // namespace hccl::acl

using namespace hccl::acl;  // NOLINT(google-build-using-namespace): C functions' bodies
using hccl::Status;

extern "C" {

aclError aclrtHostRegister(void* ptr, uint64_t size, aclrtHostRegisterType type, void** devPtr) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(ptr);
    if (number(type) != ACL_HOST_REGISTER_MAPPED) return bad("type is unknown");
    ACL_CHECK_PTR(devPtr);
    HCCL_RETURN_IF_ERROR(Runtime::get().host_memory().enter(ptr, size, true));
    *devPtr = ptr;
    return {};
  });
}

aclError aclrtHostRegisterV2(void* ptr, uint64_t size, uint32_t flag) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(ptr);
    constexpr std::uint32_t kFlags = ACL_HOST_REG_MAPPED | ACL_HOST_REG_PINNED;
    if (flag == 0 || (flag & ~kFlags) != 0) {
      return bad("flag must be ACL_HOST_REG_MAPPED, ACL_HOST_REG_PINNED or both");
    }
    return Runtime::get().host_memory().enter(ptr, size, (flag & ACL_HOST_REG_MAPPED) != 0);
  });
}

aclError aclrtHostUnregister(void* ptr) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(ptr);
    return Runtime::get().host_memory().strike(ptr);
  });
}

aclError aclrtHostGetDevicePointer(void* pHost, void** pDevice, uint32_t flag) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(pHost);
    ACL_CHECK_PTR(pDevice);
    if (flag != 0) return bad("flag must be 0");
    if (!Runtime::get().host_memory().mapped(pHost)) {
      return failure(ACL_ERROR_HOST_MEMORY_NOT_REGISTERED,
                     "pHost lies in no memory registered with ACL_HOST_REG_MAPPED");
    }
    *pDevice = pHost;
    return {};
  });
}

aclError aclrtMemGetAddressRange(void* ptr, void** pbase, size_t* psize) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(ptr);
    ACL_CHECK_PTR(pbase);
    ACL_CHECK_PTR(psize);
    HCCL_ASSIGN_OR_RETURN(const auto heap, Runtime::get().heap());
    const std::span<std::byte> block = block_of(*heap, ptr);
    if (block.empty()) return bad("ptr lies in no memory of the runtime");
    *pbase = block.data();
    *psize = block.size();
    return {};
  });
}

aclError aclrtIpcMemGetExportKey(void* devPtr, size_t size, char* key, size_t len, uint64_t flags) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(devPtr);
    if (size == 0) return bad("size is 0");
    ACL_CHECK_PTR(key);
    if (len < kKeyBytes) {
      return bad("len is " + std::to_string(len) + ", a key needs " + std::to_string(kKeyBytes));
    }
    HCCL_RETURN_IF_ERROR(check_flags(flags));
    HCCL_ASSIGN_OR_RETURN(const auto heap, Runtime::get().heap());
    HCCL_ASSIGN_OR_RETURN(const std::string made,
                          Runtime::get().shared_memory().export_key(*heap, devPtr, size));
    key[made.copy(key, len - 1)] = '\0';
    return {};
  });
}

aclError aclrtIpcMemSetImportPid(const char* key, int32_t* pid, size_t num) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(key);
    ACL_CHECK_PTR(pid);
    if (num == 0) return bad("num is 0");
    return Runtime::get().shared_memory().check_exported(text(key));
  });
}

aclError aclrtDeviceGetBareTgid(int32_t* pid) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(pid);
    *pid = ::getpid();
    return {};
  });
}

aclError aclrtIpcMemImportByKey(void** devPtr, const char* key, uint64_t flags) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(devPtr);
    ACL_CHECK_PTR(key);
    HCCL_RETURN_IF_ERROR(check_flags(flags));
    HCCL_ASSIGN_OR_RETURN(const auto heap, Runtime::get().heap());
    HCCL_ASSIGN_OR_RETURN(*devPtr, Runtime::get().shared_memory().import(*heap, text(key)));
    return {};
  });
}

aclError aclrtIpcMemClose(const char* key) {
  return guard(__func__, [&]() -> Status {
    ACL_CHECK_PTR(key);
    return Runtime::get().shared_memory().close(text(key));
  });
}

}  // extern "C"
