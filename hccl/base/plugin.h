// Loads libraries of this project when they are first needed: libhccl_<name>.so.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/status.h"

namespace hccl {

/// Returns the files in which a plugin is looked for, in order; the first existing file is taken.
/// If `plugin_path` is not empty, it is the only directory. Otherwise there are four: the directory
/// of the library that contains this function, the executable's directory, and lib64 and lib beside
/// the executable's directory.
std::vector<std::string> plugin_files(std::string_view name, std::string_view plugin_path);

struct PluginLibrary {
  void* handle = nullptr;  ///< for dlsym
  std::string file;
};

/// Loads a plugin, once in each process; the plugin stays loaded. `purpose` completes the text
/// "there is no plugin for"; `flags` are additional flags of dlopen. kNotSupport names the file and
/// the reason; kPara: the plugin_path is not absolute.
Result<PluginLibrary> load_plugin_library(std::string_view name, std::string_view plugin_path,
                                          const std::string& purpose, int flags = 0);

}  // namespace hccl
