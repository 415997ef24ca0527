// Argument checks that the operations share. A failed check returns HCCL's code and names the
// argument. Every operation runs several checks, so the comparisons are inline; the code that makes
// error texts is not.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "hccl/api/guard.h"
#include "hccl/base/call.h"
#include "hccl/base/status.h"
#include "hccl/base/types.h"
#include "hccl/hccl_framework.h"
#include "hccl/hccl_types.h"
#include "hccl/hcom.h"
#include "hccl/kernels/kernels.h"

namespace hccl::api {

inline constexpr std::uint64_t kMaxCount = 0x7FFFFFFF;
// About 31 years: a time this far from now does not overflow.
inline constexpr std::uint64_t kMaxMilliseconds = 1'000'000'000'000;

namespace refusals {
[[gnu::cold]] Status unknown_type(HcclDataType type, const char* argument);
[[gnu::cold]] Status unknown_op(HcclReduceOp op);
[[gnu::cold]] Status irreducible(DataType type, ReduceOp op);
[[gnu::cold]] Status too_many(std::uint64_t count, std::uint64_t most, const char* argument);
[[gnu::cold]] Status wrong_length(std::size_t most, const char* argument);
[[gnu::cold]] Status no_such_rank(std::uint32_t rank, int size, const char* argument);
}  // namespace refusals

[[gnu::always_inline]] inline Result<DataType> check_type(HcclDataType type,
                                                          const char* argument = "dataType") {
  if (const auto known = data_type(static_cast<int>(type))) return *known;
  return refusals::unknown_type(type, argument);
}

inline Result<ReduceOp> check_reduce(HcclReduceOp op, DataType type) {
  const auto known = reduce_op(static_cast<int>(op));
  if (!known) return refusals::unknown_op(op);
  if (!kernels::reducible(type, *known)) return refusals::irreducible(type, *known);
  return *known;
}

/// Null `scale` means no factors. Defined in checks.cc.
Result<Scale> check_scale(const HcclScale* scale, ReduceOp op, DataType type);

inline Status check_count(std::uint64_t count, const char* argument) {
  if (count <= kMaxCount) return {};
  return refusals::too_many(count, kMaxCount, argument);
}

inline Status check_milliseconds(std::uint64_t time, const char* argument) {
  if (time <= kMaxMilliseconds) return {};
  return refusals::too_many(time, kMaxMilliseconds, argument);
}

/// Fails with kPtr if the buffer is null, unless it has no elements.
inline Status need(const void* buffer, std::uint64_t count, const char* argument) {
  if (buffer != nullptr || count == 0) return {};
  return null_pointer(argument);
}

inline Status check_text(const char* text, std::size_t most, const char* argument) {
  if (text == nullptr) return null_pointer(argument);
  const std::size_t length = ::strnlen(text, most + 1);
  if (length >= 1 && length <= most) return {};
  return refusals::wrong_length(most, argument);
}

/// Returns the name of a group; null means the world.
inline Result<std::string> group_name(const char* group) {
  if (group == nullptr) return std::string(HCCL_WORLD_GROUP);
  HCCL_RETURN_IF_ERROR(check_text(group, HCOM_GROUP_NAME_MAX_LEN, "group"));
  return std::string(group);
}

inline Status check_rank(std::uint32_t rank, int size, const char* argument) {
  if (rank < static_cast<std::uint32_t>(size)) return {};
  return refusals::no_such_rank(rank, size, argument);
}

}  // namespace hccl::api
