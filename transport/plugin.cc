#include "transport/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <string>

#include "hccl/base/plugin.h"
#include "transport/agree.h"
#include "transport/plugin_mesh.h"

namespace hccl::transport {
namespace {

// The size of version 1 of the table at its first release. Later tables only append members.
constexpr std::size_t kSmallestTable = sizeof(hccl_transport_plugin);

bool plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 32 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

Status check_table(const hccl_transport_plugin& table, std::string_view name,
                   const std::string& file) {
  const auto refuse = [&](const std::string& why) {
    return Status(Code::kNotSupport, "transport plugin " + file + " " + why);
  };
  if (table.abi_version != HCCL_TRANSPORT_PLUGIN_ABI) {
    return refuse("has interface version " + std::to_string(table.abi_version) +
                  ", this library needs " + std::to_string(HCCL_TRANSPORT_PLUGIN_ABI));
  }
  if (table.struct_size < kSmallestTable) {
    return refuse("has a table of " + std::to_string(table.struct_size) + " bytes, at least " +
                  std::to_string(kSmallestTable) + " are needed");
  }
  if (table.name == nullptr || table.name != name) {
    return refuse("calls itself \"" + std::string(table.name == nullptr ? "" : table.name) +
                  "\", not \"" + std::string(name) + "\"");
  }
  if (table.open == nullptr || table.close == nullptr || table.send == nullptr ||
      table.recv == nullptr || table.progress == nullptr || table.last_error == nullptr ||
      table.abort == nullptr) {
    return refuse("lacks a function that every transport must have");
  }
  const int sleepers =
      (table.sleep_prepare != nullptr) + (table.sleep != nullptr) + (table.sleep_awake != nullptr);
  if (sleepers != 0 && sleepers != 3) return refuse("has only some of the functions for sleeping");
  return Status();
}

}  // namespace

Result<const hccl_transport_plugin*> load_plugin(std::string_view name,
                                                 std::string_view plugin_path) {
  if (!plain_name(name)) {
    return Status(Code::kPara, "\"" + std::string(name) + "\" cannot be the name of a transport");
  }
  HCCL_ASSIGN_OR_RETURN(
      const PluginLibrary library,
      load_plugin_library(name, plugin_path, "transport \"" + std::string(name) + "\""));
  const auto* table = static_cast<const hccl_transport_plugin*>(
      dlsym(library.handle, HCCL_TRANSPORT_PLUGIN_SYMBOL));
  if (table == nullptr) {
    return Status(Code::kNotSupport, "transport plugin " + library.file + " does not export " +
                                         HCCL_TRANSPORT_PLUGIN_SYMBOL +
                                         ": it is no transport plugin, or one for another version");
  }
  HCCL_RETURN_IF_ERROR(check_table(*table, name, library.file));
  return table;
}

Result<std::unique_ptr<Mesh>> open_plugin(std::string_view name, const OpenArgs& args) {
  for (int rank = 0; rank < args.size; ++rank) {
    if (!args.absent(rank)) continue;
    return Status(Code::kRemote,
                  "rank " + std::to_string(rank) + " is gone, and a plugin connects all ranks",
                  rank);
  }
  const std::string path = args.config == nullptr ? "" : args.config->plugin_path;
  auto table = load_plugin(name, path);
  // This round comes before the plugin's own rounds: a rank without the plugin cannot take part in
  // those.
  const auto all = agree(args, table.ok() ? Result<std::string>(std::string()) : table.status());
  if (!all.ok()) return all.status();
  return PluginMesh::open(**table, args);
}

}  // namespace hccl::transport
