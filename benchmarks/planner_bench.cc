// Measures how long it takes to cut m gradients into segments: HCCL's rules and the exact planner
// (8 segments).
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "split/planner.h"
#include "split/strategy.h"

namespace {

using hccl::split::AffineCost;
using hccl::split::TableCost;

/// Random sizes and ready times like those of a network: many small gradients, some large ones, a
/// backward pass of 300 ms.
struct Network {
  explicit Network(std::size_t m) {
    std::mt19937_64 random(1);
    std::lognormal_distribution<double> size(10, 3);
    std::uniform_real_distribution<double> gap(0, 0.6 / static_cast<double>(m));
    double time = 0;
    for (std::size_t i = 0; i < m; ++i) {
      bytes.push_back(4 + static_cast<std::uint64_t>(std::min(size(random), 4e8)));
      time += gap(random);
      ready.push_back(time);
      total += static_cast<double>(bytes.back());
    }
  }
  std::vector<std::uint64_t> bytes;
  std::vector<double> ready;
  double total = 0;
};

Network network(const benchmark::State& state) {
  return Network(static_cast<std::size_t>(state.range(0)));
}

/// Communication takes as long as backward. This is the hard case, in which the wire is sometimes
/// idle.
AffineCost cost_for(const Network& network) { return {400e-6, 0.3 / network.total}; }

void by_size(benchmark::State& state) {
  const Network net = network(state);
  const float percentages[] = {20, 20, 20, 20, 10, 5, 3, 2};
  for (auto _ : state)
    benchmark::DoNotOptimize(hccl::split::segments_by_size(net.bytes, percentages));
}

void default_rule(benchmark::State& state) {
  const Network net = network(state);
  for (auto _ : state) benchmark::DoNotOptimize(hccl::split::default_segments(net.bytes));
}

void plan_repeatedly(benchmark::State& state, const hccl::split::Problem& problem,
                     const hccl::split::Cost& cost) {
  double gap = 0;
  for (auto _ : state) {
    auto plan = hccl::split::plan_segments(problem, cost);
    benchmark::DoNotOptimize(plan);
    gap = plan->gap();
  }
  state.counters["gap_percent"] = 100 * gap;
}

void planner_affine(benchmark::State& state) {
  const Network net = network(state);
  plan_repeatedly(state, {net.bytes, net.ready}, cost_for(net));
}

void planner_table(benchmark::State& state) {
  const Network net = network(state);
  const AffineCost line = cost_for(net);
  std::vector<TableCost::Point> points;
  for (std::uint64_t bytes = 4096; bytes <= std::uint64_t{1} << 30; bytes *= 4)
    points.push_back({bytes, line(bytes)});
  plan_repeatedly(state, {net.bytes, net.ready}, TableCost::create(points).value());
}

/// While both run, compute has 90 % and communication 80 % of its speed alone.
void planner_contention(benchmark::State& state) {
  const Network net = network(state);
  plan_repeatedly(state, {net.bytes, net.ready, 8, 0.005, {0.9, 0.8}}, cost_for(net));
}

BENCHMARK(by_size)->Arg(161)->Arg(1000)->Arg(10000);
BENCHMARK(default_rule)->Arg(161)->Arg(1000)->Arg(10000);
BENCHMARK(planner_affine)->Arg(161)->Arg(1000)->Arg(10000)->Unit(benchmark::kMicrosecond);
BENCHMARK(planner_table)->Arg(161)->Arg(1000)->Arg(10000)->Unit(benchmark::kMicrosecond);
BENCHMARK(planner_contention)->Arg(161)->Arg(1000)->Unit(benchmark::kMicrosecond);

}  // namespace
