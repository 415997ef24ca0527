// HcclCommConfig: the configuration of one communicator, which overrides the environment's.
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

/// `given` null: only the environment. kPara names the field of an invalid value, or a wrong magic
/// word. Fields that the given version does not have are not read. An unusual value without effect
/// is logged to `log`.
Result<CommConfig> load_comm_config(const HcclCommConfig* given, const Config& environment,
                                    const Logger& log);

}  // namespace hccl::api
