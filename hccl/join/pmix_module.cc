#include "hccl/join/pmix_module.h"

#include <dlfcn.h>

#include <string>

#include "hccl/base/plugin.h"

namespace hccl::join {

Result<PmixModule> PmixModule::load(const Config& config) {
  HCCL_ASSIGN_OR_RETURN(const PluginLibrary library,
                        load_plugin_library("pmix", config.plugin_path,
                                            "PMIx, by which mpirun has started this process"));
  PmixModule pmix;
  pmix.world_ =
      reinterpret_cast<hccl_pmix_world_function>(::dlsym(library.handle, "hccl_pmix_world"));
  pmix.share_ =
      reinterpret_cast<hccl_pmix_share_function>(::dlsym(library.handle, "hccl_pmix_share"));
  if (pmix.world_ != nullptr && pmix.share_ != nullptr) return pmix;
  return Status(Code::kNotSupport, library.file + " is not this library's PMIx module");
}

Status PmixModule::world(int* rank, int* size) const {
  char error[256] = "";
  if (world_(rank, size, error, sizeof error) == 0) return {};
  return Status(Code::kNetwork, std::string("PMIx: ") + error);
}

Status PmixModule::share(std::array<char, RootInfo::kBytes>& info, int instance,
                         const Config& config) const {
  char error[256] = "";
  const auto seconds = static_cast<unsigned>(config.connect_timeout.count());
  const int failed = share_(info.data(), info.size(), static_cast<std::uint64_t>(instance), seconds,
                            error, sizeof error);
  if (failed == 0) return {};
  return Status(Code::kTimeout, std::string("PMIx: ") + error);
}

}  // namespace hccl::join
