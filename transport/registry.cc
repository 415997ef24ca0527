#include "transport/registry.h"

#include <array>
#include <string>

#include "transport/plugin.h"
#include "transport/routed.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace hccl::transport {
namespace {

constexpr std::array kBackends{
    Backend{"shm", &open_shm},
    Backend{"tcp", &open_tcp},
#ifdef HCCL_WITH_OFI
    Backend{"ofi", [](const OpenArgs& args) { return open_plugin("ofi", args); }},
#endif
#ifdef HCCL_WITH_MPI
    Backend{"mpi", [](const OpenArgs& args) { return open_plugin("mpi", args); }},
#endif
};

}  // namespace

std::span<const Backend> backends() { return kBackends; }

bool is_plugin(std::string_view name) {
  return !name.empty() && name != "auto" && name != "shm" && name != "tcp";
}

Result<std::unique_ptr<Mesh>> open(std::string_view name, const OpenArgs& args) {
  if (name.empty() || name == "auto") return open_routed(args);
  std::string known = "auto";
  for (const Backend& backend : kBackends) {
    if (backend.name == name) return backend.open(args);
    known.append(", ").append(backend.name);
  }
  // Any other name is that of a plugin, libhccl_<name>.so.
  auto mesh = open_plugin(name, args);
  if (mesh.ok()) return mesh;
  return mesh.status().with_context("transport \"" + std::string(name) + "\" is none of " + known);
}

}  // namespace hccl::transport
