// The control thread of ranks in a test, and a rank of a world whose root is in the same process.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "hccl/base/random.h"
#include "hccl/join/root_info.h"
#include "hccl/join/world.h"

namespace hccl::testing {

inline std::shared_ptr<join::Control> make_control() { return std::make_shared<join::Control>(); }

/// Root info of a world on this host, with a new secret.
inline join::RootInfo new_root_info() {
  join::RootInfo info;
  EXPECT_TRUE(random_bytes(info.secret.data(), info.secret.size()).ok());
  EXPECT_TRUE(random_bytes(info.id.data(), info.id.size()).ok());
  info.address = "127.0.0.1";
  return info;
}

inline std::shared_ptr<join::Node> start_root(const std::shared_ptr<join::Control>& control,
                                              join::RootInfo& info, const Config& config) {
  auto root = join::Node::root(control, info, config, make_logger("off", "root"));
  EXPECT_TRUE(root.ok()) << root.status().message();
  return root.ok() ? *root : nullptr;
}

/// The node of a process that is not the root's.
inline std::shared_ptr<join::Node> new_node(const std::shared_ptr<join::Control>& control,
                                            const join::RootInfo& info) {
  return std::make_shared<join::Node>(control, info);
}

}  // namespace hccl::testing
