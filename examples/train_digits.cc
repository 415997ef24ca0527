// Trains a network on handwritten digits with the ranks that mpirun starts. Every rank computes the
// gradients of its share of each batch. HCCL sums the gradients, segment by segment, as backward
// completes them. If a rank dies, the other ranks continue.
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <utility>

#include "digits.h"
#include "gradients.h"
#include "mlp.h"
#include "options.h"
#include "random.h"
#include "world.h"

namespace examples {
namespace {

constexpr float kMomentum = 0.9f;

// The rows of this rank, if `count` rows are divided over the ranks as evenly as possible.
struct Share {
  Share(size_t count, const World& world)
      : begin(count * world.rank() / world.size()),
        end(count * (world.rank() + 1) / world.size()) {}
  size_t begin;
  size_t end;
};

// The state of a rank that trains, and continues if another rank dies. The steps of the training
// are the batches of all epochs, and a test after each epoch.
class Training {
 public:
  Training(World* world, const Digits& digits, const Options& options, Mlp* network,
           Gradients* gradients)
      : world_(*world),
        digits_(digits),
        options_(options),
        network_(*network),
        gradients_(*gradients),
        velocity_(network->weights().size()),
        batch_limit_(static_cast<size_t>(options.batch)),
        batches_((digits.train.size() + batch_limit_ - 1) / batch_limit_) {}

  bool is_done() const { return step_ == static_cast<size_t>(options_.epochs) * (batches_ + 1); }

  // Throws HcclFailure. After go_on(), run() may be called again.
  void run() {
    for (; !is_done(); ++step_) {
      const int epoch = static_cast<int>(step_ / (batches_ + 1)) + 1;
      const size_t batch = step_ % (batches_ + 1);
      if (batch < batches_) {
        train(epoch, batch);
      } else {
        test(epoch);
      }
    }
  }

  // Called when a rank has died. The other ranks make a smaller world, and all take the weights of
  // a rank that has made the most steps: some ranks may have finished a step that others could not
  // finish.
  void go_on() {
    world_.shrink([this](HcclComm smaller) { gradients_.rebind(smaller); });
    const auto own = static_cast<int64_t>(step_ * world_.size() + world_.rank());
    const auto newest = static_cast<size_t>(world_.reduce(own, HCCL_REDUCE_MAX));
    std::vector<float> state = network_.weights();
    state.insert(state.end(), velocity_.begin(), velocity_.end());
    world_.broadcast(&state, static_cast<uint32_t>(newest % world_.size()));
    const auto middle = state.begin() + static_cast<std::ptrdiff_t>(velocity_.size());
    std::copy(state.begin(), middle, network_.weights().begin());
    std::copy(middle, state.end(), velocity_.begin());
    step_ = newest / world_.size();
    if (world_.rank() == 0) {
      std::printf("world size: %u, from epoch %zu on\n", world_.size(), step_ / (batches_ + 1) + 1);
    }
  }

 private:
  // The images of an epoch have an order that depends only on the seed and the epoch.
  void begin(int epoch) {
    const auto seed = static_cast<uint64_t>(options_.seed);
    epoch_ = epoch;
    order_ = shuffled(digits_.train.size(), random_bits(seed, static_cast<uint64_t>(epoch)));
    loss_ = 0;
    seen_ = 0;
  }

  void train(int epoch, size_t batch) {
    if (epoch != epoch_) begin(epoch);
    const size_t start = batch * batch_limit_;
    const size_t batch_size = std::min(batch_limit_, digits_.train.size() - start);
    const Share share(batch_size, world_);
    take_rows(digits_.train, order_, start + share.begin, start + share.end, &mine_);

    gradients_.mark(HCCL_FUSION_FP_START);
    const double loss = network_.forward(mine_);
    // The scale is 1 / the size of the whole batch, not of this rank's share. So the sum of the
    // gradients over the ranks is the gradient of the mean loss for any number of ranks and shares.
    network_.backward(mine_, 1.0f / static_cast<float>(batch_size), gradients_.data(),
                      [&](uint32_t index) { gradients_.ready(index); });
    gradients_.mark(HCCL_FUSION_BP_END);
    gradients_.wait();
    update(options_.lr * static_cast<float>(options_.epochs - epoch + 1) /
           static_cast<float>(options_.epochs));
    loss_ += loss;
    seen_ += static_cast<int64_t>(share.end - share.begin);
    gradients_.mark(HCCL_FUSION_ITERATION_END);
  }

  // Stochastic gradient descent with momentum.
  void update(float lr) {
    float* weights = network_.weights().data();
    for (size_t i = 0; i < network_.tensors().size(); ++i) {
      const Tensor& tensor = network_.tensors()[i];
      const float* gradient = gradients_.data()[i];
      for (size_t j = 0; j < tensor.count; ++j) {
        float& velocity = velocity_[tensor.offset + j];
        velocity = kMomentum * velocity + gradient[j];
        weights[tensor.offset + j] -= lr * velocity;
      }
    }
  }

  // Each rank tests its part of the test images.
  void test(int epoch) {
    const double loss =
        world_.sum(loss_) / static_cast<double>(world_.reduce(seen_, HCCL_REDUCE_SUM));
    const Images& all = digits_.test;
    const Share share(all.size(), world_);
    Images mine;
    for (size_t i = share.begin; i < share.end; ++i) {
      mine.append(&all.pixels[i * kPixels], all.labels[i]);
    }
    network_.forward(mine);
    const auto correct = static_cast<int64_t>(network_.correct(mine));
    const auto right = static_cast<double>(world_.reduce(correct, HCCL_REDUCE_SUM));
    if (world_.rank() != 0) return;
    std::printf("epoch %d: loss %.6f test accuracy %.4f\n", epoch, loss,
                right / static_cast<double>(all.size()));
    std::fflush(stdout);
  }

  World& world_;
  const Digits& digits_;
  const Options& options_;
  Mlp& network_;
  Gradients& gradients_;
  std::vector<float> velocity_;
  const size_t batch_limit_;
  const size_t batches_;  // batches of an epoch
  size_t step_ = 0;       // the next step; the weights contain all earlier steps
  int epoch_ = 0;         // the epoch of order_
  std::vector<uint32_t> order_;
  Images mine_;
  double loss_ = 0;  // sum of this rank's losses in this epoch
  int64_t seen_ = 0;
};

// Runs `body` until no rank has died during the run; calls `between` before each new run.
void survive(const std::function<void()>& body, const std::function<void()>& between) {
  for (bool failed = false;;) {
    try {
      if (std::exchange(failed, false)) between();
      return body();
    } catch (const HcclFailure& failure) {
      if (failure.code() != HCCL_E_REMOTE) throw;
      std::fprintf(stderr, "train_digits: %s\n", failure.what());
      failed = true;
    }
  }
}

// Returns 64 bits that change with any bit of any weight.
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
int train(World* world_pointer, const Digits& digits, const Options& options, Mlp* network,
          Gradients* gradients) {
  World& world = *world_pointer;
  if (world.rank() == 0) print_header(world, *network, digits, options, gradients->segments());

  // The seed already gives every rank the same first weights. With this broadcast, a network that
  // rank 0 loads from a file would reach the other ranks, too.
  std::vector<float>& weights = network->weights();
  world.broadcast(&weights, 0);
  Training training(&world, digits, options, network, gradients);
  const auto start = std::chrono::steady_clock::now();
  survive([&] { training.run(); }, [&] { training.go_on(); });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  const uint64_t weights_digest = digest(weights);
  const bool identical = identical_on_all_ranks(world, weights_digest);
  bool written = true;
  if (world.rank() == 0) {
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
  const int status = train(&world, digits, options, &network, &*gradients);
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
