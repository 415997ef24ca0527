// A world of ranks for tests: the ranks are threads of the test program, or the processes that
// mpirun started. Each rank is a node of a real control tree, and has a communicator.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/core/communicator.h"
#include "hccl/join/world.h"

namespace hccl::testing {

class World {
 public:
  /// Joins `size` ranks. If a rank cannot join, the running test fails and ok() is false.
  World(int size, const Config& config);
  /// Each rank has its own configuration; configs are in rank order.
  explicit World(const std::vector<Config>& configs);
  ~World();

  bool ok() const;
  /// Runs body on a thread for each rank, and returns when all have returned.
  void run(const std::function<void(core::Communicator&)>& body);

  /// The sizes to test: 1..8 as threads (five of these under the thread sanitizer), the number of
  /// processes under mpirun.
  static std::vector<int> sizes();

 private:
  std::shared_ptr<join::Control> control_ = std::make_shared<join::Control>();
  std::shared_ptr<join::Node> node_;
  std::vector<std::shared_ptr<core::Communicator>> ranks_;  // the ranks in this process
};

}  // namespace hccl::testing
