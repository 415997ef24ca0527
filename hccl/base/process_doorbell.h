// A doorbell for threads of one process. The kernel finds its sleepers faster than those of a
// doorbell in shared memory.
#pragma once

#include "hccl/base/doorbell.h"

namespace hccl {

struct ProcessAtomics : StdAtomics {
  /// `at_most`: nanoseconds::max() means no limit.
  static void sleep(atomic<std::uint32_t>& word, std::uint32_t value,
                    std::chrono::nanoseconds at_most);
  static void wake_all(atomic<std::uint32_t>& word);
};

using ProcessDoorbell = BasicDoorbell<ProcessAtomics>;

}  // namespace hccl
