// Runs the ranks as threads of one process, and prints their lines in the order of the ranks.
// 01_communicator/01_root_info shows the same steps without this header.
#pragma once

#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace example {

/// The values that a thread needs to become a rank.
struct Rank {
  uint32_t id;                    // 0 .. count-1
  uint32_t count;                 // number of ranks
  int32_t device;                 // for aclrtSetDevice
  const HcclRootInfo* root_info;  // for HcclCommInitRootInfo
  std::ostream& out;              // printed to standard output when all ranks are done

  /// "rank 2 receives 8 12"
  template <class T>
  void print(const std::string& what, const std::vector<T>& values) const {
    out << "rank " << id << ' ' << what;
    for (const T& value : values) out << ' ' << value;
    out << '\n';
  }
};

/// Runs rank_main once for each rank, each on a thread of its own. The program's argument is the
/// number of ranks, 4 by default. If there are fewer devices, ranks share them. Returns the
/// program's exit status.
inline int run(int argc, char** argv, void (*rank_main)(const Rank&)) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 4;
  if (argc > 2 || count < 2 || count > 64) {
    std::fprintf(stderr, "usage: %s [ranks, 2 to 64]\n", argv[0]);
    return 2;
  }
  ACL_CHECK(aclInit(nullptr));
  uint32_t devices = 0;
  ACL_CHECK(aclrtGetDeviceCount(&devices));

  // One rank is the root. All ranks need its root info.
  ACL_CHECK(aclrtSetDevice(0));
  auto root_info = std::make_unique<HcclRootInfo>();
  HCCL_CHECK(HcclGetRootInfo(root_info.get()));

  std::vector<std::ostringstream> lines(count);
  std::vector<std::thread> threads;
  for (int id = 0; id < count; ++id) {
    threads.emplace_back([&, id] {
      rank_main({static_cast<uint32_t>(id), static_cast<uint32_t>(count),
                 static_cast<int32_t>(id % devices), root_info.get(), lines[id]});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::ostringstream& line : lines) std::fputs(line.str().c_str(), stdout);

  ACL_CHECK(aclrtResetDevice(0));
  ACL_CHECK(aclFinalize());
  return 0;
}

}  // namespace example
