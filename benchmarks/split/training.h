// The iterations of a replayed training. They compute for as long as the real iterations do, and
// reduce gradients of the same sizes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/split/model.h"
#include "benchmarks/split/world.h"
#include "split/cost_model.h"

namespace split_bench {

/// One way to train. Without a fusion object the iterations only compute.
struct Strategy {
  std::string name;
  HcclFusion fusion = nullptr;
  std::optional<double> predicted_end{};
  std::optional<double> lower_bound{};
  std::vector<double> times{};    // of each iteration on this rank, in seconds
  std::vector<double> compute{};  // seconds until backward ended
};

class Replay {
 public:
  Replay(const World& world, const Model& model, double share)
      : world_(world), model_(model), computer_(share), begin_(model.gradients.size()) {
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < model.gradients.size(); ++i) {
      begin_[i] = total;
      total += model.gradients[i].elements;
    }
    elements_ = total;
    // Device memory, as in programs for HCCL. The ranks of one host can access it without a copy.
    void* memory = nullptr;
    if (aclrtMalloc(&memory, total * sizeof(float), ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS)
      throw std::runtime_error("aclrtMalloc failed");
    data_ = static_cast<float*>(memory);
    std::fill(data_, data_ + total, 0.0f);
  }
  ~Replay() { aclrtFree(data_); }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  std::uint64_t elements() const { return elements_; }

  HcclFusion fusion(const HcclFusionOptions& options) {
    std::vector<HcclFusionGradient> gradients;
    for (std::size_t i = 0; i < begin_.size(); ++i)
      gradients.push_back(
          {model_.gradients[i].name.c_str(), data_ + begin_[i], model_.gradients[i].elements});
    HcclFusion made = nullptr;
    check(HcclFusionCreate(world_.comm(), gradients.data(),
                           static_cast<std::uint32_t>(gradients.size()), &options, &made),
          "HcclFusionCreate");
    return made;
  }

  /// Runs one iteration of all ranks, which begin it together.
  void iterate(Strategy& strategy) {
    HcclFusion const fusion = strategy.fusion;
    world_.barrier();
    const double start = now();
    if (fusion != nullptr) check(HcclFusionMark(fusion, HCCL_FUSION_FP_START), "HcclFusionMark");
    computer_.begin();
    for (std::size_t i = 0; i < begin_.size(); ++i) {
      const auto& gradient = model_.gradients[i];
      computer_.until(gradient.ready);
      // Writes backward's output. Otherwise the sums would grow from iteration to iteration.
      std::fill_n(data_ + begin_[i], gradient.elements, value(i, world_.rank()));
      if (fusion != nullptr)
        check(HcclFusionReady(fusion, static_cast<std::uint32_t>(i)), "HcclFusionReady");
    }
    computer_.until(model_.step);
    strategy.compute.push_back(now() - start);
    if (fusion != nullptr) {
      check(HcclFusionMark(fusion, HCCL_FUSION_BP_END), "HcclFusionMark");
      check(HcclFusionWait(fusion), "HcclFusionWait");
    }
    strategy.times.push_back(now() - start);
    if (fusion != nullptr) {
      check(HcclFusionMark(fusion, HCCL_FUSION_ITERATION_END), "HcclFusionMark");
      check_sums(strategy.name);
    }
  }

  /// Returns the times of allreduces of a few sizes, up to the size of all gradients. The largest
  /// size is timed first, because it uses up the burst that a limited line lets pass at full speed
  /// after a pause.
  std::vector<hccl::split::CostSample> probe() {
    std::vector<hccl::split::CostSample> samples;
    constexpr int kTimes = 3;
    for (std::uint64_t n = 4096; n < elements_; n *= 8) samples.push_back({n * sizeof(float), 0});
    samples.push_back({elements_ * sizeof(float), 0});
    for (auto each = samples.rbegin(); each != samples.rend(); ++each) {
      auto& sample = *each;
      std::vector<double> times;
      for (int k = 0; k <= kTimes; ++k) {
        world_.barrier();
        const double start = now();
        check(HcclAllReduce(data_, data_, sample.bytes / sizeof(float), HCCL_DATA_TYPE_FP32,
                            HCCL_REDUCE_MAX, world_.comm(), nullptr),
              "HcclAllReduce");
        if (k > 0) times.push_back(now() - start);
      }
      std::sort(times.begin(), times.end());
      sample.seconds = world_.reduce({times[times.size() / 2]}, HCCL_REDUCE_MAX)[0];
    }
    return samples;
  }

 private:
  static float value(std::size_t gradient, std::uint32_t rank) {
    return static_cast<float>(gradient % 100 + rank);  // the sums of such values are exact
  }

  void check_sums(const std::string& name) const {
    const double p = world_.size();
    for (std::size_t i = 0; i < begin_.size(); ++i) {
      const auto expected = static_cast<float>(p * static_cast<double>(i % 100) + p * (p - 1) / 2);
      const std::uint64_t last = begin_[i] + model_.gradients[i].elements - 1;
      if (data_[begin_[i]] != expected || data_[last] != expected)
        throw std::runtime_error(name + ": wrong sum in gradient " + std::to_string(i));
    }
  }

  const World& world_;
  const Model& model_;
  Computer computer_;
  std::vector<std::uint64_t> begin_;
  std::uint64_t elements_ = 0;
  float* data_ = nullptr;
};

}  // namespace split_bench
