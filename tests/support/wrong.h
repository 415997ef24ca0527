// Calls with a wrong argument, as a table: each is refused with a code, and a text that begins with
// the function's and then the argument's name.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "hccl/hccl_comm.h"

namespace hccl::testing {

struct Wrong {
  const char* name;  ///< the function, and what is wrong behind a blank
  std::function<HcclResult()> call;
  HcclResult expected;
  const char* argument;  ///< how the text goes on behind the function
};

inline void refuse(const std::vector<Wrong>& cases) {
  for (const Wrong& wrong : cases) {
    EXPECT_EQ(wrong.call(), wrong.expected) << wrong.name << ": " << HcclGetLastErrorText();
    const std::string text = HcclGetLastErrorText();
    const std::string function(wrong.name, std::strcspn(wrong.name, " "));
    EXPECT_EQ(text.rfind(function + ": " + wrong.argument, 0), 0u) << wrong.name << ": " << text;
  }
}

}  // namespace hccl::testing
