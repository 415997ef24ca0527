// Replaces load.cc in programs that link the plugin's code. Such a program lists this file among
// its own sources, so the linker does not take load.cc from the library's archive.
#include "hccl/files/codecs.h"

namespace hccl::files {

Result<const Codecs*> codecs(std::string_view) { return hccl_files_codecs(); }

}  // namespace hccl::files
