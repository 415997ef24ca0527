// Built-in costs. They are files in presets/ with the format of HCCL_TUNE_FILE, compiled into the
// library (make_presets.py).
#pragma once

#include "hccl/select/costs.h"

namespace hccl::select {

/// All built-in costs.
const CostTable& presets();
/// The built-in costs for the nearest number of ranks.
LocalCosts local_preset(const local::Topology& topology, bool far);
/// The built-in costs for the nearest numbers of hosts and ranks. They serve only for predictions
/// if nothing was measured; the choice then follows fixed rules. Null if no preset has that
/// transport.
const MessageCosts* message_preset(const CostKey& key);

}  // namespace hccl::select
