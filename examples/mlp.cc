#include "mlp.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "matrix.h"
#include "random.h"

namespace examples {
namespace {

// Adds the bias to every row and, in hidden layers, cuts negative values.
void add_bias(float* rows, const float* bias, size_t count, size_t width, bool relu) {
  for (size_t i = 0; i < count; ++i, rows += width) {
    for (size_t j = 0; j < width; ++j) {
      const float value = rows[j] + bias[j];
      rows[j] = relu && value < 0 ? 0 : value;
    }
  }
}

// Turns the scores of one image into probabilities, in place.
void softmax(float* scores, size_t classes) {
  const float highest = *std::max_element(scores, scores + classes);
  float sum = 0;
  for (size_t j = 0; j < classes; ++j) sum += scores[j] = std::exp(scores[j] - highest);
  for (size_t j = 0; j < classes; ++j) scores[j] /= sum;
}

}  // namespace

Mlp::Mlp(std::vector<size_t> widths, uint64_t seed)
    : widths_(std::move(widths)), outputs_(widths_.size() - 1) {
  size_t offset = 0;
  for (size_t layer = layers(); layer-- > 0;) {
    const std::string name = "fc" + std::to_string(layer + 1);
    const size_t bias_count = widths_[layer + 1];
    const size_t weight_count = widths_[layer] * widths_[layer + 1];
    tensors_.push_back({name + ".bias", offset, bias_count});
    tensors_.push_back({name + ".weight", offset + bias_count, weight_count});
    offset += bias_count + weight_count;
  }
  weights_.assign(offset, 0.0f);
  // Biases start at 0. Weights are uniform in a range that keeps the values of all layers about
  // equally large.
  for (size_t layer = 0; layer < layers(); ++layer) {
    const Tensor& tensor = tensors_[weight_index(layer)];
    const auto limit = static_cast<float>(std::sqrt(6.0 / static_cast<double>(widths_[layer])));
    for (size_t i = tensor.offset; i < tensor.offset + tensor.count; ++i) {
      weights_[i] = limit * random_float(seed, i);
    }
  }
}

double Mlp::forward(const Images& images) {
  const float* input = images.pixels.data();
  for (size_t layer = 0; layer < layers(); ++layer) {
    std::vector<float>& output = outputs_[layer];
    output.resize(images.size() * widths_[layer + 1]);
    multiply(input, tensor_data(weight_index(layer)), output.data(), images.size(), widths_[layer],
             widths_[layer + 1]);
    add_bias(output.data(), tensor_data(bias_index(layer)), images.size(), widths_[layer + 1],
             layer + 1 < layers());
    input = output.data();
  }
  const size_t classes = widths_.back();
  probabilities_ = outputs_.back();
  double loss = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    float* row = &probabilities_[i * classes];
    softmax(row, classes);
    loss -= std::log(std::max(row[images.labels[i]], 1e-30f));
  }
  return loss;
}

size_t Mlp::correct(const Images& images) const {
  const size_t classes = widths_.back();
  size_t right = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    const float* row = &probabilities_[i * classes];
    right += std::max_element(row, row + classes) == row + images.labels[i];
  }
  return right;
}

void Mlp::backward(const Images& images, float scale, const std::vector<float*>& gradients,
                   const std::function<void(uint32_t)>& done) {
  const size_t count = images.size();
  // The gradient of the loss with respect to the scores is the probability, less 1 for the right
  // class.
  delta_ = probabilities_;
  for (size_t i = 0; i < count; ++i) delta_[i * widths_.back() + images.labels[i]] -= 1;
  for (float& value : delta_) value *= scale;

  for (size_t layer = layers(); layer-- > 0;) {
    const size_t in = widths_[layer];
    const size_t out = widths_[layer + 1];
    const float* input = layer == 0 ? images.pixels.data() : outputs_[layer - 1].data();

    float* bias = gradients[bias_index(layer)];
    std::fill(bias, bias + out, 0.0f);
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < out; ++j) bias[j] += delta_[i * out + j];
    }
    done(static_cast<uint32_t>(bias_index(layer)));

    transposed_.resize(in * std::max(count, out));
    transpose(input, transposed_.data(), count, in);
    multiply(transposed_.data(), delta_.data(), gradients[weight_index(layer)], in, count, out);
    done(static_cast<uint32_t>(weight_index(layer)));

    if (layer == 0) break;  // the gradient of the pixels is not needed
    transpose(tensor_data(weight_index(layer)), transposed_.data(), in, out);
    next_delta_.resize(count * in);
    multiply(delta_.data(), transposed_.data(), next_delta_.data(), count, out, in);
    for (size_t i = 0; i < count * in; ++i) {
      if (input[i] <= 0) next_delta_[i] = 0;  // ReLU made it 0
    }
    std::swap(delta_, next_delta_);
  }
}

}  // namespace examples
