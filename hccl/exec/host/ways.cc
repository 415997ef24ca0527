#include "hccl/exec/host/ways.h"

namespace hccl::exec::host {

const char* words(Way way) {
  switch (way) {
    case Way::kLine:
      return "line";
    case Way::kRing:
      return "ring";
    case Way::kStage:
      return "stage";
    case Way::kPull:
      return "pull";
    case Way::kPush:
      return "push";
  }
  return "unknown way";
}

Ways Ways::for_host(int ranks, bool shared_cores) {
  constexpr std::size_t kKiB = 1024;
  constexpr std::size_t kMiB = 1024 * kKiB;
  Ways ways;
  ways.whole_most = 64 * kKiB;
  ways.chunk = (shared_cores ? 512 : 128) * kKiB;
  if (shared_cores) {
    // A store into a line that another core holds is cheap when both ranks run on the same core.
    ways.ring_most = 2 * kKiB;
    ways.pull_most = 0;
  } else {
    ways.ring_most = ranks == 2 ? 256 * kKiB : 64 * kKiB / static_cast<std::size_t>(ranks);
    ways.stage_most = kMiB;
    ways.pull_most = 32 * kMiB;
  }
  return ways;
}

}  // namespace hccl::exec::host
