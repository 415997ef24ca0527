// The C interface of optimizer steps. tests/torch compares the rules with PyTorch's.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "hccl/hccl_optim.h"

namespace {

// One table may have spans with a state next to spans without it. Each span follows the formula of
// SGD with its own states: m = momentum * m + (1 - dampening) * g; p -= lr * m; without a state
// p -= lr * g. All numbers are exact.
TEST(Optim, SpansWithAndWithoutAStateDoNotMix) {
  constexpr std::size_t kCount = 100, kSpans = 4;
  HcclOptimNumbers numbers{};
  numbers.lr = 0.5;
  numbers.momentum = 0.25;
  numbers.dampening = 0.75;
  numbers.factor = 1;
  for (unsigned with = 0; with < 1U << kSpans; ++with) {
    std::array<std::vector<float>, kSpans> parameters, gradients, momenta;
    std::array<HcclOptimSpan, kSpans> spans{};
    for (std::size_t i = 0; i < kSpans; ++i) {
      parameters[i].assign(kCount, 16);
      gradients[i].assign(kCount, static_cast<float>(8 * (i + 1)));
      momenta[i].assign(kCount, 4);
      spans[i].parameter = parameters[i].data();
      spans[i].gradient = gradients[i].data();
      spans[i].states[0] = (with >> i & 1U) != 0 ? momenta[i].data() : nullptr;
      spans[i].count = kCount;
      spans[i].numbers = &numbers;
      spans[i].type = HCCL_OPTIM_FP32;
    }
    const HcclOptimThreads here{nullptr, 1};
    HcclOptimStep(HCCL_OPTIM_SGD, spans.data(), kSpans, &here);
    for (std::size_t i = 0; i < kSpans; ++i) {
      const float gradient = static_cast<float>(8 * (i + 1)), momentum = 1 + gradient / 4;
      const bool has = spans[i].states[0] != nullptr;
      EXPECT_EQ(parameters[i], std::vector<float>(kCount, 16 - (has ? momentum : gradient) / 2))
          << i << " of " << with;
      EXPECT_EQ(momenta[i], std::vector<float>(kCount, has ? momentum : 4)) << i << " of " << with;
    }
  }
}

}  // namespace
