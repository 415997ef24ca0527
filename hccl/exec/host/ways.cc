#include "hccl/exec/host/ways.h"

#include <algorithm>

namespace hccl::exec::host {

std::string Ways::why(Way way, std::size_t bytes) const {
  const std::string size = std::to_string(bytes) + " bytes";
  switch (way) {
    case Way::kPost:
      return size + ", short enough to travel with the call";
    case Way::kRing:
      return size + ", a ring takes inputs whole up to " +
             std::to_string(std::max(ring_most, whole_most));
    case Way::kStage:
      return size + " in chunks of " + std::to_string(chunk);
    case Way::kChain:
      return size + ", ranks take turns from " + std::to_string(chain_from);
    case Way::kCma:
      return size + ", the kernel copies";
    case Way::kPull:
    case Way::kPush:
      return size + " that others reach";
  }
  return size;
}

Status Ways::check() const {
  const auto within = [](const char* name, std::size_t value, std::size_t low, std::size_t high) {
    if (value >= low && value <= high) return Status();
    return Status(Code::kPara, std::string("host path: ") + name + " is " + std::to_string(value) +
                                   ", expected " + std::to_string(low) + " to " +
                                   std::to_string(high));
  };
  HCCL_RETURN_IF_ERROR(within("ring_most", ring_most, 0, kMostInRing));
  HCCL_RETURN_IF_ERROR(within("whole_most", whole_most, 0, kMostInRing));
  HCCL_RETURN_IF_ERROR(within("chunk", chunk, kLeastChunk, kMostInRing));
  if (most_that_fold_all < 0) return Status(Code::kPara, "host path: most_that_fold_all is < 0");
  return {};
}

Ways Ways::for_host(int ranks, bool shared_cores, bool bound) {
  constexpr std::size_t kKiB = 1024;
  // Of one system call.
  constexpr std::size_t kShortestCopy = 16 * kKiB;
  const auto number = static_cast<std::size_t>(ranks);
  Ways ways;
  // Of reachable memory, what is too long for the ring is pushed: a line then crosses between the
  // cores once to be folded, and its result stays where it was made until somebody wants it.
  if (shared_cores) {
    // A store into a line that another core holds is cheap when both ranks run on the same core.
    // A second meeting costs each rank a turn of all that share its core; one rank of a core folds
    // all of the inputs, and the others copy what it has (measured with 4 to 16 ranks on 2 cores).
    // Of more than 16 the square stands for what each paid when it folded for itself.
    const std::size_t square = number * number;
    ways.ring_most = ranks <= 4 ? 4 * kKiB : std::clamp(4096 * kKiB / square, 2 * kKiB, 16 * kKiB);
    ways.whole_most = ranks <= 8 ? 64 * kKiB : 32 * kKiB;
    ways.chain_from = 128 * kKiB + 1;
    if (bound && ranks <= 4) {  // 64 KiB 26 -> 23 us, 128 KiB 38 -> 30; 8 ranks would lose
      ways.whole_most = 32 * kKiB;
      ways.chain_from = 32 * kKiB + 1;
    }
    // What folds is chained in the same time or less.
    ways.cma_moves_from = std::max(128 * kKiB, number * kShortestCopy);
    ways.cma_moves_most = 16 * 1024 * kKiB;
    ways.chunk = 512 * kKiB;
  } else {
    ways.ring_most = 64 * kKiB / number;
    ways.whole_most = ranks == 2 ? 256 * kKiB : 64 * kKiB;
    ways.cma_moves_from = std::max(64 * kKiB, number * kShortestCopy);
    ways.cma_folds_from = std::max(128 * kKiB, number * kShortestCopy);
    ways.cma_moves_most = ways.cma_folds_most = 32 * 1024 * kKiB;
    // A pair meets less often in larger ones: EPYC, a line in 60 ns, 4 MiB, allreduce 270 -> 245
    // us, alltoall 244 -> 219.
    ways.chunk = (ranks == 2 ? 256 : 128) * kKiB;
  }
  return ways;
}

}  // namespace hccl::exec::host
