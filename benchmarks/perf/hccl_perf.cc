// hccl_perf: times a collective over a range of sizes, and checks the results exactly.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "benchmarks/perf/algorithms.h"
#include "benchmarks/perf/bench.h"
#include "benchmarks/perf/options.h"
#include "hccl/acl/acl.h"
#include "hccl/hccl.h"

namespace hccl_perf {
namespace {

// A rank needs a device before it may have device memory.
void choose_device(const Options& options) {
  if (options.memory != "private") check(aclrtSetDevice(0), "aclrtSetDevice");
}

int run_threads(const Options& options) {
  HcclRootInfo root;
  check(HcclGetRootInfo(&root), "HcclGetRootInfo");
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int r = 0; r < options.threads; ++r) {
    threads.emplace_back([&, r] {
      choose_device(options);
      HcclComm comm = nullptr;
      check(HcclCommInitRootInfo(static_cast<std::uint32_t>(options.threads), &root,
                                 static_cast<std::uint32_t>(r), &comm),
            "HcclCommInitRootInfo");
      failures += Bench(options, comm).run();
      check(HcclCommDestroy(comm), "HcclCommDestroy");
    });
  }
  for (auto& thread : threads) thread.join();
  return failures == 0 ? 0 : 1;
}

int run_rank(const Options& options) {
  choose_device(options);
  HcclComm comm = nullptr;
  check(HcclCommInitLauncher(&comm), "HcclCommInitLauncher");
  const int result = Bench(options, comm).run();
  check(HcclCommDestroy(comm), "HcclCommDestroy");
  return result;
}

}  // namespace
}  // namespace hccl_perf

int main(int argc, char** argv) try {
  const hccl_perf::Options options = hccl_perf::parse(argc, argv);
  if (!options.algo.empty() && options.algo.find(':') == std::string::npos &&
      !hccl_perf::can_describe()) {
    std::fprintf(stderr, "hccl_perf: this library does not list its algorithms: say level0:NAME\n");
    return 2;
  }
  const int result =
      options.threads > 0 ? hccl_perf::run_threads(options) : hccl_perf::run_rank(options);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return result;
  std::fprintf(stderr, "hccl_perf: cannot write to standard output\n");
  return 1;
} catch (const std::system_error& error) {
  std::fprintf(stderr,
               "hccl_perf: a thread cannot be started: %s; raise the limit of threads (ulimit -u, "
               "pids.max of the control group) or say fewer --threads\n",
               error.what());
  std::_Exit(1);
}
