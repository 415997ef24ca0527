// HcclCommConfig: the configuration of one communicator, which overrides the environment.
#pragma once

#include <string>

#include "hccl/api/communicators.h"
#include "hccl/base/config.h"
#include "hccl/base/log.h"
#include "hccl/hccl_types.h"

namespace hccl::api {

struct CommConfig {
  Config config;
  std::string name;  ///< "": no name was given
  Communicators::About about;
};

/// Reads a configuration. If `given` is null, only the environment counts. kPara: a wrong magic
/// word, or an invalid value; the text names the field. Fields that are newer than the given
/// version are not read. Unusual values that have no effect are logged to `log`.
Result<CommConfig> load_comm_config(const HcclCommConfig* given, const Config& environment,
                                    const Logger& log);

}  // namespace hccl::api
