// The names of all algorithms, as HCCL_ALGO uses them: local algorithms at level0, remote ones from
// level1 on. A name is unique within its level.
#pragma once

#include <string_view>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/base/status.h"
#include "hccl/select/local_selector.h"

namespace hccl::select {

std::vector<std::string_view> local_names();
std::vector<std::string_view> remote_names();

/// Fails with kPara if HCCL_ALGO contains a name that no algorithm has; the text lists the names.
Status check_names(const Config& config);
/// The local algorithms that HCCL_ALGO names.
Wanted wanted_locally(const Config& config);

}  // namespace hccl::select
