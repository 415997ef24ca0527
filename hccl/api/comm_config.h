// HcclCommConfig: one communicator's own configuration, on top of the environment's.
#pragma once

#include <string>

#include "hccl/api/communicators.h"
#include "hccl/base/config.h"
#include "hccl/base/log.h"
#include "hccl/hccl_types.h"

namespace hccl::api {

struct CommConfig {
  Config config;
  std::string name;  ///< "": none was given
  Communicators::About about;
};

/// `given` null: the environment alone. kPara, naming the field: an invalid value, or a wrong magic
/// word. Fields that the given version does not know are not read. An unusual value without effect
/// is logged to `log`.
Result<CommConfig> load_comm_config(const HcclCommConfig* given, const Config& environment,
                                    const Logger& log);

}  // namespace hccl::api
