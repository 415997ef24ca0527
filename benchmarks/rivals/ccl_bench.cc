// Times oneCCL by the method of method.h. Needs no launcher: BENCH_RANK and BENCH_SIZE give rank
// and size. Even under a launcher, oneCCL itself chooses the address at which the ranks meet.
#include <cstdio>
#include <exception>
#include <memory>
#include <oneapi/ccl.hpp>
#include <vector>

#include "method.h"

namespace {

std::unique_ptr<ccl::communicator> world;
std::shared_ptr<ccl::kvs> meeting;  // must outlive the communicator

int open_ccl(const bench_options*, int* rank, int* size, char* version) try {
  *rank = bench_environment("BENCH_RANK");
  *size = bench_environment("BENCH_SIZE");
  ccl::init();
  ccl::kvs::address_type address;
  if (*rank == 0) {
    meeting = ccl::create_main_kvs();
    address = meeting->get_address();
    bench_post(address.data(), address.size());
  } else {
    bench_fetch(address.data(), address.size());
    meeting = ccl::create_kvs(address);
  }
  world = std::make_unique<ccl::communicator>(ccl::create_communicator(*size, *rank, meeting));
  const auto v = ccl::get_library_version();
  std::snprintf(version, BENCH_TEXT, "oneCCL %u.%u.%u", v.major, v.minor, v.update);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "oneCCL: %s\n", e.what());
  return 1;
}

int run(int op, int type, void* send, void* recv, size_t count, int root) try {
  const ccl::datatype kTypes[] = {ccl::datatype::float32, ccl::datatype::float16,
                                  ccl::datatype::bfloat16};
  const ccl::datatype kind = kTypes[type];
  const size_t block = count / static_cast<size_t>(world->size());
  switch (op) {
    case BENCH_ALLREDUCE:
      ccl::allreduce(send, recv, count, kind, ccl::reduction::sum, *world).wait();
      return 0;
    case BENCH_BROADCAST:
      ccl::broadcast(recv, count, kind, root, *world).wait();
      return 0;
    case BENCH_ALLGATHER: {
      const std::vector<size_t> counts(static_cast<size_t>(world->size()), block);
      ccl::allgatherv(send, block, recv, counts, kind, *world).wait();
      return 0;
    }
    case BENCH_REDUCE_SCATTER:
      ccl::reduce_scatter(send, recv, block, kind, ccl::reduction::sum, *world).wait();
      return 0;
    case BENCH_REDUCE:
      ccl::reduce(send, recv, count, kind, ccl::reduction::sum, root, *world).wait();
      return 0;
    case BENCH_BARRIER:
      ccl::barrier(*world);
      return 0;
    default:
      ccl::alltoall(send, recv, block, kind, *world).wait();
      return 0;
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "oneCCL: %s\n", e.what());
  return 1;
}

void close_ccl() {
  world.reset();
  meeting.reset();
}

}  // namespace

int main(int argc, char** argv) {
  const bench_library library = {open_ccl, nullptr, nullptr, run, close_ccl};
  return bench_main(argc, argv, &library);
}
