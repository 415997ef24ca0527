// A multi-layer perceptron with ReLU between the layers and softmax cross entropy at the end,
// written out in plain loops. Backward reports every gradient as soon as it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "digits.h"

namespace examples {

/// One parameter tensor: its range of the weights, in elements.
struct Tensor {
  std::string name;  ///< "fc1.weight", "fc1.bias", ...
  size_t offset;
  size_t count;
};

/// The weights of layer l are a matrix of widths[l] rows and widths[l + 1] columns. One thread at a
/// time may use an object.
class Mlp {
 public:
  /// widths: inputs, hidden layers, classes. The weights are a function of the seed alone.
  Mlp(std::vector<size_t> widths, uint64_t seed);

  /// All parameters, in the order in which backward completes their gradients: last layer first,
  /// bias before weight. The tensors are contiguous in this order.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  std::vector<float>& weights() { return weights_; }
  const std::vector<size_t>& widths() const { return widths_; }

  /// Computes the class scores of the images and keeps the values that backward needs. Returns the
  /// sum of their cross entropy losses.
  double forward(const Images& images);

  /// Number of images that the last forward classified correctly.
  size_t correct(const Images& images) const;

  /// Computes the gradients of (scale * sum of losses) for the images of the last forward.
  /// gradients[i] receives the gradient of tensors()[i]; done(i) is called when it is complete, for
  /// i = 0, 1, 2, ...
  void backward(const Images& images, float scale, const std::vector<float*>& gradients,
                const std::function<void(uint32_t)>& done);

 private:
  size_t layers() const { return widths_.size() - 1; }
  size_t bias_index(size_t layer) const { return 2 * (layers() - 1 - layer); }
  size_t weight_index(size_t layer) const { return bias_index(layer) + 1; }
  float* tensor_data(size_t index) { return &weights_[tensors_[index].offset]; }

  std::vector<size_t> widths_;
  std::vector<Tensor> tensors_;
  std::vector<float> weights_;
  std::vector<std::vector<float>> outputs_;  // of each layer, after ReLU
  std::vector<float> probabilities_;
  std::vector<float> delta_;       // gradient with respect to the current layer's outputs
  std::vector<float> next_delta_;  // gradient with respect to the previous layer's outputs
  std::vector<float> transposed_;
};

}  // namespace examples
