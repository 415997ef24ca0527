// Checks of a call of the C interface: that it succeeds, or how it is refused.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>

#include "hccl/hccl_comm.h"

#define OK(call) ASSERT_EQ((call), HCCL_SUCCESS) << HcclGetLastErrorText()

/// Expects that the call fails with this code, and that its text contains these words.
#define SAYS(call, code, words) EXPECT_TRUE(::hccl::testing::says(#call, call, code, words))

/// Expects that the call fails with this code, and that its text begins with the names of the
/// function and of the argument. If a helper calls the function, the test names it:
/// REFUSED_BY("HcclSend", send(7), ...).
#define REFUSED_BY(function, call, code, argument) \
  EXPECT_TRUE(::hccl::testing::refused(function, #call, call, code, argument))
#define REFUSED(call, code, argument) \
  REFUSED_BY(std::string(#call, std::strcspn(#call, "(")), call, code, argument)

namespace hccl::testing {

inline ::testing::AssertionResult told(std::string_view call, HcclResult result, HcclResult code,
                                       bool text_fits, std::string_view expected) {
  if (result == code && text_fits) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << call << "\n  gives " << result << ": " << HcclGetLastErrorText() << "\n  not " << code
         << ": " << expected;
}

inline ::testing::AssertionResult says(std::string_view call, HcclResult result, HcclResult code,
                                       std::string_view words) {
  const std::string_view text = HcclGetLastErrorText();
  return told(call, result, code, text.find(words) != text.npos, words);
}

inline ::testing::AssertionResult refused(std::string function, std::string_view call,
                                          HcclResult result, HcclResult code,
                                          std::string_view argument) {
  const std::string begin = function + ": " + std::string(argument);
  return told(call, result, code, std::string_view(HcclGetLastErrorText()).starts_with(begin),
              begin);
}

}  // namespace hccl::testing
