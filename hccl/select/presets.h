// Built-in costs: files of the same form as HCCL_TUNE_FILE, in presets/, compiled into the library
// (make_presets.py).
#pragma once

#include "hccl/select/costs.h"

namespace hccl::select {

/// All of them.
const CostTable& presets();
/// Of the nearest number of ranks.
LocalCosts local_preset(const local::Topology& topology, bool far);
/// Of the nearest numbers of hosts and ranks, for predictions where nothing was measured; the
/// rules choose then. Null: none of such a transport.
const MessageCosts* message_preset(const CostKey& key);

}  // namespace hccl::select
