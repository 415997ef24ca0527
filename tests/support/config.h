// A configuration for tests: with long time limits, and without log and files.
#pragma once

#include <chrono>
#include <string>

#include "hccl/base/config.h"

namespace hccl::testing {

inline Config quiet_config(const std::string& transport = "auto",
                           std::chrono::seconds patience = std::chrono::seconds(60)) {
  Config config;
  config.transport = transport;
  config.connect_timeout = patience;
  config.exec_timeout = std::chrono::seconds(60);
  config.log_level = "off";
  config.flight_recorder_dir = "off";
  return config;
}

}  // namespace hccl::testing
