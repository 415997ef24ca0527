#include "benchmarks/split/world.h"

#include <time.h>

#include <algorithm>
#include <chrono>

namespace split_bench {

void check(HcclResult result, const char* call) {
  if (result != HCCL_SUCCESS)
    throw std::runtime_error(std::string(call) + ": " + HcclGetLastErrorText());
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

namespace {

double cpu_time() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Does about 10 us of arithmetic, in which each step needs the previous one.
void steps() {
  std::uint64_t x = 0x9e3779b97f4a7c15ull;
  for (int i = 0; i < 5000; ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
  }
  asm volatile("" : "+r"(x));
}

}  // namespace

World::World() {
  check(HcclCommInitLauncher(&comm_), "HcclCommInitLauncher");
  check(HcclGetRankId(comm_, &rank_), "HcclGetRankId");
  check(HcclGetRankSize(comm_, &size_), "HcclGetRankSize");
}

World::~World() { HcclCommDestroy(comm_); }

std::vector<double> World::reduce(std::vector<double> values, HcclReduceOp op) const {
  check(HcclAllReduce(values.data(), values.data(), values.size(), HCCL_DATA_TYPE_FP64, op, comm_,
                      nullptr),
        "HcclAllReduce");
  return values;
}

std::vector<std::uint32_t> World::from_root(std::vector<std::uint32_t> values) const {
  std::uint32_t count = static_cast<std::uint32_t>(values.size());
  check(HcclBroadcast(&count, 1, HCCL_DATA_TYPE_UINT32, 0, comm_, nullptr), "HcclBroadcast");
  values.resize(count);
  check(HcclBroadcast(values.data(), count, HCCL_DATA_TYPE_UINT32, 0, comm_, nullptr),
        "HcclBroadcast");
  return values;
}

void Computer::begin() { begun_ = cpu_time(); }

void Computer::until(double seconds) {
  while (cpu_time() - begun_ < seconds * share_) steps();
}

}  // namespace split_bench
