// Libraries of this project that are loaded when they are first needed: libhccl_<name>.so.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/status.h"

namespace hccl {

/// The files in which a plugin is looked for, in this order; the first that exists is taken. Only
/// `plugin_path` if that is not empty; otherwise beside the library that contains this function,
/// then beside the executable and in the lib64 and lib that lie beside its directory.
std::vector<std::string> plugin_files(std::string_view name, std::string_view plugin_path);

struct PluginLibrary {
  void* handle = nullptr;  ///< for dlsym
  std::string file;
};

/// Loads a plugin, once a process; it stays loaded. `purpose` completes "there is no plugin for";
/// `flags` are more of dlopen's. kNotSupport, naming the file and the reason; kPara for a
/// plugin_path that is not absolute.
Result<PluginLibrary> load_plugin_library(std::string_view name, std::string_view plugin_path,
                                          const std::string& purpose, int flags = 0);

}  // namespace hccl
