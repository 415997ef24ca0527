// For programs that link the plugin's code: as one of their own sources, this stands in for
// load.cc, which then stays in its archive.
#include "hccl/files/codecs.h"

namespace hccl::files {

Result<const Codecs*> codecs(std::string_view) { return hccl_files_codecs(); }

}  // namespace hccl::files
