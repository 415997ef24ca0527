// The gradients of a real network, from models/*.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace split_bench {

struct Model {
  struct Gradient {
    std::string name;
    std::uint64_t elements = 0;  ///< fp32
    double ready = 0;            ///< seconds from the start of forward
    std::uint64_t bytes() const { return elements * sizeof(float); }
  };
  std::string name;
  double step = 0;  ///< forward and backward; seconds
  std::vector<Gradient> gradients;
};

/// Reads a model. `scale` divides the sizes of the gradients (each keeps at least one element), but
/// not the times. `shrink` divides both sizes and times. Throws std::runtime_error with the file's
/// name if the file is no model.
Model load_model(const std::string& path, double scale, double shrink);

}  // namespace split_bench
