// hccl_perf: times a collective over a range of sizes, in the manner of the benchmarks that users
// of such libraries know, and checks every result against exact data.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

#include "benchmarks/perf/buffers.h"
#include "benchmarks/perf/operation.h"
#include "benchmarks/perf/options.h"
#include "benchmarks/perf/report.h"
#include "hccl/acl/acl.h"
#include "hccl/hccl.h"

namespace hccl_perf {
namespace {

void check(HcclResult result, const char* what) {
  if (result == HCCL_SUCCESS) return;
  std::fprintf(stderr, "hccl_perf: %s: %s: %s\n", what, HcclGetErrorString(result),
               HcclGetLastErrorText());
  std::_Exit(1);  // other ranks of this process may be inside the library
}

/// Of this rank: its process, or its thread where ranks are threads (the library's own threads,
/// which serve all of them, are left out then).
double cpu_seconds(bool threads) {
  timespec now{};
  ::clock_gettime(threads ? CLOCK_THREAD_CPUTIME_ID : CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// What it takes to ask twice; as long as the shortest operations.
double cost_of_asking(bool threads) {
  double least = 1;
  for (int i = 0; i < 1000; ++i) {
    const double start = cpu_seconds(threads);
    least = std::min(least, cpu_seconds(threads) - start);
  }
  return least;
}

// Element-wise maximum over all ranks.
void maximum(std::vector<double>& values, HcclComm comm) {
  check(HcclAllReduce(values.data(), values.data(), values.size(), HCCL_DATA_TYPE_FP64,
                      HCCL_REDUCE_MAX, comm, nullptr),
        "collecting times");
}

// The sum over all ranks.
double total(double value, HcclComm comm) {
  check(HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_FP64, HCCL_REDUCE_SUM, comm, nullptr),
        "collecting times");
  return value;
}

double percentile(const std::vector<double>& sorted, double p) {
  const auto at = static_cast<std::size_t>(p * static_cast<double>(sorted.size() - 1) + 0.5);
  return sorted[at];
}

class Bench {
 public:
  Bench(const Options& options, HcclComm comm)
      : o_(options), operation_(find_operation(options.op)), comm_(comm) {
    std::uint32_t value = 0;
    check(HcclGetRankId(comm, &value), "HcclGetRankId");
    rank_ = static_cast<int>(value);
    check(HcclGetRankSize(comm, &value), "HcclGetRankSize");
    ranks_ = static_cast<int>(value);
    if (o_.root >= value) {
      if (rank_ == 0)
        std::fprintf(stderr, "hccl_perf: --root %u, but there are %u ranks\n", o_.root, value);
      std::_Exit(2);
    }
  }

  // 0 if all results were right.
  int run() {
    if (rank_ == 0) print_header(o_, ranks_);
    std::vector<Row> rows;
    bool right = true;
    if (o_.op == "barrier") {
      rows.push_back(measure(0));
    } else {
      const std::uint64_t element = size_of(o_.data_type);
      const std::uint64_t unit = operation_.blocks ? static_cast<std::uint64_t>(ranks_) : 1;
      std::uint64_t last = 0;
      for (std::uint64_t bytes = std::max<std::uint64_t>(o_.min_bytes, 1); bytes <= o_.max_bytes;
           bytes *= o_.factor) {
        const std::uint64_t count = std::max<std::uint64_t>(1, bytes / element / unit) * unit;
        if (count != last) rows.push_back(measure(count));
        last = count;
        if (bytes > o_.max_bytes / o_.factor) break;
      }
    }
    for (const Row& row : rows) right = right && row.wrong <= 0;
    if (rank_ == 0 && !write_files(o_, ranks_, rows)) return 1;
    if (!right && rank_ == 0)
      std::fprintf(stderr, "hccl_perf: WRONG RESULTS, see the last column\n");
    return right ? 0 : 1;
  }

 private:
  Row measure(std::uint64_t count) {
    const std::uint64_t element = size_of(o_.data_type);
    const std::uint64_t in = operation_.send_count(count, ranks_);
    const std::uint64_t out = operation_.recv_count(count, ranks_);
    const Buffers memory(
        o_.memory, (std::max(in, out) + (o_.in_place ? 0 : std::min(in, out))) * element + 128,
        comm_);
    std::byte* send = memory.data();
    std::byte* recv = send;
    if (!o_.in_place) {
      recv = send + (in * element + 63) / 64 * 64;
    } else if (in < out) {
      send = recv + static_cast<std::uint64_t>(rank_) * in * element;
    } else if (out < in) {
      recv = send + static_cast<std::uint64_t>(rank_) * out * element;
    }
    const bool has_result =
        !operation_.recv_on_root || static_cast<std::uint32_t>(rank_) == o_.root;

    Row row;
    row.count = count;
    row.bytes = count * element;
    std::vector<double> times;
    std::uint64_t wrong = 0;
    double cpu = 0;
    double wall = 0;
    for (int i = -o_.warmup; i < o_.iterations; ++i) {
      // Every rank writes its buffer anew, outside of the timed part: no result can survive from
      // before.
      write_input(o_, send, in, rank_, ranks_, i + o_.warmup);
      flusher_.flush();
      check(HcclBarrier(comm_, nullptr), "HcclBarrier");
      const double cpu_start = cpu_seconds(o_.threads > 0);
      const auto start = std::chrono::steady_clock::now();
      check(operation_.run(o_, send, recv, count, rank_, ranks_, comm_), o_.op.c_str());
      const auto end = std::chrono::steady_clock::now();
      if (i >= 0) {
        cpu += std::max(0.0, cpu_seconds(o_.threads > 0) - cpu_start - asking_);
        times.push_back(std::chrono::duration<double, std::micro>(end - start).count());
        wall += times.back() * 1e-6;
      }
      // Where ranks share a core, nobody's checking may hold up those who are not done yet.
      check(HcclBarrier(comm_, nullptr), "HcclBarrier");
      if (o_.check && has_result && o_.op != "barrier") {
        wrong += count_wrong(o_, operation_, recv, out, count, rank_, ranks_, i + o_.warmup);
      }
    }
    maximum(times, comm_);
    std::vector<double> most_wrong{static_cast<double>(wrong)};
    maximum(most_wrong, comm_);
    std::sort(times.begin(), times.end());
    row.p50_us = percentile(times, 0.5);
    row.p99_us = percentile(times, 0.99);
    row.min_us = times.front();
    row.algbw = static_cast<double>(row.bytes) / row.p50_us / 1e3;
    row.busbw = row.algbw * operation_.bus_factor(ranks_);
    row.cpu = total(cpu / wall, comm_) / ranks_;
    row.wait = std::max(0.0, 1 - row.cpu);
    row.wrong = o_.check && o_.op != "barrier" ? static_cast<std::int64_t>(most_wrong[0]) : -1;
    if (rank_ == 0) print_row(row);
    return row;
  }

  const Options& o_;
  const Operation& operation_;
  HcclComm comm_;
  Flusher flusher_{o_.cold};
  const double asking_ = cost_of_asking(o_.threads > 0);
  int rank_ = 0;
  int ranks_ = 1;
};

// A rank needs a device before it may have device memory.
void choose_device() {
  if (aclrtSetDevice(0) == ACL_SUCCESS) return;
  std::fprintf(stderr, "hccl_perf: aclrtSetDevice: %s\n", HcclGetLastErrorText());
  std::_Exit(1);
}

int run_threads(const Options& options) {
  HcclRootInfo root;
  check(HcclGetRootInfo(&root), "HcclGetRootInfo");
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int r = 0; r < options.threads; ++r) {
    threads.emplace_back([&, r] {
      if (options.memory != "private") choose_device();
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
  if (options.memory != "private") choose_device();
  HcclComm comm = nullptr;
  check(HcclCommInitLauncher(&comm), "HcclCommInitLauncher");
  const int result = Bench(options, comm).run();
  check(HcclCommDestroy(comm), "HcclCommDestroy");
  return result;
}

}  // namespace
}  // namespace hccl_perf

int main(int argc, char** argv) {
  const hccl_perf::Options options = hccl_perf::parse(argc, argv);
  return options.threads > 0 ? hccl_perf::run_threads(options) : hccl_perf::run_rank(options);
}
