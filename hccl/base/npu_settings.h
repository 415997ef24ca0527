// HCCL's settings of NPUs and their networks. They have no effect on CPUs, but the library refuses
// the values that HCCL refuses.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "hccl/base/status.h"

namespace hccl {

/// Returns whether the text is empty or a list of levels such as "L0:0, L1:1, L2:0", with each
/// level at most once.
bool is_retry_enable(std::string value);
/// Returns whether the text is empty or "MaxCnt:1, HoldTime:5000, IntervalTime:1000": all three
/// parts, in this order. As in HCCL, text after the three parts is ignored.
bool is_retry_params(std::string_view value);

inline constexpr const char* kRetryEnableExpected = "as \"L0:0, L1:0, L2:0\"";
inline constexpr const char* kRetryParamsExpected =
    "as \"MaxCnt:1, HoldTime:5000, IntervalTime:1000\"";

/// Checks the variables. `get` returns a variable's value. kPara: a value is invalid.
Status check_npu_settings(const std::function<std::optional<std::string>(const char*)>& get);

}  // namespace hccl
