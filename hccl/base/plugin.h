// Loads libraries of this project when they are first needed: libhccl_<name>.so.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/status.h"

namespace hccl {

/// The files that may contain a plugin, in order; the first existing file is taken. If
/// `plugin_path` is not empty, only its file counts. Otherwise these are the file beside the
/// library that contains this function, then the files beside the executable and in lib64 and lib
/// beside the executable's directory.
std::vector<std::string> plugin_files(std::string_view name, std::string_view plugin_path);

struct PluginLibrary {
  void* handle = nullptr;  ///< for dlsym
  std::string file;
};

/// Loads a plugin, once in each process; it stays loaded. `purpose` completes the text "there is no
/// plugin for"; `flags` are additional flags of dlopen. kNotSupport names the file and the reason;
/// kPara: the plugin_path is not absolute.
Result<PluginLibrary> load_plugin_library(std::string_view name, std::string_view plugin_path,
                                          const std::string& purpose, int flags = 0);

}  // namespace hccl
