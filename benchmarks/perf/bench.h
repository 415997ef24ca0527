// Times one collective on one rank.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/perf/buffers.h"
#include "benchmarks/perf/operation.h"
#include "benchmarks/perf/options.h"
#include "benchmarks/perf/report.h"
#include "hccl/hccl.h"

namespace hccl_perf {

class Bench {
 public:
  Bench(const Options& options, HcclComm world);
  /// Returns 0 if all results were correct.
  int run();

 private:
  struct Task;  // the work for one size
  struct Times {
    double p50 = 0, p99 = 0, min = 0;  // us
    double cpu = 0;                    // processor seconds in each second
  };

  std::vector<std::uint64_t> counts() const;
  std::vector<Row> measure_all(std::uint64_t count);
  std::vector<Row> measure_each(std::uint64_t count);
  std::vector<HcclAlgorithmInfo> list(std::uint64_t count) const;
  Row measure_with(std::uint64_t count, const std::string& algorithm, bool chosen);
  Row measure(std::uint64_t count, HcclComm comm);
  void rewrite(Task& task);
  std::uint64_t look(const Task& task, bool all) const;
  void operate(Task& task);
  double rewrite_us(Task& task, double& cpu);
  Times time_loop(Task& task);
  Times time_after_barrier(Task& task);
  HcclComm communicator(const std::string& algorithm);

  Options o_;
  const Operation& operation_;
  HcclComm world_;
  std::map<std::string, HcclComm> by_algorithm_;
  Flusher flusher_;
  const double asking_;
  int rank_ = 0;
  int ranks_ = 1;
};

}  // namespace hccl_perf
