// libhccl_pmix.so under mpirun: every process repeatedly gets the blob of process 0, without MPI
// and beside it. Arguments: the plugin, and "mpi" to initialise MPI meanwhile. Exit status 0: all
// was right.
#include <dlfcn.h>
#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "hccl/join/pmix/pmix_plugin.h"

namespace {

int failures = 0;

void expect(bool good, const std::string& what) {
  if (good) return;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  ++failures;
}

/// A blob as long as a root info; the blobs of two calls differ.
std::vector<char> blob(std::uint64_t instance) {
  std::vector<char> bytes(4108);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i * 31 + instance * 101);
  }
  return bytes;
}

void check(hccl_pmix_world_function world, hccl_pmix_share_function share,
           std::uint64_t first_instance) {
  char error[256] = "";
  int rank = -1;
  int size = 0;
  expect(world(&rank, &size, error, sizeof error) == 0, std::string("world: ") + error);
  expect(size == 4 && rank >= 0 && rank < size, "rank and size");
  for (std::uint64_t i = 0; i < 8; ++i) {
    const std::uint64_t instance = first_instance + i;
    const std::vector<char> expected = blob(instance);
    std::vector<char> got = rank == 0 ? expected : std::vector<char>(expected.size());
    const int result = share(got.data(), got.size(), instance, 30, error, sizeof error);
    expect(result == 0, std::string("share: ") + error);
    expect(got == expected, "the bytes of instance " + std::to_string(instance));
  }
  // No process publishes this blob.
  char byte = 0;
  if (rank != 0) {
    const int result = share(&byte, 1, first_instance + 99, 1, error, sizeof error);
    expect(result == 9, "a root that never comes is HCCL_E_TIMEOUT, not " + std::to_string(result));
    expect(std::strstr(error, "process 0") != nullptr, std::string("names the root: ") + error);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const bool beside_mpi = argc > 2 && std::strcmp(argv[2], "mpi") == 0;
  void* plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  const auto world = reinterpret_cast<hccl_pmix_world_function>(dlsym(plugin, "hccl_pmix_world"));
  const auto share = reinterpret_cast<hccl_pmix_share_function>(dlsym(plugin, "hccl_pmix_share"));
  if (world == nullptr || share == nullptr) return 2;
  check(world, share, 1);
  if (beside_mpi) {
    MPI_Init(&argc, &argv);
    check(world, share, 200);
    int sum = 1;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect(sum == 4, "MPI still works");
    MPI_Finalize();
  }
  return failures == 0 ? 0 : 1;
}
