#include "transport/plugin.h"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <utility>

#include "transport/agree.h"
#include "transport/plugin_mesh.h"

namespace hccl::transport {
namespace {

// The table of version 1 as it was first published; longer ones only add to it.
constexpr std::size_t kSmallestTable = sizeof(hccl_transport_plugin);

bool plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 32 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
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
  if ((table.region_open == nullptr) != (table.region_close == nullptr)) {
    return refuse("has only one of the functions for regions");
  }
  return Status();
}

}  // namespace

std::vector<std::string> plugin_files(std::string_view name, std::string_view plugin_path) {
  const std::string file = "libhccl_" + std::string(name) + ".so";
  if (!plugin_path.empty()) return {(std::filesystem::path(plugin_path) / file).string()};

  std::vector<std::string> files;
  const auto add = [&](const std::filesystem::path& directory) {
    std::string candidate = (directory / file).lexically_normal().string();
    if (std::find(files.begin(), files.end(), candidate) == files.end()) {
      files.push_back(std::move(candidate));
    }
  };
  std::error_code ignored;  // a path that cannot be resolved is one that holds no plugin
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&plugin_files), &self) != 0 && self.dli_fname != nullptr) {
    const auto library = std::filesystem::canonical(self.dli_fname, ignored);
    if (!library.empty()) add(library.parent_path());
  }
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (!program.empty()) {
    const auto beside = program.parent_path();
    add(beside);
    add(beside.parent_path() / "lib64");
    add(beside.parent_path() / "lib");
  }
  return files;
}

Result<const hccl_transport_plugin*> load_plugin(std::string_view name,
                                                 std::string_view plugin_path) {
  if (!plain_name(name)) {
    return Status(Code::kPara, "\"" + std::string(name) + "\" cannot be the name of a transport");
  }
  if (!plugin_path.empty()) {
    // Code is loaded from there, so nothing may depend on the working directory or on who calls a
    // privileged program.
    if (plugin_path.front() != '/') {
      return Status(Code::kPara, "HCCL_PLUGIN_PATH must be an absolute directory, not \"" +
                                     std::string(plugin_path) + "\"");
    }
    if (getauxval(AT_SECURE) != 0) {
      return Status(Code::kNotSupport, "HCCL_PLUGIN_PATH is refused in a privileged program");
    }
  }
  const std::vector<std::string> files = plugin_files(name, plugin_path);
  const auto found = std::find_if(files.begin(), files.end(), [](const std::string& file) {
    return access(file.c_str(), F_OK) == 0;
  });
  if (found == files.end()) {
    return Status(Code::kNotSupport, "there is no plugin for transport \"" + std::string(name) +
                                         "\"; looked for " + joined(files));
  }
  // Never unloaded: libfabric and MPI leave threads and exit handlers behind.
  void* library = dlopen(found->c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = dlerror();
    return Status(Code::kNotSupport, "transport plugin " + *found + " cannot be loaded: " +
                                         (why == nullptr ? "no reason given" : why));
  }
  const auto* table =
      static_cast<const hccl_transport_plugin*>(dlsym(library, HCCL_TRANSPORT_PLUGIN_SYMBOL));
  if (table == nullptr) {
    return Status(Code::kNotSupport, "transport plugin " + *found + " does not export " +
                                         HCCL_TRANSPORT_PLUGIN_SYMBOL +
                                         ": it is no transport plugin, or one for another version");
  }
  HCCL_RETURN_IF_ERROR(check_table(*table, name, *found));
  return table;
}

Result<std::unique_ptr<Mesh>> open_plugin(std::string_view name, const OpenArgs& args) {
  const std::string path = args.config == nullptr ? "" : args.config->plugin_path;
  auto table = load_plugin(name, path);
  // Before the plugin's own rounds, because a rank without the plugin cannot take part in those.
  const auto all = agree(args, table.ok() ? Result<std::string>(std::string()) : table.status());
  if (!all.ok()) return all.status();
  return PluginMesh::open(**table, args);
}

}  // namespace hccl::transport
