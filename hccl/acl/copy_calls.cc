// The copy functions: at once, or in a stream's order. All memory is host memory.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "hccl/acl/acl_rt.h"
#include "hccl/acl/failure.h"
#include "hccl/acl/stream.h"

namespace hccl::acl {
namespace {

Status check_kind(const aclrtMemcpyKind& kind) {
  if (number(kind) <= ACL_MEMCPY_INTER_DEVICE_TO_DEVICE) return {};
  return bad("kind " + std::to_string(number(kind)) + " is unknown");
}

Status check_room(std::size_t count, std::size_t room, const char* argument) {
  if (count <= room) return {};
  return bad("count is " + std::to_string(count) + ", " + argument + " is " + std::to_string(room));
}

// Runs the task at once, or in the stream's order. A synchronous copy has no stream, and needs no
// memory for the task.
template <class Task>
Status run(aclrtStream stream, const Task& task) {
  if (stream != nullptr) return submit(stream, task);
  return task();
}

Status copy(void* dst, std::size_t room, const void* src, std::size_t count,
            const aclrtMemcpyKind& kind, aclrtStream stream) {
  ACL_CHECK_PTR(dst);
  ACL_CHECK_PTR(src);
  HCCL_RETURN_IF_ERROR(check_room(count, room, "destMax"));
  HCCL_RETURN_IF_ERROR(check_kind(kind));
  return run(stream, [=] {
    std::memmove(dst, src, count);
    return Status();
  });
}

Status set(void* devPtr, std::size_t room, std::int32_t value, std::size_t count,
           aclrtStream stream) {
  ACL_CHECK_PTR(devPtr);
  HCCL_RETURN_IF_ERROR(check_room(count, room, "maxCount"));
  return run(stream, [=] {
    std::memset(devPtr, value, count);
    return Status();
  });
}

// The rows of a copy.
struct Rows {
  void* dst;
  std::size_t dpitch;
  const void* src;
  std::size_t spitch;
  std::size_t width;
  std::size_t height;

  Status check() const {
    ACL_CHECK_PTR(dst);
    if (width > dpitch) return bad("dpitch is less than width");
    ACL_CHECK_PTR(src);
    if (width > spitch) return bad("spitch is less than width");
    const std::size_t pitch = dpitch > spitch ? dpitch : spitch;
    if (pitch != 0 && height > std::numeric_limits<std::size_t>::max() / pitch) {
      return bad("height is more than memory can have");
    }
    return {};
  }

  void copy() const {
    auto* to = static_cast<std::byte*>(dst);
    const auto* from = static_cast<const std::byte*>(src);
    for (std::size_t row = 0; row < height; ++row) {
      std::memmove(to + row * dpitch, from + row * spitch, width);
    }
  }
};

Status copy_rows(const Rows& rows, const aclrtMemcpyKind& kind, aclrtStream stream) {
  HCCL_RETURN_IF_ERROR(rows.check());
  HCCL_RETURN_IF_ERROR(check_kind(kind));
  return run(stream, [rows] {
    rows.copy();
    return Status();
  });
}

}  // namespace
}  // namespace hccl::acl

using namespace hccl::acl;  // NOLINT(google-build-using-namespace): C functions' bodies
using hccl::Status;

extern "C" {

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                     aclrtMemcpyKind kind) {
  return guard(__func__, [&] { return copy(dst, destMax, src, count, kind, nullptr); });
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count,
                          aclrtMemcpyKind kind, aclrtStream stream) {
  return guard(__func__, [&] { return copy(dst, destMax, src, count, kind, stream); });
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  return guard(__func__, [&] { return set(devPtr, maxCount, value, count, nullptr); });
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count,
                          aclrtStream stream) {
  return guard(__func__, [&] { return set(devPtr, maxCount, value, count, stream); });
}

aclError aclrtMemcpy2d(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                       size_t height, aclrtMemcpyKind kind) {
  const Rows rows{dst, dpitch, src, spitch, width, height};
  return guard(__func__, [&] { return copy_rows(rows, kind, nullptr); });
}

aclError aclrtMemcpy2dAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                            size_t height, aclrtMemcpyKind kind, aclrtStream stream) {
  const Rows rows{dst, dpitch, src, spitch, width, height};
  return guard(__func__, [&] { return copy_rows(rows, kind, stream); });
}

}  // extern "C"
