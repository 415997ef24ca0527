// The host's side of transport plugins: loads libhccl_<name>.so and makes a Mesh of it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "transport/plugin_abi.h"
#include "transport/transport.h"

namespace hccl::transport {

/// Loads a plugin (once a process; it stays loaded) and gives its table, which lives for ever.
/// kNotSupport, naming the file and the reason, if there is none or if it speaks another version;
/// kPara for a name or a plugin_path that is not acceptable.
Result<const hccl_transport_plugin*> load_plugin(std::string_view name,
                                                 std::string_view plugin_path);

/// Opens a mesh over a plugin. All ranks succeed or all fail: a rank without the plugin is named to
/// the others. Any thread.
Result<std::unique_ptr<Mesh>> open_plugin(std::string_view name, const OpenArgs& args);

}  // namespace hccl::transport
