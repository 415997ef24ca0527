// Ranks as processes under mpirun, with an exchange by MPI. Defines its own main().
#include <gtest/gtest.h>
#include <mpi.h>

#include "tests/support/ranks.h"

namespace hccl::testing {
namespace {

int world(int (*ask)(MPI_Comm, int*)) {
  int value = 0;
  ask(MPI_COMM_WORLD, &value);
  return value;
}

/// Has no deadline; ctest's time limit ends a hang.
Result<std::vector<std::string>> exchange(std::string mine, Deadline) {
  const int size = world(&MPI_Comm_size);
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(static_cast<std::size_t>(size));
  MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD);
  std::vector<int> offsets;
  int total = 0;
  for (const int each : lengths) {
    offsets.push_back(total);
    total += each;
  }
  std::string all(static_cast<std::size_t>(total), '\0');
  MPI_Allgatherv(mine.data(), length, MPI_BYTE, all.data(), lengths.data(), offsets.data(),
                 MPI_BYTE, MPI_COMM_WORLD);
  std::vector<std::string> blobs;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    blobs.push_back(
        all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(lengths[r])));
  }
  return blobs;
}

}  // namespace

void run_ranks(int size, const std::function<void(Rank&)>& body) {
  ASSERT_EQ(size, world(&MPI_Comm_size)) << "start the program with mpirun -np " << size;
  Rank rank(world(&MPI_Comm_rank), size, &exchange);
  body(rank);
  rank.barrier();
}

std::vector<int> possible_sizes() { return {world(&MPI_Comm_size)}; }
bool ranks_are_threads() { return false; }

}  // namespace hccl::testing

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  ::testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  MPI_Finalize();
  return failed;
}
