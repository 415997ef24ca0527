// Trains a network on handwritten digits with the ranks that mpirun starts. Every rank computes the
// gradients of its share of each batch. HCCL sums them, segment by segment, as backward completes
// them.
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>

#include "digits.h"
#include "gradients.h"
#include "mlp.h"
#include "options.h"
#include "random.h"
#include "world.h"

namespace examples {
namespace {

constexpr float kMomentum = 0.9f;

// The rows of this rank if the ranks divide `count` rows as evenly as possible.
struct Share {
  Share(size_t count, const World& world)
      : begin(count * world.rank() / world.size()),
        end(count * (world.rank() + 1) / world.size()) {}
  size_t begin;
  size_t end;
};

// Stochastic gradient descent with momentum.
class Optimizer {
 public:
  explicit Optimizer(size_t weight_count) : velocity_(weight_count) {}

  void update(const Gradients& gradients, float lr, Mlp* network) {
    float* weights = network->weights().data();
    for (size_t i = 0; i < network->tensors().size(); ++i) {
      const Tensor& tensor = network->tensors()[i];
      const float* gradient = gradients.data()[i];
      for (size_t j = 0; j < tensor.count; ++j) {
        float& velocity = velocity_[tensor.offset + j];
        velocity = kMomentum * velocity + gradient[j];
        weights[tensor.offset + j] -= lr * velocity;
      }
    }
  }

 private:
  std::vector<float> velocity_;
};

// One pass over the training images, in an order that depends only on the seed and the epoch.
// Returns the mean loss over all ranks.
double train_epoch(const World& world, const Images& train, const Options& options, int epoch,
                   Mlp* network, Gradients* gradients, Optimizer* optimizer) {
  const auto seed = static_cast<uint64_t>(options.seed);
  const uint64_t epoch_seed = random_bits(seed, static_cast<uint64_t>(epoch));
  const float lr = options.lr * static_cast<float>(options.epochs - epoch + 1) /
                   static_cast<float>(options.epochs);
  const std::vector<uint32_t> order = shuffled(train.size(), epoch_seed);
  const auto batch_limit = static_cast<size_t>(options.batch);
  Images batch;
  double loss = 0;
  for (size_t start = 0; start < train.size(); start += batch_limit) {
    const size_t batch_size = std::min(batch_limit, train.size() - start);
    const Share share(batch_size, world);
    take_rows(train, order, start + share.begin, start + share.end, &batch);

    gradients->mark(HCCL_FUSION_FP_START);
    loss += network->forward(batch);
    // The scale is 1 / the size of the whole batch, not of this rank's share. So the sum of the
    // gradients over the ranks is the gradient of the mean loss for any number of ranks and shares.
    network->backward(batch, 1.0f / static_cast<float>(batch_size), gradients->data(),
                      [&](uint32_t index) { gradients->ready(index); });
    gradients->mark(HCCL_FUSION_BP_END);
    gradients->wait();
    optimizer->update(*gradients, lr, network);
    gradients->mark(HCCL_FUSION_ITERATION_END);
  }
  return world.sum(loss) / static_cast<double>(train.size());
}

// The share of test images that the network classifies correctly. Each rank tests its part.
double accuracy(const World& world, const Images& test, Mlp* network) {
  const Share share(test.size(), world);
  Images mine;
  for (size_t i = share.begin; i < share.end; ++i) {
    mine.append(&test.pixels[i * kPixels], test.labels[i]);
  }
  network->forward(mine);
  const int64_t right = world.reduce(static_cast<int64_t>(network->correct(mine)), HCCL_REDUCE_SUM);
  return static_cast<double>(right) / static_cast<double>(test.size());
}

// 64 bits that change with any bit of any weight.
uint64_t digest(const std::vector<float>& weights) {
  uint64_t sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &weights[i], sizeof(bits));
    sum += scramble((static_cast<uint64_t>(i) << 32) | bits);
  }
  return sum;
}

bool identical_on_all_ranks(const World& world, uint64_t value) {
  const auto bits = static_cast<int64_t>(value);
  return world.reduce(bits, HCCL_REDUCE_MIN) == world.reduce(bits, HCCL_REDUCE_MAX);
}

bool write_weights(const std::string& path, const std::vector<float>& weights) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(weights.data()),
             static_cast<std::streamsize>(weights.size() * sizeof(float)));
  file.close();
  if (!file) std::fprintf(stderr, "train_digits: --weights: cannot write %s\n", path.c_str());
  return file.good();
}

void print_header(const World& world, const Mlp& network, const Digits& digits,
                  const Options& options, const std::string& segments) {
  std::printf("world size: %u\n", world.size());
  std::printf("network: %zu", network.widths().front());
  for (size_t i = 1; i < network.widths().size(); ++i) std::printf("-%zu", network.widths()[i]);
  const Tensor& last = network.tensors().back();
  std::printf(", %zu parameters in %zu tensors\n", last.offset + last.count,
              network.tensors().size());
  std::printf("images: %zu to train, %zu to test, batch %d\n", digits.train.size(),
              digits.test.size(), options.batch);
  std::printf("allreduce: %s, gradients %s\n", options.hcom_parallel ? "parallel" : "serial",
              options.scattered ? "scattered" : "contiguous");
  std::printf("segment index list: %s\n", segments.c_str());
}

// Returns the exit status.
int train(const World& world, const Digits& digits, const Options& options, Mlp* network,
          Gradients* gradients) {
  const bool speaker = world.rank() == 0;
  if (speaker) print_header(world, *network, digits, options, gradients->segments());

  // The seed already gives every rank the same first weights. With this broadcast, a network that
  // rank 0 loads from a file would reach the other ranks, too.
  std::vector<float>& weights = network->weights();
  world.check("HcclBroadcast", HcclBroadcast(weights.data(), weights.size(), HCCL_DATA_TYPE_FP32, 0,
                                             world.comm(), nullptr));
  Optimizer optimizer(weights.size());
  const auto start = std::chrono::steady_clock::now();
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    const double loss =
        train_epoch(world, digits.train, options, epoch, network, gradients, &optimizer);
    const double right = accuracy(world, digits.test, network);
    if (speaker) std::printf("epoch %d: loss %.6f test accuracy %.4f\n", epoch, loss, right);
    if (speaker) std::fflush(stdout);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  const uint64_t weights_digest = digest(weights);
  const bool identical = identical_on_all_ranks(world, weights_digest);
  bool written = true;
  if (speaker) {
    std::printf("trained in %.2f s\n", seconds.count());
    std::printf("time line of the last iteration (microseconds):\n%s",
                gradients->trace_text().c_str());
    std::printf("weights digest: %016" PRIx64 "\n", weights_digest);
    std::printf("weights identical on all ranks: %s\n", identical ? "yes" : "no");
    if (!options.trace.empty()) gradients->write_trace(options.trace);
    if (!options.weights.empty()) written = write_weights(options.weights, weights);
  }
  return identical && written ? 0 : 1;
}

int run(int argc, char** argv) {
  Options options;
  // 8 tensors. The weights of the first layer, whose gradient is computed last, are 3.6 % of all
  // parameters. HCCL's default split makes that gradient a segment of its own. So the other
  // gradients can be reduced while it is computed.
  const std::vector<size_t> widths = {kPixels, 128, 512, 288, kClasses};
  const auto tensor_count = static_cast<uint32_t>(2 * (widths.size() - 1));
  if (const auto status = parse_options(argc, argv, tensor_count, &options)) return *status;

  Digits digits;
  try {
    digits = load_digits(options.data);
  } catch (const std::exception& error) {
    return usage_error(std::string("--data: ") + error.what());
  }
  if (static_cast<size_t>(options.batch) > digits.train.size()) {
    return usage_error("--batch: at most the number of training images, " +
                       std::to_string(digits.train.size()));
  }

  World world;
  Mlp network(widths, static_cast<uint64_t>(options.seed));
  std::optional<Gradients> gradients;
  try {
    gradients.emplace(world, network.tensors(), options);
  } catch (const HcclFailure& failure) {
    if (failure.code() != HCCL_E_PARA) throw;
    return usage_error(failure.what());  // the split does not fit the tensors
  }
  const int status = train(world, digits, options, &network, &*gradients);
  gradients->close();
  world.leave();
  return status;
}

}  // namespace
}  // namespace examples

int main(int argc, char** argv) {
  try {
    return examples::run(argc, argv);
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "train_digits: %s\n", error.what());
    return 1;
  }
}
