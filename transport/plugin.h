// The host's side of transport plugins: loads libhccl_<name>.so and makes a Mesh from it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "transport/plugin_abi.h"
#include "transport/transport.h"

namespace hccl::transport {

/// Loads a plugin (once in each process; it stays loaded) and returns its table, which stays valid
/// for ever. Fails with kNotSupport if there is no plugin or its version differs; the text names
/// the file and the reason. Fails with kPara if the name or plugin_path is invalid.
Result<const hccl_transport_plugin*> load_plugin(std::string_view name,
                                                 std::string_view plugin_path);

/// Opens a mesh over a plugin. If a rank lacks the plugin, all ranks fail, and the error names that
/// rank. Any thread may call.
Result<std::unique_ptr<Mesh>> open_plugin(std::string_view name, const OpenArgs& args);

}  // namespace hccl::transport
