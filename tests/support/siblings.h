// The mappings that the ranks of a test program share, like the ranks of one process.
#pragma once

#include <memory>

#include "transport/siblings.h"

namespace hccl::testing {

inline std::shared_ptr<transport::Siblings> siblings() {
  static const auto all = std::make_shared<transport::Siblings>();
  return all;
}

}  // namespace hccl::testing
