#include "transport/registry.h"

#include <algorithm>
#include <array>
#include <string>

#include "transport/tcp/tcp.h"

namespace hccl::transport {
namespace {

struct Entry {
  Backend backend;
  OpenFunction open;
};

// One line a backend.
constexpr std::array kEntries{
    Entry{{"tcp", "Sockets between all ranks, within a host and between hosts.", false}, &open_tcp},
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
  std::string known = "auto";
  for (const Entry& entry : kEntries) {
    if (entry.backend.name == name) return entry.open(args);
    known.append(", ").append(entry.backend.name);
  }
  return Status(Code::kNotSupport,
                "there is no transport \"" + std::string(name) + "\"; known: " + known);
}

}  // namespace hccl::transport
