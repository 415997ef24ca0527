// Replays the training of a real network: computes for as long as the training does, and reduces
// its gradients, with each of several strategies in turn. The process is one rank; run.py starts
// all ranks. Rank 0 prints the figures as JSON.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "benchmarks/split/model.h"
#include "benchmarks/split/strategies.h"
#include "benchmarks/split/training.h"
#include "benchmarks/split/world.h"
#include "split/cost_model.h"
#include "split/planner.h"

namespace split_bench {
namespace {

using nlohmann::ordered_json;

constexpr double kMega = 1 << 20;
constexpr double kHorovodCycle = 1e-3;
constexpr std::uint32_t kFew = hccl::split::kDocumentedSegments;
constexpr std::uint32_t kMany = 32;
// The minimum number of rounds. They run even if they exceed the time limit.
constexpr int kLeastRounds = 5;

struct Options {
  std::string model;
  double scale = 1;
  double shrink = 1;
  double share = 1;
  double seconds = 0;  // after this time no round begins; 0: no limit
  int iterations = 10;
  int warmup = 2;
  int learning = 120;  // iterations until the automatic plan has settled and is measured
  std::string trace;
};

/// Makes the strategies, predicts their times and measures them. All ranks must call each function.
class Bench {
 public:
  Bench(const World& world, const Model& model, const Options& options)
      : world_(world), options_(options), replay_(world, model, options.share) {
    for (const auto& gradient : model.gradients) {
      bytes_.push_back(gradient.bytes());
      ready_.push_back(gradient.ready);
    }
    const auto samples = replay_.probe();
    auto fitted = hccl::split::CostModel::create(samples);
    if (!fitted.ok()) throw std::runtime_error("probe: " + fitted.status().message());
    line_ = fitted->affine();
    cost_ = fitted->cost();
    for (const auto& sample : samples) probe_.push_back({sample.bytes, sample.seconds});
  }
  ~Bench() {
    for (auto& strategy : strategies_)
      if (strategy.fusion != nullptr) HcclFusionDestroy(strategy.fusion);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void make_strategies() {
    const auto scaled = [&](double megabytes) {
      return static_cast<std::uint64_t>(megabytes * kMega / options_.scale / options_.shrink);
    };
    const auto last = static_cast<std::uint32_t>(bytes_.size() - 1);
    strategies_.push_back({"compute only"});
    add("serial", {last}, false);
    add_default();
    add("PyTorch DDP (1 MB, 25 MB)", ddp_buckets(bytes_, scaled(1), scaled(25)), true);
    add("Horovod (64 MB buckets)", full_buckets(bytes_, scaled(64)), true);
    add("Horovod (64 MB, 1 ms cycles)",
        world_.from_root(horovod_cycles(
            bytes_, ready_,
            [this](std::uint64_t n) {
              return std::visit([n](const auto& cost) { return cost(n); }, cost_);
            },
            scaled(64), kHorovodCycle)),
        true);
    add("one allreduce a gradient", one_each(bytes_.size()), true);
    add("ours, predicted", world_.from_root(plan(kFew).last_indices), true);
    add("ours, predicted, up to 32", world_.from_root(plan(kMany).last_indices), true);
    HcclFusionOptions nothing_said = empty_options();
    nothing_said.hcomParallel = 1;
    strategies_.push_back({"ours, measured", replay_.fusion(nothing_said)});
  }

  void run() {
    Strategy& automatic = strategies_.back();
    for (int k = 0; k < options_.learning; ++k) replay_.iterate(automatic);
    for (int k = 0; k < options_.warmup; ++k) round();
    for (Strategy& strategy : strategies_) {
      strategy.times.clear();
      strategy.compute.clear();
    }
    for (int k = 0; k < options_.iterations; ++k) {
      if (k >= kLeastRounds && spent()) break;
      round();
      ++rounds_;
    }
    if (!options_.trace.empty()) read_promise(automatic);
  }

  /// Returns the medians over the iterations; in each iteration the slowest rank counts. All ranks
  /// must call it.
  ordered_json result(const Model& model) {
    ordered_json rows = ordered_json::array();
    double compute = 0;
    for (Strategy& strategy : strategies_) {
      auto slowest = world_.reduce(strategy.times, HCCL_REDUCE_MAX);
      std::sort(slowest.begin(), slowest.end());
      auto until_backward = world_.reduce(strategy.compute, HCCL_REDUCE_MAX);
      std::sort(until_backward.begin(), until_backward.end());
      const double time = slowest[slowest.size() / 2];
      if (strategy.fusion == nullptr) compute = time;
      ordered_json row{{"strategy", strategy.name},
                       {"iteration_ms", 1e3 * time},
                       {"least_ms", 1e3 * slowest.front()},
                       {"most_ms", 1e3 * slowest.back()},
                       {"compute_ms", 1e3 * until_backward[until_backward.size() / 2]},
                       {"exposed_ms", 1e3 * (time - compute)}};
      for (const double each : slowest) row["each_ms"].push_back(1e3 * each);
      if (strategy.predicted_end) row["predicted_ms"] = 1e3 * *strategy.predicted_end;
      if (strategy.lower_bound) row["lower_bound_ms"] = 1e3 * *strategy.lower_bound;
      if (strategy.fusion != nullptr) row["last_indices"] = segments(strategy.fusion);
      rows.push_back(std::move(row));
    }
    return {{"model", model.name},
            {"ranks", world_.size()},
            {"scale", options_.scale},
            {"gradients", bytes_.size()},
            {"bytes", replay_.elements() * sizeof(float)},
            {"shrink", options_.shrink},
            {"step_ms", 1e3 * model.step},
            {"iterations", rounds_},
            {"start_us", line_.start * 1e6},
            {"gbyte_per_s", 1e-9 / line_.per_byte},
            {"probe", probe_},
            {"strategies", std::move(rows)}};
  }

 private:
  static HcclFusionOptions empty_options() {
    HcclFusionOptions options = {};
    options.dataType = HCCL_DATA_TYPE_FP32;
    options.op = HCCL_REDUCE_SUM;
    return options;
  }

  void add(const std::string& name, const std::vector<std::uint32_t>& plan, bool parallel) {
    HcclFusionOptions options = empty_options();
    options.hcomParallel = parallel ? 1 : 0;
    options.lastIndices = plan.data();
    options.segmentNum = static_cast<std::uint32_t>(plan.size());
    Strategy strategy{name, replay_.fusion(options)};
    predict(strategy, plan, parallel);
    strategies_.push_back(std::move(strategy));
  }

  void add_default() {
    const float percentages[] = {96.54f, 3.46f};
    HcclFusionOptions options = empty_options();
    options.hcomParallel = 1;
    options.percentages = percentages;
    options.segmentNum = 2;
    Strategy strategy{"HCCL default (96.54 %)", replay_.fusion(options)};
    predict(strategy, segments(strategy.fusion), true);
    strategies_.push_back(std::move(strategy));
  }

  hccl::split::Plan plan(std::uint32_t most) const {
    hccl::split::Problem problem{bytes_, ready_};
    problem.max_segments = most;
    const auto plan = plan_segments(problem, cost_);
    if (!plan.ok()) throw std::runtime_error("plan: " + plan.status().message());
    return *plan;
  }

  void predict(Strategy& strategy, const std::vector<std::uint32_t>& last_indices,
               bool parallel) const {
    std::vector<double> ready = ready_;
    if (!parallel) ready.assign(ready.size(), ready_.back());
    const auto told = hccl::split::predict({bytes_, ready}, last_indices, cost_);
    if (!told.ok()) throw std::runtime_error(strategy.name + ": " + told.status().message());
    strategy.predicted_end = told->end;
    strategy.lower_bound = plan(kMany).lower_bound;
  }

  static std::vector<std::uint32_t> segments(HcclFusion fusion) {
    std::vector<std::uint32_t> last_indices(100'000);
    auto count = static_cast<std::uint32_t>(last_indices.size());
    check(HcclFusionGetSegments(fusion, last_indices.data(), &count), "HcclFusionGetSegments");
    last_indices.resize(count);
    return last_indices;
  }

  /// Returns whether the time of --seconds is over, by rank 0's clock. All ranks must call it.
  bool spent() const {
    if (options_.seconds <= 0) return false;
    const double late = now() - begun_ > options_.seconds ? 1 : 0;
    return world_.reduce({world_.rank() == 0 ? late : 0}, HCCL_REDUCE_MAX)[0] != 0;
  }

  /// Runs one iteration of each strategy, in a random order that is the same on all ranks. The
  /// order changes because connections adapt to the data sent before.
  void round() {
    std::vector<Strategy*> order;
    for (Strategy& strategy : strategies_) order.push_back(&strategy);
    std::shuffle(order.begin(), order.end(), shuffle_);
    for (Strategy* strategy : order) replay_.iterate(*strategy);
  }

  /// Reads the prediction of the automatic plan from its trace.
  void read_promise(Strategy& strategy) const {
    const std::string path = options_.trace + "." + std::to_string(world_.rank()) + ".pb.json";
    check(HcclFusionTraceWrite(strategy.fusion, path.c_str()), "HcclFusionTraceWrite");
    std::ifstream file(path);
    const auto trace = nlohmann::json::parse(file);
    if (!trace.contains("iterations") || trace["iterations"].empty()) return;
    const auto& last = trace["iterations"].back();
    if (last.value("plan_version", 0) == 0) return;
    // Protobuf writes 64-bit numbers as texts.
    const auto seconds = [&](const char* key) {
      return 1e-9 * std::stod(last.at(key).get<std::string>());
    };
    strategy.predicted_end = seconds("predicted_end_ns");
    strategy.lower_bound = seconds("lower_bound_ns");
  }

  const World& world_;
  Options options_;
  Replay replay_;
  std::vector<std::uint64_t> bytes_;
  std::vector<double> ready_;
  hccl::split::AffineCost line_;
  hccl::split::Cost cost_;  // the line, or a table if the line does not fit
  std::vector<std::pair<std::uint64_t, double>> probe_;
  std::vector<Strategy> strategies_;
  std::mt19937 shuffle_{1};
  double begun_ = now();
  int rounds_ = 0;
};

int run(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Replays the training of a real network with several strategies (one rank; see run.py)."};
  app.add_option("--model", options.model, "models/*.json")->required();
  app.add_option("--scale", options.scale, "Divide the gradients by this")
      ->check(CLI::Range(1.0, 1e6));
  app.add_option("--shrink", options.shrink, "Divide gradients and times by this")
      ->check(CLI::Range(1.0, 1e6));
  app.add_option("--seconds", options.seconds,
                 "Begin no further round after this time; 0: no limit")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--share", options.share, "Share of a core that a rank has while all compute")
      ->check(CLI::Range(0.001, 1.0));
  app.add_option("-n,--iterations", options.iterations, "Timed iterations of each strategy")
      ->check(CLI::Range(1, 10000));
  app.add_option("-w,--warmup", options.warmup, "Iterations before the timed ones")
      ->check(CLI::Range(0, 10000));
  app.add_option("--learning", options.learning,
                 "Iterations that the automatic plan may learn from")
      ->check(CLI::Range(0, 100000));
  app.add_option("--trace", options.trace,
                 "Keep the automatic plan's traces as this + .RANK.pb.json");
  CLI11_PARSE(app, argc, argv);

  const Model model = load_model(options.model, options.scale, options.shrink);
  const World world;
  ordered_json result;
  {
    Bench bench(world, model, options);
    bench.make_strategies();
    bench.run();
    result = bench.result(model);
  }
  if (world.rank() == 0) std::cout << result.dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace split_bench

int main(int argc, char** argv) {
  try {
    return split_bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "split_replay: " << error.what() << '\n';
    return 1;
  }
}
