#include <dlfcn.h>

#include <cstring>

#include "hccl/base/plugin.h"
#include "hccl/files/codecs.h"

namespace hccl::files {
namespace {

// RTLD_DEEPBIND keeps the plugin from binding to another Protobuf that is loaded globally in the
// process. The sanitizers' run time does not support RTLD_DEEPBIND.
int isolation() {
  return ::dlsym(RTLD_DEFAULT, "__sanitizer_print_stack_trace") == nullptr ? RTLD_DEEPBIND : 0;
}

}  // namespace

Result<const Codecs*> codecs(std::string_view directory) {
  HCCL_ASSIGN_OR_RETURN(const PluginLibrary library,
                        load_plugin_library("files", directory, "files", isolation()));
  const auto refuse = [&](const std::string& why) {
    return Status(Code::kNotSupport, "the plugin for files, " + library.file + ", " + why);
  };
  const auto table =
      reinterpret_cast<decltype(&hccl_files_codecs)>(::dlsym(library.handle, "hccl_files_codecs"));
  if (table == nullptr) return refuse("does not export hccl_files_codecs");
  const Codecs* const codecs = table();
  if (std::strcmp(codecs->build, kBuild) == 0) return codecs;
  return refuse("comes from another build (" + std::string(codecs->build) +
                ") than this library (" + kBuild + "): reinstall both");
}

}  // namespace hccl::files
