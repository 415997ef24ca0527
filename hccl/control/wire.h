// Writes and reads the parts that several kinds of frames of the control tree have in common.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hccl/base/bytes.h"
#include "hccl/base/status.h"

namespace hccl::control {

inline constexpr std::size_t kTextCap = 4096;  ///< bytes of a text for people

/// Writes a failure, with at most kTextCap bytes of its text.
inline void put(ByteWriter& out, const Status& why) {
  out.put(static_cast<std::int32_t>(why.code())).put(static_cast<std::int32_t>(why.culprit()));
  out.put_text(std::string_view(why.message()).substr(0, kTextCap));
}
/// Returns a failure even if bytes are missing; then in.ok() is false.
inline Status get_status(ByteReader& in) {
  const auto code = in.get<std::int32_t>(), culprit = in.get<std::int32_t>();
  std::string text = in.get_text(kTextCap);
  const bool known = code > 0 && code <= static_cast<int>(Code::kOom);
  return {known ? static_cast<Code>(code) : Code::kInternal, std::move(text), culprit};
}

/// Returns the bytes of the parts, in this order. Writes texts by put_text(), trivially copyable
/// values by ByteWriter::put(), and any other part by its own put(). The type of a number gives the
/// number of its bytes.
template <class... Parts>
std::string encode(const Parts&... parts) {
  ByteWriter out;
  const auto add = [&out]<class T>(const T& part) {
    if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      out.put_text(part);
    } else if constexpr (std::is_trivially_copyable_v<T>) {
      out.put(part);
    } else {
      put(out, part);
    }
  };
  (add(parts), ...);
  return out.take();
}

}  // namespace hccl::control
