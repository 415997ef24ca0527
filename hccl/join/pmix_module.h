// The PMIx plugin (pmix/), which carries root info between the processes that mpirun started.
#pragma once

#include <array>

#include "hccl/base/config.h"
#include "hccl/base/status.h"
#include "hccl/join/pmix/pmix_plugin.h"
#include "hccl/join/root_info.h"

namespace hccl::join {

class PmixModule {
 public:
  /// kNotSupport if there is no such plugin.
  static Result<PmixModule> load(const Config& config);

  /// Reads this process's rank and the number of ranks.
  Status world(int* rank, int* size) const;

  /// Sends the info from rank 0 to the other ranks. `instance`: counts the calls of the process.
  Status share(std::array<char, RootInfo::kBytes>& info, int instance, const Config& config) const;

 private:
  hccl_pmix_world_function world_ = nullptr;
  hccl_pmix_share_function share_ = nullptr;
};

}  // namespace hccl::join
