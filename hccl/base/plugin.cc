#include "hccl/base/plugin.h"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "hccl/base/fd.h"
#include "hccl/base/thread.h"

namespace hccl {
namespace {

// Code is loaded from this path, so the path must not depend on the working directory. A privileged
// program must not load code that its caller chooses.
Status check_plugin_path(std::string_view plugin_path) {
  if (plugin_path.empty()) return {};
  if (plugin_path.front() != '/') {
    return Status(Code::kPara, "HCCL_PLUGIN_PATH must be an absolute directory, not \"" +
                                   std::string(plugin_path) + "\"");
  }
  if (getauxval(AT_SECURE) != 0) {
    return Status(Code::kNotSupport, "HCCL_PLUGIN_PATH is refused in a privileged program");
  }
  return {};
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
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
  std::error_code ignored;  // a path that cannot be resolved contains no plugin
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

Result<PluginLibrary> load_plugin_library(std::string_view name, std::string_view plugin_path,
                                          const std::string& purpose, int flags) {
  HCCL_RETURN_IF_ERROR(check_plugin_path(plugin_path));
  fill_standard_descriptors();
  const std::vector<std::string> files = plugin_files(name, plugin_path);
  const auto found = std::find_if(files.begin(), files.end(), [](const std::string& file) {
    return access(file.c_str(), F_OK) == 0;
  });
  if (found == files.end()) {
    return Status(Code::kNotSupport,
                  "there is no plugin for " + purpose + "; looked for " + joined(files));
  }
  // The library is never unloaded, because libfabric and MPI leave threads and exit handlers
  // behind.
  const SignalsBlocked blocked;  // the library may start threads
  void* handle = dlopen(found->c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | flags);
  if (handle == nullptr) {
    const char* why = dlerror();
    return Status(Code::kNotSupport,
                  "the plugin for " + purpose + ", " + *found +
                      ", cannot be loaded: " + (why == nullptr ? "no reason given" : why));
  }
  return PluginLibrary{handle, *found};
}

}  // namespace hccl
