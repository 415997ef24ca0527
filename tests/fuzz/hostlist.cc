// Slurm's short lists of hosts and of counts.
#include "hccl/join/hostlist.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hccl::join;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto hosts = expand_hostlist(text); hosts.ok()) {
    PROMISE(!hosts->empty() && hosts->size() <= kHostlistCap);
    for (const std::string& host : *hosts) {
      PROMISE(!host.empty() && host.size() < kHostNameCap + 16);
      PROMISE(host.find_first_of("[],") == std::string::npos);
    }
  }
  if (const auto counts = expand_counts(text); counts.ok()) {
    PROMISE(!counts->empty() && counts->size() <= kHostlistCap);
    for (const int count : *counts) PROMISE(count >= 0);
  }
  return 0;
}
