// The plugin's table.
#include "hccl/files/plugin/message.h"

const hccl::files::Codecs* hccl_files_codecs() {
  static const hccl::files::Codecs codecs = {
      .build = hccl::files::kBuild,
      .trace = hccl::files::trace_codec(),
      .costs = hccl::files::costs_codec(),
  };
  return &codecs;
}
