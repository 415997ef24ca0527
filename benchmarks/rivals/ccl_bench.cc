// oneCCL, by the method of method.h. Needs no launcher: BENCH_RANK and BENCH_SIZE say who this is;
// under one, oneCCL's own choice of meeting place is used all the same.
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
  if (type != BENCH_FP32) return 1;
  const auto fp32 = ccl::datatype::float32;
  const size_t block = count / static_cast<size_t>(world->size());
  switch (op) {
    case BENCH_ALLREDUCE:
      ccl::allreduce(send, recv, count, fp32, ccl::reduction::sum, *world).wait();
      return 0;
    case BENCH_BROADCAST:
      ccl::broadcast(recv, count, fp32, root, *world).wait();
      return 0;
    case BENCH_ALLGATHER: {
      const std::vector<size_t> counts(static_cast<size_t>(world->size()), block);
      ccl::allgatherv(send, block, recv, counts, fp32, *world).wait();
      return 0;
    }
    case BENCH_REDUCE_SCATTER:
      ccl::reduce_scatter(send, recv, block, fp32, ccl::reduction::sum, *world).wait();
      return 0;
    default:
      ccl::alltoall(send, recv, block, fp32, *world).wait();
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
