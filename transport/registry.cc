#include "transport/registry.h"

#include <algorithm>
#include <array>
#include <string>

#include "transport/plugin.h"
#include "transport/routed.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace hccl::transport {
namespace {

struct Entry {
  Backend backend;
  OpenFunction open;
};

// One line for each backend.
constexpr std::array kEntries{
    Entry{{"shm", "Rings in shared memory between the ranks of one host.", false}, &open_shm},
    Entry{{"tcp", "Sockets between all ranks, within a host and between hosts.", false}, &open_tcp},
#ifdef HCCL_WITH_OFI
    Entry{{"ofi", "libfabric, for fast fabrics; a plugin.", true},
          [](const OpenArgs& args) { return open_plugin("ofi", args); }},
#endif
#ifdef HCCL_WITH_MPI
    Entry{{"mpi", "MPI point to point, for ranks of one MPI job; a plugin.", true},
          [](const OpenArgs& args) { return open_plugin("mpi", args); }},
#endif
};

constexpr auto kBackends = [] {
  std::array<Backend, kEntries.size()> list{};
  std::transform(kEntries.begin(), kEntries.end(), list.begin(),
                 [](const Entry& entry) { return entry.backend; });
  return list;
}();

}  // namespace

std::span<const Backend> backends() { return kBackends; }

Result<std::unique_ptr<Mesh>> open(std::string_view name, const OpenArgs& args) {
  if (name.empty() || name == "auto") return open_routed(args);
  std::string known = "auto";
  for (const Entry& entry : kEntries) {
    if (entry.backend.name == name) return entry.open(args);
    known.append(", ").append(entry.backend.name);
  }
  // Others may add transports: libhccl_<name>.so.
  auto mesh = open_plugin(name, args);
  if (mesh.ok()) return mesh;
  return mesh.status().with_context("transport \"" + std::string(name) + "\" is none of " + known);
}

}  // namespace hccl::transport
