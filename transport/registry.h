// The transports by name. To add a backend, add a folder, and a line in registry.cc.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "transport/transport.h"

namespace hccl::transport {

struct Backend {
  std::string_view name;
  OpenFunction open;
};

/// Every backend that HCCL_TRANSPORT may name, besides "auto".
std::span<const Backend> backends();

/// Whether a plugin provides this transport. A plugin connects all ranks or none, and may demand
/// that all ranks open their meshes in one order.
bool is_plugin(std::string_view name);

/// Opens a mesh over the named transport. "auto" (or "") uses shm between ranks of one host and tcp
/// between hosts. Fails with kNotSupport and the reason if the name is unknown or its plugin cannot
/// be loaded.
Result<std::unique_ptr<Mesh>> open(std::string_view name, const OpenArgs& args);

}  // namespace hccl::transport
