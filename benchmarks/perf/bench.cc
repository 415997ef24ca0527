#include "benchmarks/perf/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "benchmarks/perf/algorithms.h"

namespace hccl_perf {
namespace {

/// Returns the processor time of this rank: of its process or, if ranks are threads, of its thread.
/// The time of a thread does not include the library's own threads, which serve all ranks.
double cpu_seconds(bool threads) {
  timespec now{};
  ::clock_gettime(threads ? CLOCK_THREAD_CPUTIME_ID : CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Returns the time of two clock readings, which take as long as the shortest operations.
double cost_of_asking(bool threads) {
  double least = 1;
  for (int i = 0; i < 1000; ++i) {
    const double start = cpu_seconds(threads);
    least = std::min(least, cpu_seconds(threads) - start);
  }
  return least;
}

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Replaces each element by its maximum over all ranks.
void maximum(std::vector<double>& values, HcclComm comm) {
  check(HcclAllReduce(values.data(), values.data(), values.size(), HCCL_DATA_TYPE_FP64,
                      HCCL_REDUCE_MAX, comm, nullptr),
        "collecting times");
}

/// Returns the mean over all ranks.
double mean(double value, HcclComm comm, int ranks) {
  check(HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_FP64, HCCL_REDUCE_SUM, comm, nullptr),
        "collecting times");
  return value / ranks;
}

double percentile(const std::vector<double>& sorted, double p) {
  const auto at = static_cast<std::size_t>(std::lround(p * static_cast<double>(sorted.size() - 1)));
  return sorted[at];
}

}  // namespace

struct Bench::Task {
  HcclComm comm;
  std::byte* send;
  std::byte* recv;
  std::uint64_t count, in, out;  // numbers of elements: of the larger buffer, sent, received
  int round = 0;
  std::uint64_t wrong = 0;
};

Bench::Bench(const Options& options, HcclComm world)
    : o_(options),
      operation_(find_operation(options.op)),
      world_(world),
      flusher_(options.cold),
      asking_(cost_of_asking(options.threads > 0)) {
  std::uint32_t value = 0;
  check(HcclGetRankId(world, &value), "HcclGetRankId");
  rank_ = static_cast<int>(value);
  check(HcclGetRankSize(world, &value), "HcclGetRankSize");
  ranks_ = static_cast<int>(value);
  if (o_.root >= value) {
    if (rank_ == 0)
      std::fprintf(stderr, "hccl_perf: --root %u, but there are %u ranks\n", o_.root, value);
    check(HcclBarrier(world, nullptr), "HcclBarrier");  // rank 0 prints before any thread exits
    std::_Exit(2);
  }
}

std::vector<std::uint64_t> Bench::counts() const {
  if (o_.op == "barrier") return {0};
  const std::uint64_t element = size_of(o_.data_type);
  const std::uint64_t unit = operation_.blocks ? static_cast<std::uint64_t>(ranks_) : 1;
  std::vector<std::uint64_t> found;
  for (std::uint64_t bytes = o_.min_bytes; bytes <= o_.max_bytes; bytes *= o_.factor) {
    const std::uint64_t count = std::max<std::uint64_t>(1, bytes / element / unit) * unit;
    if (found.empty() || count != found.back()) found.push_back(count);
    if (bytes > o_.max_bytes / o_.factor) break;
  }
  return found;
}

int Bench::run() {
  if (rank_ == 0) print_header(o_, ranks_);
  std::vector<Row> rows;
  for (const std::uint64_t count : counts()) {
    for (Row& row : measure_all(count)) rows.push_back(std::move(row));
  }
  for (const auto& [name, comm] : by_algorithm_) check(HcclCommDestroy(comm), "HcclCommDestroy");
  if (rank_ == 0 && !write_files(o_, ranks_, rows)) return 1;
  if (std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.wrong <= 0; }))
    return 0;
  if (rank_ == 0) std::fprintf(stderr, "hccl_perf: WRONG RESULTS, see column #wrong\n");
  return 1;
}

HcclComm Bench::communicator(const std::string& algorithm) {
  const auto [at, made] = by_algorithm_.try_emplace(algorithm, nullptr);
  if (made) at->second = with_algorithm(world_, algorithm, by_algorithm_.size(), rank_, ranks_);
  return at->second;
}

/// Returns one row or, with --algo, one row for each algorithm of that name. The full form of
/// HCCL_ALGO ("level0:NA;level1:ring") gives one row.
std::vector<Row> Bench::measure_all(std::uint64_t count) {
  const bool one =
      o_.algo.empty() || o_.algo.find_first_of(";=") != std::string::npos || !can_describe();
  return one ? std::vector{measure_with(count, o_.algo, false)} : measure_each(count);
}

std::vector<HcclAlgorithmInfo> Bench::list(std::uint64_t count) const {
  const std::uint64_t input = operation_.send_count(count, ranks_) * size_of(o_.data_type);
  // Threads of one process reach each other's memory, wherever it lies.
  const bool shared = o_.threads > 0 || o_.memory != "private";
  return describe(world_, o_.op, input, shared, rank_);
}

/// Measures the algorithms that are eligible for the memory of this run. Prints all other
/// algorithms with the reasons why they are not eligible.
std::vector<Row> Bench::measure_each(std::uint64_t count) {
  const std::uint64_t bytes = count * size_of(o_.data_type);
  std::vector<Row> rows;
  std::vector<HcclAlgorithmInfo> refused;
  std::string names;
  for (const HcclAlgorithmInfo& each : list(count)) {
    names += " " + key(each);
    if (o_.algo != "all" && o_.algo != each.name && o_.algo != key(each)) continue;
    if (each.eligible) {
      rows.push_back(measure_with(count, key(each), each.chosen));
    } else {
      refused.push_back(each);
    }
  }
  if (rows.empty() && refused.empty()) {
    if (rank_ == 0) {
      std::fprintf(stderr, "hccl_perf: %s has no algorithm %s, only%s\n", o_.op.c_str(),
                   o_.algo.c_str(), names.c_str());
    }
    check(HcclBarrier(world_, nullptr), "HcclBarrier");  // rank 0 prints before any thread exits
    std::_Exit(2);
  }
  for (const HcclAlgorithmInfo& each : refused) {
    if (rank_ == 0) print_refused(bytes, key(each), each.reason);
  }
  return rows;
}

Row Bench::measure_with(std::uint64_t count, const std::string& algorithm, bool chosen) {
  Row row = measure(count, algorithm.empty() ? world_ : communicator(algorithm));
  row.algorithm = algorithm;
  row.chosen = chosen;
  if (rank_ == 0) print_row(row);
  return row;
}

Row Bench::measure(std::uint64_t count, HcclComm comm) {
  const std::uint64_t element = size_of(o_.data_type);
  Task t{comm,
         nullptr,
         nullptr,
         count,
         operation_.send_count(count, ranks_),
         operation_.recv_count(count, ranks_)};
  const Buffers memory(
      o_.memory,
      (std::max(t.in, t.out) + (o_.in_place ? 0 : std::min(t.in, t.out))) * element + 128, comm);
  const auto rank = static_cast<std::uint64_t>(rank_);
  t.send = t.recv = memory.data();
  if (!o_.in_place) {
    t.recv += (t.in * element + 63) / 64 * 64;
  } else if (t.in < t.out) {
    t.send += rank * t.in * element;
  } else if (t.out < t.in) {
    t.recv += rank * t.out * element;
  }
  const Times times = o_.barrier ? time_after_barrier(t) : time_loop(t);

  std::vector<double> most_wrong{static_cast<double>(t.wrong)};
  maximum(most_wrong, comm);
  Row row;
  row.count = count;
  row.bytes = count * element;
  row.p50_us = times.p50;
  row.p99_us = times.p99;
  row.min_us = times.min;
  row.algbw = static_cast<double>(row.bytes) / row.p50_us / 1e3;
  row.busbw = row.algbw * operation_.bus_factor(ranks_);
  row.cpu = mean(times.cpu, comm, ranks_);
  row.wait = std::clamp(1 - row.cpu, 0.0, 1.0);
  row.wrong = o_.check && o_.op != "barrier" ? static_cast<std::int64_t>(most_wrong[0]) : -1;
  return row;
}

/// Begins a round: chooses the root, and writes input that differs from the last round. So a stale
/// result of an earlier round counts as wrong.
void Bench::rewrite(Task& t) {
  ++t.round;
  if (!o_.fixed_root) o_.root = static_cast<std::uint32_t>(t.round % ranks_);
  write_input(o_, t.send, t.in, rank_, ranks_, t.round);
  flusher_.flush();
}

/// Returns the number of wrong elements of the result. Checks all elements, or three of them.
std::uint64_t Bench::look(const Task& t, bool all) const {
  const bool has_result = !operation_.recv_on_root || static_cast<std::uint32_t>(rank_) == o_.root;
  if (!o_.check || !has_result || o_.op == "barrier") return 0;
  const auto wrong = [&](std::uint64_t begin, std::uint64_t end) {
    return count_wrong(o_, operation_, t.recv, begin, end, t.count, rank_, ranks_, t.round);
  };
  if (all) return wrong(0, t.out);
  return wrong(0, 1) + wrong(t.out / 2, t.out / 2 + 1) + wrong(t.out - 1, t.out);
}

void Bench::operate(Task& t) {
  check(operation_.run(o_, t.send, t.recv, t.count, rank_, ranks_, t.comm), o_.op.c_str());
}

/// Returns the microseconds of an iteration without the operation, while all ranks iterate. The
/// time ends when all ranks are done, because ranks that share a core rewrite one after another.
double Bench::rewrite_us(Task& t, double& cpu) {
  std::vector<double> times;
  const double cpu_start = cpu_seconds(o_.threads > 0);
  for (int turn = 0; turn < 3; ++turn) {
    check(HcclBarrier(t.comm, nullptr), "HcclBarrier");
    const double start = now_us();
    [[maybe_unused]] volatile std::uint64_t unused = 0;
    for (int i = 0; i < o_.iterations; ++i) {
      rewrite(t);
      unused = look(t, false);
      unused = static_cast<std::uint64_t>(now_us());
    }
    check(HcclBarrier(t.comm, nullptr), "HcclBarrier");
    times.push_back((now_us() - start) / o_.iterations);
  }
  cpu = (cpu_seconds(o_.threads > 0) - cpu_start) * 1e6 / 3 / o_.iterations;
  std::sort(times.begin(), times.end());
  return times[1];
}

/// Returns the time of a loop that rewrites and operates without barriers, less the time of
/// rewriting alone. So the result contains the cache misses that the operation causes in its
/// caller's next write. All elements are checked before and after the loop, and a few elements in
/// each iteration.
Bench::Times Bench::time_loop(Task& t) {
  std::vector<double> times;
  for (int i = 0; i < o_.warmup; ++i) {
    rewrite(t);
    operate(t);
    t.wrong += look(t, true);
  }
  double rewriting_cpu = 0;
  const double rewriting = rewrite_us(t, rewriting_cpu);
  check(HcclBarrier(t.comm, nullptr), "HcclBarrier");
  const double cpu_start = cpu_seconds(o_.threads > 0);
  const double begin = now_us();
  double before = begin;
  for (int i = 0; i < o_.iterations; ++i) {
    rewrite(t);
    operate(t);
    t.wrong += look(t, false);
    const double after = now_us();
    times.push_back(after - before - rewriting);
    before = after;
  }
  const double wall = (before - begin) / o_.iterations - rewriting;
  const double cpu =
      (cpu_seconds(o_.threads > 0) - cpu_start) * 1e6 / o_.iterations - rewriting_cpu;
  t.wrong += look(t, true);
  std::sort(times.begin(), times.end());
  std::vector<double> slowest{percentile(times, 0.5), percentile(times, 0.99), times.front()};
  for (double& us : slowest) us = std::max(us, 0.001);
  maximum(slowest, t.comm);
  return {slowest[0], slowest[1], slowest[2], wall > 0 ? std::max(cpu, 0.0) / wall : 0};
}

/// Times each operation alone, after a barrier. Rewriting and checking are not timed.
Bench::Times Bench::time_after_barrier(Task& t) {
  std::vector<double> times;
  double cpu = 0;
  double wall = 0;
  for (int i = -o_.warmup; i < o_.iterations; ++i) {
    rewrite(t);
    check(HcclBarrier(t.comm, nullptr), "HcclBarrier");
    const double cpu_start = cpu_seconds(o_.threads > 0);
    const double start = now_us();
    operate(t);
    const double end = now_us();
    if (i >= 0) {
      cpu += std::max(0.0, cpu_seconds(o_.threads > 0) - cpu_start - asking_);
      times.push_back(end - start);
      wall += (end - start) * 1e-6;
    }
    // If ranks share a core, the check of a rank must not delay ranks that are not done yet.
    check(HcclBarrier(t.comm, nullptr), "HcclBarrier");
    t.wrong += look(t, true);
  }
  maximum(times, t.comm);
  std::sort(times.begin(), times.end());
  return {percentile(times, 0.5), percentile(times, 0.99), times.front(), cpu / wall};
}

}  // namespace hccl_perf
