// Every environment variable: lines of NAME=value.
#include <sys/socket.h>

#include <map>

#include "hccl/base/config.h"
#include "hccl/base/text.h"
#include "hccl/control/gathering.h"
#include "hccl/join/interfaces.h"
#include "hccl/join/launcher.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hccl;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::map<std::string, std::string, std::less<>> variables;
  for (const std::string_view line : split_at(text, '\n')) {
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  const auto get = [&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  };
  static_cast<void>(DeviceConfig::read(get));
  auto config = Config::read(get);
  const std::uint16_t base_port = config.ok() ? config->base_port : 60000;
  if (const auto launch = join::detect_launcher(base_port, get); launch.ok()) {
    PROMISE(launch->size >= 0 && launch->local_size >= 0);
    PROMISE(launch->size == 0 || launch->rank < launch->size);
  }
  if (!config.ok()) return 0;
  PROMISE(config->base_port >= 1024 && config->connect_timeout.count() >= 1);
  for (const char* operation : {"allreduce", "reduce_scatter_v", "alltoallvc", "send"}) {
    for (int level = 0; level < 4; ++level) {
      static_cast<void>(config->algorithm_for(operation, level));
    }
  }
  static_cast<void>(config->check_algorithms({"inline", "staged"}, {"ring", "chain"}));
  const std::vector<join::Interface> interfaces = {{"lo", "127.0.0.1", AF_INET},
                                                   {"eth0", "10.0.0.2", AF_INET},
                                                   {"eth0", "fd00::2", AF_INET6},
                                                   {"docker0", "172.17.0.1", AF_INET}};
  static_cast<void>(join::choose_interface(interfaces, *config));
  static_cast<void>(join::is_local(config->if_ip));
  PROMISE(config->agreement().size() <= control::kAgreementCap);
  // Setting the algorithm that was read once more succeeds and changes nothing.
  const std::string before = config->agreement();
  PROMISE(config->set_algo(config->algo).ok() && config->agreement() == before);
  return 0;
}
